"""Limits are refused before anything starts."""

from dataclasses import replace

import pytest

from fakes import make_agent
from longhaul_core.errors import ConfigError
from longhaul_core.rollout import EpisodeLimits

LIMITS = EpisodeLimits(horizon=5, max_prompt_tokens=1000)


@pytest.mark.parametrize(
    "field", ["horizon", "max_prompt_tokens", "max_memory_tokens", "max_episode_tokens"]
)
def test_a_limit_below_one_is_refused(field: str) -> None:
    with pytest.raises(ConfigError, match=f"{field} must be at least 1, got 0"):
        replace(LIMITS, **{field: 0})


@pytest.mark.parametrize("side", ["reset", "step", "policy", "close"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_a_deadline_that_never_or_always_passes_is_refused(side: str, value: float) -> None:
    field = f"{side}_deadline_seconds"
    with pytest.raises(ConfigError, match=f"{field} must be finite and greater than 0"):
        replace(LIMITS, **{field: value})


def test_everything_wrong_is_told_at_once() -> None:
    with pytest.raises(ConfigError, match=r"horizon.*max_prompt_tokens.*step_deadline"):
        EpisodeLimits(horizon=0, max_prompt_tokens=0, step_deadline_seconds=0)


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", -0.1), ("top_p", 0.0), ("top_p", 1.1), ("max_reply_tokens", 0)],
)
def test_sampling_out_of_range_is_refused(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{field}.*{value}"):
        replace(make_agent(), **{field: value})
