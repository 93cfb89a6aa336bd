"""Tests for `longhaul_trainer.play.horizons`."""

import pytest

from longhaul_core.horizons import HorizonState, SuccessGatedHorizon
from longhaul_trainer.config import RunConfig
from longhaul_trainer.play.horizons import horizon_schedule


def run_with(**schedule: object) -> RunConfig:
    return RunConfig.model_validate(
        {
            "num_training_steps": 4,
            "tasks_per_training_step": 4,
            "rollout": {"horizon": 30},
            "horizon_schedule": schedule,
        }
    )


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({}, {1: 30, 100: 30}),
        (
            {"kind": "stepwise", "stages": [10, 30], "training_steps_per_stage": 7},
            {1: 10, 7: 10, 8: 30},
        ),
        ({"kind": "linear", "start": 4, "end_training_step": 53}, {1: 4, 27: 17, 53: 30, 54: 30}),
    ],
)
def test_the_horizon_of_a_training_step_is_the_one_described(
    schedule: dict[str, object], expected: dict[int, int]
) -> None:
    described = horizon_schedule(run_with(**schedule))

    assert {step: described.horizon(step, HorizonState()) for step in expected} == expected


def test_a_gated_horizon_has_the_stages_the_threshold_and_the_window_of_the_description() -> None:
    described = horizon_schedule(
        run_with(kind="success_gated", stages=[10, 30], success_threshold=0.25, success_window=3)
    )

    assert described == SuccessGatedHorizon(stages=(10, 30), threshold=0.25, window=3)


def test_every_schedule_ends_at_the_horizon_that_validation_plays() -> None:
    stages = {"stages": [10, 30]}
    for schedule in ({}, {"kind": "stepwise"} | stages, {"kind": "linear"}):
        assert horizon_schedule(run_with(**schedule)).horizon(10**6, HorizonState()) == 30
    gated = horizon_schedule(run_with(kind="success_gated", **stages))
    assert gated.horizon(10**6, HorizonState(stage=1)) == 30
