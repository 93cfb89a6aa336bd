"""Tests for `longhaul_trainer.agent_loops`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.errors import ConfigError
from longhaul_trainer.agent_loops import AgentLoop, least_workers, most_agent_loops, shares
from longhaul_trainer.config import RunConfig


def run_with(**sections: object) -> RunConfig:
    return RunConfig.model_validate(
        {"num_training_steps": 3, "tasks_per_training_step": 4} | sections
    )


@given(st.integers(1, 10_000), st.integers(1, 200))
def test_shares_sum_to_the_limit_and_differ_by_at_most_one(limit: int, num_parts: int) -> None:
    if num_parts > limit:
        with pytest.raises(ConfigError, match=f"limit of {limit} cannot be divided among"):
            shares(limit, num_parts)
        return
    parts = shares(limit, num_parts)
    assert len(parts) == num_parts
    assert sum(parts) == limit
    assert max(parts) - min(parts) <= 1
    loops = [AgentLoop(index=index, of=num_parts) for index in range(num_parts)]
    assert tuple(loop.share(limit) for loop in loops) == parts


def test_the_smaller_limit_bounds_the_agent_loops() -> None:
    run = run_with(environment={"num_workers": 6}, rollout={"concurrent_episodes": 3})
    assert most_agent_loops(run) == 3
    run = run_with(environment={"num_workers": 2}, rollout={"concurrent_episodes": 3})
    assert most_agent_loops(run) == 2


def test_the_smallest_limit_of_a_mixture_is_named_with_its_environment() -> None:
    environments = [{"id": "a/A-v0", "num_workers": 9}, {"id": "b/B-v0", "num_workers": 2}]
    run = run_with(environments=environments, rollout={"concurrent_episodes": 5})

    assert most_agent_loops(run) == 2
    assert least_workers(run) == "environments: num_workers = 2 of 'b/B-v0'"
    assert least_workers(run_with()) == "environment.num_workers = 8"
