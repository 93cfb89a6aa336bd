"""Random requests to an open episode: by the document of our routes, and to the vendors' ones."""

# schemathesis leaves the parameters of its generic types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, Response
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    negative_data_rejection,
    positive_data_acceptance,
)

from gateways import open_episode
from longhaul_trainer.gateway.episode import CallRules, OpenEpisode
from longhaul_trainer.gateway.operations import OPERATIONS
from longhaul_trainer.gateway.server import Gateway

NOT_IN_THE_TYPES = [positive_data_acceptance, negative_data_rejection]
"""Bounds of numbers, and which two fields exclude each other, are in no type."""
MESSAGES = [{"role": "user", "content": "go"}]
BODIES: dict[str, dict[str, object]] = {
    "openai_chat": {"model": "auto", "messages": MESSAGES},
    "openai_completions": {"model": "auto", "prompt": "go"},
    "openai_responses": {"model": "auto", "input": "go"},
    "anthropic": {"model": "auto", "messages": MESSAGES, "max_tokens": 8},
    "google": {"contents": [{"parts": [{"text": "go"}]}]},
    "": {"event_type": "note"},
}
"""By dialect, a request that is answered."""
VALUES = {"attempt": "0", "mode": "train", "model": "auto", "method": "streamGenerateContent"}
FIELDS = sorted(
    {"n", "tools", "stop", "stream", "temperature", "longhaul", "generationConfig"}.union(
        *BODIES.values()
    )
)
CHANGES = st.dictionaries(
    st.sampled_from(FIELDS),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "parts"]), inner)
        ),
        max_leaves=6,
    ),
    min_size=1,
    max_size=3,
)
SETTINGS = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
MANY = settings(SETTINGS, max_examples=40)


@pytest.fixture(scope="module")
def episodes() -> Iterator[Callable[[], OpenEpisode]]:
    """Opens episodes of a gateway that runs in a thread, for clients that block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    gateway = Gateway()

    async def opened() -> OpenEpisode:
        rules = CallRules(trains=True, altered="allow")
        return open_episode(gateway, rules=rules)[1]

    asyncio.run_coroutine_threadsafe(gateway.start(), loop).result()
    yield lambda: asyncio.run_coroutine_threadsafe(opened(), loop).result()
    asyncio.run_coroutine_threadsafe(gateway.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.slow
def test_no_request_to_our_routes_is_answered_with_a_defect(
    episodes: Callable[[], OpenEpisode],
) -> None:
    schema = schemathesis.openapi.from_url(f"{episodes().access.address}/openapi.json")
    statuses: defaultdict[str, set[int]] = defaultdict(set)

    def called(case: Case) -> Response:
        """Of an episode that no request before has ended."""
        episode = episodes()
        headers = {"Authorization": f"Bearer {episode.access.key}"}
        case.path_parameters = {"episode": episode.access.id}
        response = case.call(headers=headers)
        statuses[case.operation.label].add(response.status_code)
        case.validate_response(response, headers=headers, excluded_checks=NOT_IN_THE_TYPES)
        return response

    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()

        @SETTINGS
        @given(case=operation.as_strategy())
        def random_requests(case: Case) -> None:
            called(case)

        random_requests()

    assert len(statuses) == 3
    assert {name for name, seen in statuses.items() if 200 not in seen} == set()
    assert not {401, 410} & set().union(*statuses.values())


@pytest.mark.slow
def test_no_request_to_a_vendors_route_is_answered_with_a_defect(
    episodes: Callable[[], OpenEpisode],
) -> None:
    asked = [
        (path, BODIES[operation.dialect])
        for operation in OPERATIONS
        for path in operation.paths
        if operation.method == "POST" and not operation.summary
    ]
    statuses: defaultdict[str, set[int]] = defaultdict(set)

    with httpx.Client(timeout=60, verify=False) as http:

        def call(path: str, body: dict[str, object], changes: dict[str, object]) -> None:
            episode = episodes()
            address = episode.access.address + path.format(episode=episode.access.id, **VALUES)
            answer = http.post(
                address,
                params={"alt": "sse"},
                content=json.dumps(body | changes),
                headers={
                    "Authorization": f"Bearer {episode.access.key}",
                    "Content-Type": "application/json",
                },
            )
            statuses[path].add(answer.status_code)

        for path, body in asked:
            call(path, body, {})
            MANY(given(st.just(path), st.just(body), CHANGES)(call))()

    assert len(asked) == 18
    assert {name for name, seen in statuses.items() if 200 not in seen} == set()
    assert set().union(*statuses.values()) <= {200, 400, 404}
