"""The server against its own OpenAPI document: random requests, and those that links lead to."""

# schemathesis leaves the parameters of its generic types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false

from collections import defaultdict
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, Response
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance
from schemathesis.specs.openapi.schemas import OpenApiSchema

from environment_server import TOKEN, RunningServer, running_server

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
UNKNOWN_IS_GONE = positive_data_acceptance
"""It takes 404 for an id that is unknown, and not 410, which ours is after a restart as well."""
SETTINGS = settings(
    max_examples=20,
    stateful_step_count=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
FAR = settings(SETTINGS, max_examples=100, stateful_step_count=12)
"""So many that links mostly lead to every operation."""
MOST_ROUNDS = 5
"""Whether they do depends on what other tests have imported: Hypothesis draws constants of modules,
too. A round that does not lead far enough is followed by one of other draws."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(
        {"id": "served/Willing-v0", "limits": {"num_workers": 2}, "sessions_per_worker": 2000},
        folder=tmp_path_factory.mktemp("server"),
        settings={"tokens": {"": TOKEN}},
    ) as running:
        yield running


def right_requests(address: str) -> OpenApiSchema:
    """The schema, for requests that keep to it: links that lead far need every one to succeed."""
    right = schemathesis.Config.from_dict({"generation": {"mode": "positive"}})
    return schemathesis.openapi.from_url(address, headers=HEADERS, config=right)


@pytest.mark.slow
def test_no_request_is_answered_with_a_defect_and_what_follows_from_others_is_done(
    server: RunningServer,
) -> None:
    address = f"{server.address}/openapi.json"
    schema = schemathesis.openapi.from_url(address, headers=HEADERS)
    statuses: defaultdict[str, set[int]] = defaultdict(set)

    def called(case: Case) -> Response:
        response = case.call(headers=HEADERS)
        statuses[case.operation.label].add(response.status_code)
        case.validate_response(response, headers=HEADERS, excluded_checks=[UNKNOWN_IS_GONE])
        return response

    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()

        @SETTINGS
        @given(case=operation.as_strategy())
        def random_requests(case: Case) -> None:
            called(case)

        random_requests()

    def follow_links(draws: settings) -> None:
        class Linked(right_requests(address).as_state_machine()):  # it remembers what it has seen
            def call(self, case: Case, **_: object) -> Response:
                return called(case)

            def validate_response(self, *_: object, **__: object) -> None:
                """`called` has done it."""

        Linked.run(settings=draws)

    def share_done() -> float:
        return sum(any(200 <= one < 300 for one in all_) for all_ in statuses.values()) / 13

    for number in range(MOST_ROUNDS):
        follow_links(settings(FAR, derandomize=number == 0))
        if share_done() >= 0.8:
            break

    assert not [(name, one) for name, all_ in statuses.items() for one in all_ if one >= 500]
    assert len(statuses) == 13
    assert share_done() >= 0.8, statuses
