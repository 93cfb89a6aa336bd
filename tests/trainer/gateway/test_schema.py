"""The gateway against its own OpenAPI document, with an episode that is open."""

# schemathesis leaves the parameters of its generic types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, Response
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    negative_data_rejection,
    positive_data_acceptance,
)

from gateways import open_episode
from longhaul_trainer.gateway.episode import CallRules, OpenEpisode
from longhaul_trainer.gateway.server import Gateway

SAID_BY_THE_DIALECT = [positive_data_acceptance, negative_data_rejection]
"""The document has the fields that matter; what else of a vendor's JSON is read, is in the dialect,
and tested there."""
SETTINGS = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


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
def test_no_request_is_answered_with_a_defect(episodes: Callable[[], OpenEpisode]) -> None:
    schema = schemathesis.openapi.from_url(f"{episodes().door.address}/openapi.json")
    statuses: defaultdict[str, set[int]] = defaultdict(set)

    def called(case: Case) -> Response:
        """Of an episode that no request before has ended, and a model that is there."""
        episode = episodes()
        headers = {"Authorization": f"Bearer {episode.door.key}"}
        for part in (case.path_parameters, case.body):
            if isinstance(part, dict):
                changed = {"episode": episode.door.id, "model": "auto"}
                part |= {name: changed[name] for name in changed.keys() & part.keys()}
        response = case.call(headers=headers)
        statuses[case.operation.label].add(response.status_code)
        case.validate_response(response, headers=headers, excluded_checks=SAID_BY_THE_DIALECT)
        return response

    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()

        @SETTINGS
        @given(case=operation.as_strategy())
        def random_requests(case: Case) -> None:
            called(case)

        random_requests()

    assert {name for name, seen in statuses.items() if 200 not in seen} == set()
    assert not {401, 410} & set().union(*statuses.values())
