"""Groups out of results."""

import random

import pytest

from fakes import make_task
from longhaul_core.errors import ConfigError, GroupError
from longhaul_core.rollout import (
    EpisodeResult,
    EpisodeSpec,
    assemble_groups,
    episode_seed,
    group_specs,
)
from longhaul_core.types import (
    FailedEpisode,
    FailureCause,
    Observation,
    StopReason,
    Trajectory,
)
from steps import one_call_step

TASKS = [make_task(number) for number in range(3)]


def result_of(spec: EpisodeSpec, *, failed: bool = False) -> EpisodeResult:
    seen = Observation(text="room")
    step = one_call_step(
        0,
        seen,
        messages=(),
        prompt_tokens=(1,),
        action_tokens=(2,),
        behavior_logprobs=(-1.0,),
        reply="go",
        action="go",
        action_valid=True,
        reward=1.0,
        policy_version=0,
    )
    if failed:
        outcome = FailedEpisode(
            task=spec.task,
            sample_index=spec.sample_index,
            seed=spec.seed,
            horizon=1,
            cause=FailureCause.POLICY_ERROR,
            message="",
            steps=(),
            started_at=0,
            duration_seconds=0,
        )
    else:
        outcome = Trajectory(
            task=spec.task,
            sample_index=spec.sample_index,
            seed=spec.seed,
            horizon=1,
            steps=(step,),
            stop_reason=StopReason.HORIZON_REACHED,
            success=False,
            final_observation=seen,
            started_at=0,
            duration_seconds=0,
        )
    return EpisodeResult(spec=spec, outcome=outcome, final=True)


def test_every_task_gets_a_full_group_with_seeds_that_its_place_decides() -> None:
    planned = group_specs(TASKS, group_size=4, run_seed=9, training_step=2)
    assert [(one.group_index, one.sample_index) for one in planned] == [
        (group, sample_index) for group in range(3) for sample_index in range(4)
    ]
    assert planned[6].task is TASKS[1]
    assert planned[6].seed == episode_seed(9, training_step=2, group_index=1, sample_index=2)
    assert len({one.seed for one in planned}) == 12
    assert len({one.episode_id for one in planned}) == 12


def test_groups_do_not_depend_on_the_order_in_which_episodes_ended() -> None:
    planned = group_specs(TASKS, group_size=4, run_seed=0, training_step=0)
    results = [result_of(one) for one in planned]
    expected = assemble_groups(results)
    for seed in range(5):
        shuffled = list(results)
        random.Random(seed).shuffle(shuffled)
        assert assemble_groups(shuffled) == expected
    assert list(expected) == [0, 1, 2]
    assert [one.sample_index for one in expected[1].trajectories] == [0, 1, 2, 3]


def test_failed_tries_are_recorded_and_leave_no_trajectory() -> None:
    first, second = group_specs(TASKS[:1], group_size=2, run_seed=0, training_step=0)
    again = EpisodeSpec(task=second.task, seed=1, sample_index=1, retry=1)
    results = [result_of(first), result_of(second, failed=True), result_of(again, failed=True)]
    group = assemble_groups(results)[0]
    assert [one.sample_index for one in group.trajectories] == [0]
    assert [one.sample_index for one in group.failures] == [1, 1]


def test_one_task_played_in_two_groups_stays_apart() -> None:
    planned = group_specs([TASKS[0], TASKS[0]], group_size=2, run_seed=0, training_step=0)
    groups = assemble_groups(result_of(one) for one in planned)
    assert [len(group.trajectories) for group in groups.values()] == [2, 2]


def test_two_trajectories_at_one_place_are_refused() -> None:
    spec = EpisodeSpec(task=TASKS[0], seed=0)
    with pytest.raises(GroupError, match="two trajectories at one sample_index"):
        assemble_groups([result_of(spec), result_of(spec)])


def test_a_group_of_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="got 0"):
        group_specs(TASKS, group_size=0, run_seed=0, training_step=0)
