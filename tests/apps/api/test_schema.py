"""The API against its own OpenAPI document: random requests find no defect, in bounded time."""

# schemathesis leaves the parameters of its generic types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false

import time
from collections import Counter

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings, strategies
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import response_schema_conformance

from apps.api.conftest import StartApi
from apps.conftest import SampleStore

SETTINGS = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
"""So many of each address, and as many of it with the sample's run: some 600 requests."""
SECONDS_PER_ADDRESS = 5.0
"""On a busy machine fewer are asked, but some of each."""


@pytest.mark.slow
def test_no_request_finds_a_defect(sample: SampleStore, running_api: StartApi) -> None:
    running = running_api(sample.url)
    schema = schemathesis.openapi.from_url(f"{running.address}/openapi.json")
    episode = sample.solved.summary
    real = {
        "run_id": sample.run_id,
        "episode_id": episode.episode_id,
        "phase": episode.phase,
        "training_step": episode.training_step,
        "group_index": episode.group_index,
        "step_index": 0,
        "call_index": 0,
    }
    statuses: Counter[int] = Counter()

    def ask(case: Case) -> None:
        answer = case.call(timeout=60)
        statuses[answer.status_code] += 1
        case.validate_response(answer, checks=[not_a_server_error, response_schema_conformance])

    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        end = time.monotonic() + SECONDS_PER_ADDRESS

        @SETTINGS
        @given(case=operation.as_strategy(), end=strategies.just(end))
        def random_requests(case: Case, end: float) -> None:
            if time.monotonic() > end:
                return
            ask(case)
            parts = case.path_parameters
            if parts and parts.keys() <= real.keys():
                case.path_parameters = {name: real[name] for name in parts}
                ask(case)

        random_requests()
    assert not [status for status in statuses if status >= 500]
    assert statuses[200] > 20
    assert statuses[422] > 5
