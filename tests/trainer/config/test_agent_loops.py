"""Tests for `longhaul_trainer.config.agent_loops`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.errors import ConfigError
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.agent_loops import (
    AgentLoop,
    episodes_at_once,
    num_agent_loops,
    shares,
    spread,
)


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


@given(st.integers(1, 2_000), st.integers(1, 60), st.integers(1, 20))
def test_shares_are_whole_groups_where_each_can_have_one(
    limit: int, num_parts: int, unit: int
) -> None:
    if num_parts > limit:
        return
    parts = shares(limit, num_parts, unit=unit)

    assert sum(parts) == limit
    assert max(parts) - min(parts) <= unit
    if limit >= num_parts * unit:
        *others, last = parts
        assert all(part % unit == 0 for part in others)
        assert last % unit == limit % unit


def test_groups_go_to_the_loop_with_the_fewest_for_its_share() -> None:
    equal = [8, 8, 8, 8]

    assert spread(5, playing=[0, 0, 0, 0], at_once=equal) == ((0, 4), (1,), (2,), (3,))
    assert spread(1, playing=[3, 2, 2, 3], at_once=equal) == ((), (0,), (), ())
    # the first loop has twice the slots of the second, and gets twice the groups
    assert spread(6, playing=[0, 0], at_once=[16, 8]) == ((0, 1, 3, 4), (2, 5))
    assert spread(0, playing=[0], at_once=[8]) == ((),)


def test_refills_of_one_group_reach_every_loop() -> None:
    playing = [0, 0, 0]
    for _ in range(30):
        (given,) = [i for i, new in enumerate(spread(1, playing=playing, at_once=[4] * 3)) if new]
        playing[given] += 1

    assert playing == [10, 10, 10]


@given(st.integers(1, 60), st.integers(1, 12), st.data())
def test_where_the_limit_holds_a_whole_batch_no_episode_waits_for_a_slot(
    num_groups: int, group: int, data: st.DataObject
) -> None:
    num_loops = data.draw(st.integers(1, num_groups))
    left = data.draw(st.integers(0, group - 1))
    at_once = shares(num_groups * group + left, num_loops, unit=group)

    given_to = spread(num_groups, playing=[0] * num_loops, at_once=at_once)

    assert sorted(number for numbers in given_to for number in numbers) == list(range(num_groups))
    for numbers, slots in zip(given_to, at_once, strict=True):
        assert len(numbers) * group <= slots


LARGE = {"concurrent_episodes": 128, "group_size": 8}


@pytest.mark.parametrize(
    ("sections", "wanted"),
    [
        ({"resources": {"num_workers": 1}}, 2),
        ({"resources": {"num_workers": 4}}, 4),
        ({"resources": {"num_workers": 8}}, 8),
        # engines, not the learner's workers, and of all nodes
        ({"resources": {"num_workers": 8}, "engine": {"tensor_parallel_size": 2}}, 4),
        ({"resources": {"num_workers": 4, "num_nodes": 2, "ray_address": "auto"}}, 8),
        (
            {
                "trainer": {"mode": "separate_async", "prefetch_batches": 1, "max_staleness": 1},
                "resources": {"num_workers": 2, "num_engine_workers": 6},
            },
            6,
        ),
        # room for a whole group of 8, or of 9 with a greedy episode
        ({"resources": {"num_workers": 8}, "environment": {"num_workers": 40}}, 5),
        (
            {
                "resources": {"num_workers": 8},
                "environment": {"num_workers": 40},
                "algorithm": {"name": "remax"},
            },
            4,
        ),
        ({"resources": {"num_workers": 8}, "environment": {"num_workers": 2}}, 1),
        ({"resources": {"num_workers": 8}, "tasks_per_training_step": 4}, 4),
        ({"resources": {"num_workers": 8}, "rollout": LARGE | {"agent_loops": 3}}, 3),
    ],
)
def test_gpus_have_an_agent_loop_for_each_engine_as_far_as_that_helps(
    sections: dict[str, object], wanted: int
) -> None:
    sizes = {"tasks_per_training_step": 16, "rollout": LARGE, "environment": {"num_workers": 128}}

    assert num_agent_loops(run_with(**sizes | sections), device="gpu") == wanted


def test_a_cpu_has_one_agent_loop_unless_the_run_asks_for_more() -> None:
    assert num_agent_loops(run_with(resources={"num_workers": 8}), device="cpu") == 1
    assert num_agent_loops(run_with(rollout={"agent_loops": 3}), device="cpu") == 3


def test_environments_bound_what_a_loop_plays_at_once() -> None:
    rollout = {"concurrent_episodes": 16, "group_size": 2}
    run = run_with(rollout=rollout, environment={"num_workers": 6})

    assert episodes_at_once(run, num_loops=2) == (4, 2)


def test_the_smaller_limit_bounds_the_agent_loops() -> None:
    run = run_with(environment={"num_workers": 6}, rollout={"concurrent_episodes": 3})
    assert run.most_agent_loops == 3
    run = run_with(environment={"num_workers": 2}, rollout={"concurrent_episodes": 3})
    assert run.most_agent_loops == 2


def test_the_smallest_limit_of_a_mixture_is_named_with_its_environment() -> None:
    environments = [{"id": "a/A-v0", "num_workers": 9}, {"id": "b/B-v0", "num_workers": 2}]
    run = run_with(environments=environments, rollout={"concurrent_episodes": 5})

    assert run.most_agent_loops == 2
    assert run.least_workers == "environments: num_workers = 2 of 'b/B-v0'"
    assert run_with().least_workers == "environment.num_workers = 8"
