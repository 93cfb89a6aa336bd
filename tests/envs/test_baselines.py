"""Baselines on an environment whose scores can be worked out by hand."""

from dataclasses import replace

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Split
from longhaul_envs.baselines import (
    baseline_scores,
    drawn_over_families,
    expert_score,
    family_of,
)
from longhaul_envs.sources import environment_source
from variation import assert_several

SOUND = GymEnvironmentSpec(
    environment_id="broken/Sound-v0", import_modules=("broken_environments",)
)


def test_each_policy_scores_what_it_must() -> None:
    """Five numbers, of which a constant names one; the first in the list is always right."""
    tasks = environment_source(SOUND).tasks(Split.TRAIN)
    random, constant, position, expert = baseline_scores(SOUND, tasks, chosen_on=tasks, horizon=4)

    assert random.policy == "random"
    assert 0 < random.success_rate <= 1
    assert 0 <= random.success_interval[0] < random.success_rate < random.success_interval[1] <= 1
    assert constant.policy.startswith("constant: ")
    assert (constant.success_rate, constant.mean_steps) == (0.2, (1 + 4 * 4) / 5)
    assert (position.policy, position.success_rate) == ("position: first", 1.0)
    assert (expert.policy, expert.mean_return, expert.mean_steps) == ("expert", 1.0, 1.0)


def test_the_random_policy_draws_the_same_for_a_task_whatever_the_others_are() -> None:
    tasks = environment_source(SOUND).tasks(Split.TRAIN)
    together = baseline_scores(SOUND, tasks, chosen_on=tasks, horizon=2)[0]
    apart = [baseline_scores(SOUND, [task], chosen_on=tasks, horizon=2)[0] for task in tasks]
    assert_several(score.success_rate for score in apart)
    assert together.success_rate == sum(score.success_rate for score in apart) / len(tasks)


def test_no_task_no_baseline() -> None:
    tasks = tuple(environment_source(SOUND).tasks(Split.TRAIN))
    for scored, chosen_on in ((tasks[:0], tasks), (tasks, tasks[:0])):
        with pytest.raises(ConfigError, match="at least 1 task to score and 1 to choose on"):
            baseline_scores(SOUND, scored, chosen_on=chosen_on, horizon=2)


def test_a_constant_action_is_chosen_on_other_tasks_than_it_is_scored_on() -> None:
    """Each task of this environment has a right action of its own."""
    one, *others = environment_source(SOUND).tasks(Split.TRAIN)
    _, here, _, _ = baseline_scores(SOUND, [one], chosen_on=[one], horizon=4)
    _, there, _, _ = baseline_scores(SOUND, [one], chosen_on=others, horizon=4)

    assert (here.success_rate, there.success_rate) == (1.0, 0.0)


def test_tasks_are_drawn_by_seed_and_every_family_has_one() -> None:
    one = environment_source(SOUND).tasks(Split.TRAIN)[0]
    tasks = [replace(one, task_id=f"{family}/{n}") for family in "abcdef" for n in range(9)]
    tasks += [replace(one, task_id="rare/0")]
    drawn = drawn_over_families(tasks, num_tasks=8)
    few = drawn_over_families(tasks, num_tasks=2)

    assert {family_of(task) for task in drawn} == {*"abcdef", "rare"}
    assert len(drawn) == len({task.task_id for task in drawn}) == 8
    assert len(few) == 7
    assert drawn == drawn_over_families(tasks[::-1], num_tasks=8)
    assert drawn != drawn_over_families(tasks, num_tasks=8, seed=1)
    assert len(drawn_over_families(tasks, num_tasks=99)) == len(tasks)


def test_what_an_expert_fails_is_named() -> None:
    hopeless = replace(SOUND, environment_id="broken/Hopeless-v0")
    tasks = environment_source(hopeless).tasks(Split.TRAIN)
    scored = expert_score(hopeless, tasks, horizon=2)

    assert scored.failures == tuple(task.task_id for task in tasks)
    assert scored.expert is not None
    assert scored.expert.success_rate == 0
    assert scored.random is not None
    assert scored.random.success_rate > 0
    assert expert_score(SOUND, tasks, horizon=2).failures == ()
