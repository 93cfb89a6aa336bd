"""Tests for `longhaul_trainer.cli.evaluate`."""

from pathlib import Path

import pytest

from longhaul_core.errors import ConfigError
from longhaul_trainer.cli.evaluate import to_be_played
from longhaul_trainer.config import load_config

SMOKE = Path(__file__).parents[3] / "configs" / "smoke.toml"


@pytest.mark.parametrize(
    "growth",
    [
        ('horizon_schedule.kind="stepwise"', "horizon_schedule.stages=[4, 8]"),
        ('horizon_schedule.kind="success_gated"', "horizon_schedule.stages=[4, 8]"),
        ('horizon_schedule.kind="linear"', "horizon_schedule.stages=[]"),
    ],
    ids=lambda growth: growth[0],
)
def test_an_evaluation_may_have_another_horizon_than_the_run_grew_to(
    growth: tuple[str, ...],
) -> None:
    trained = load_config(SMOKE, growth)

    shorter = to_be_played(trained, ["rollout.horizon=1"], source="run")
    as_trained = to_be_played(trained, None, source="run")

    assert (shorter.rollout.horizon, as_trained.rollout.horizon) == (1, 8)
    assert as_trained.horizon_schedule.kind == shorter.horizon_schedule.kind == "fixed"
    assert as_trained.rollout == trained.rollout
    assert as_trained.model == trained.model


def test_what_is_wrong_with_an_evaluation_is_told_by_the_runs_name() -> None:
    with pytest.raises(ConfigError, match=r"20261121-smoke has 1 problem:\n.*rollout.horizon = 0"):
        to_be_played(load_config(SMOKE), ["rollout.horizon=0"], source="20261121-smoke")
