"""What every estimator of `longhaul_core.advantages` keeps, whatever its formula."""

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages import EpisodeCredit
from longhaul_core.advantages.credit import FloatArray
from longhaul_core.advantages.drgrpo import drgrpo_credit
from longhaul_core.advantages.gae import gae_over_steps
from longhaul_core.advantages.gigpo import gigpo_credit
from longhaul_core.advantages.graphgpo import GraphSettings, graphgpo_credit
from longhaul_core.advantages.grpo import grpo_credit
from longhaul_core.advantages.hgpo import hgpo_credit
from longhaul_core.advantages.pass_at_k import pass_at_k_credit
from longhaul_core.advantages.reinforce import (
    reinforce_plus_plus_baseline_credit,
    reinforce_plus_plus_credit,
)
from longhaul_core.advantages.remax import remax_credit
from longhaul_core.advantages.rloo import rloo_credit
from longhaul_core.errors import GroupError

Step = tuple[float, str]
"""Reward, and the state the step was taken in."""
Group = list[list[Step]]
Estimator = Callable[[Group], tuple[EpisodeCredit, ...]]

# Eighths add up without rounding, which dividing by a deviation near 0 would magnify.
eighths = st.integers(-80, 80).map(lambda number: number / 8)
groups = st.lists(
    st.lists(st.tuples(eighths, st.sampled_from("abcd")), min_size=1, max_size=6),
    min_size=2,
    max_size=5,
)


def rewards_of(group: Group) -> list[FloatArray]:
    return [np.array([reward for reward, _ in episode]) for episode in group]


def states_of(group: Group) -> list[list[str]]:
    return [[state for _, state in episode] for episode in group]


def tokens_of(group: Group) -> list[list[int]]:
    """Two tokens a step and one more in state b, so that steps differ in length."""
    return [[2 + (state == "b") for _, state in episode] for episode in group]


def final_states_of(group: Group) -> list[str | None]:
    """The goal where the last step was paid for, or else the state that it was taken in."""
    return [None if episode[-1][0] > 0 else episode[-1][1] for episode in group if episode]


WHOLE_EPISODE: dict[str, Estimator] = {
    "grpo": lambda group: grpo_credit(rewards_of(group)),
    "grpo, unscaled": lambda group: grpo_credit(rewards_of(group), scale_by_std=False),
    "drgrpo": lambda group: drgrpo_credit(rewards_of(group)),
    "rloo": lambda group: rloo_credit(rewards_of(group)),
    "pass_at_k, all": lambda group: pass_at_k_credit(rewards_of(group)),
    "pass_at_k, two": lambda group: pass_at_k_credit(rewards_of(group), k=2, scale_by_std=False),
    "reinforce_plus_plus_baseline, episode": lambda group: reinforce_plus_plus_baseline_credit(
        rewards_of(group), tokens_of(group), ["a"] * len(group), whiten="episode"
    ),
}
"""Every step of an episode gets the same, and no length counts."""

ESTIMATORS: dict[str, Estimator] = {
    **WHOLE_EPISODE,
    "gigpo": lambda group: gigpo_credit(rewards_of(group), states_of(group), discount=0.5),
    "gigpo, similar": lambda group: gigpo_credit(
        rewards_of(group), states_of(group), discount=0.5, similarity=0.9
    ),
    "graphgpo": lambda group: graphgpo_credit(
        rewards_of(group),
        states_of(group),
        final_states_of(group),
        settings=GraphSettings(distance_decay=0.5),
    ),
    "hgpo": lambda group: hgpo_credit(rewards_of(group), states_of(group), discount=0.5),
    "reinforce_plus_plus": lambda group: reinforce_plus_plus_credit(
        rewards_of(group), tokens_of(group), discount=0.5
    ),
    "reinforce_plus_plus_baseline": lambda group: reinforce_plus_plus_baseline_credit(
        rewards_of(group), tokens_of(group), ["a"] * len(group)
    ),
}

EPISODE_PART = (*WHOLE_EPISODE, "gigpo", "graphgpo")
"""These compare whole episodes, if not them alone."""

SUM_TO_ZERO = [name for name in EPISODE_PART if not name.startswith("pass_at_k")]
"""An attempt is never worse than nothing to the best of k."""

COMPARE_A_GROUP = [name for name in ESTIMATORS if name != "reinforce_plus_plus"]
"""The other one compares over the training step."""


@given(group=groups, random=st.randoms(use_true_random=False))
def test_parts_add_up_returns_are_reported_and_the_order_of_episodes_does_not_matter(
    group: Group, random: Random
) -> None:
    order = list(range(len(group)))
    random.shuffle(order)

    for name, estimator in ESTIMATORS.items():
        there = estimator(group)
        back = estimator([group[place] for place in order])

        for place, credit in zip(order, back, strict=True):
            parts = credit.episode_advantage + np.array(credit.step_advantages)
            np.testing.assert_allclose(credit.advantages, parts, atol=1e-12, err_msg=name)
            assert len(credit.advantages) == len(credit.returns_to_go) == len(group[place]), name
            np.testing.assert_allclose(
                credit.advantages, there[place].advantages, rtol=1e-5, atol=1e-6, err_msg=name
            )


@given(group=groups)
def test_advantages_cancel_over_episodes(group: Group) -> None:
    for name in SUM_TO_ZERO:
        credits = ESTIMATORS[name](group)
        assert abs(sum(credit.episode_advantage for credit in credits)) < 1e-8, name


def require_episode_parts_alike(name: str, one: Group, other: Group, *, within: float) -> None:
    for before, after in zip(ESTIMATORS[name](one), ESTIMATORS[name](other), strict=True):
        assert after.episode_advantage == pytest.approx(
            before.episode_advantage, rel=1e-6, abs=within
        ), name


@given(group=groups, bonus=eighths)
def test_a_bonus_for_every_episode_changes_nothing(group: Group, bonus: float) -> None:
    paid = [[*episode[:-1], (episode[-1][0] + bonus, episode[-1][1])] for episode in group]

    for name in EPISODE_PART:
        require_episode_parts_alike(name, group, paid, within=1e-8)


@given(group=groups, num_idle=st.integers(1, 20))
def test_idle_steps_of_one_episode_move_no_episode_part(group: Group, num_idle: int) -> None:
    longer = [[*group[0], *[(0.0, "idle")] * num_idle], *group[1:]]

    for name in EPISODE_PART:
        require_episode_parts_alike(name, group, longer, within=1e-9)


@given(reward=st.floats(-100, 100), size=st.integers(2, 6))
def test_attempts_that_are_alike_give_exactly_zero(reward: float, size: int) -> None:
    for name, estimator in ESTIMATORS.items():
        credits = estimator([[(reward, "a")]] * size)
        assert [credit.advantages for credit in credits] == [(0.0,)] * size, name


@pytest.mark.parametrize("name", ["gigpo", "hgpo"])
def test_a_lone_step_has_no_step_advantage(name: str) -> None:
    first, second = ESTIMATORS[name]([[(0.0, "a"), (5.0, "b")], [(0.0, "a"), (1.0, "c")]])

    assert first.step_advantages[0] != 0.0
    assert (first.step_advantages[1], second.step_advantages[1]) == (0.0, 0.0)


@pytest.mark.parametrize("name", COMPARE_A_GROUP)
def test_a_lone_attempt_is_refused(name: str) -> None:
    with pytest.raises(GroupError, match="at least 2 trajectories to compare, got 1"):
        ESTIMATORS[name]([[(1.0, "a")]])


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_named(name: str, reward: float) -> None:
    with pytest.raises(ValueError, match=r"reward of episode 1, step 1 must be finite, got"):
        ESTIMATORS[name]([[(1.0, "a")], [(0.0, "a"), (reward, "a")]])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_episode_without_steps_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"rewards of episode 1 must have .* at least one step"):
        ESTIMATORS[name]([[(1.0, "a")], []])


@pytest.mark.parametrize("length", [0, 1, 3])
def test_what_is_said_of_each_step_must_be_as_long_as_the_episode(length: int) -> None:
    rewards = [np.zeros(2), np.zeros(2)]
    found = rf"have \[2, 2\] rewards but \[2, {length}\]"

    with pytest.raises(ValueError, match=f"{found} anchor states"):
        hgpo_credit(rewards, [["a", "b"], ["a"] * length], discount=1.0)
    with pytest.raises(ValueError, match=f"{found} token counts"):
        reinforce_plus_plus_credit(rewards, [[1, 1], [1] * length])
    with pytest.raises(ValueError, match=f"{found} values"):
        gae_over_steps(
            rewards, [np.zeros(2), np.zeros(length)], [None, None], discount=1.0, gae_lambda=1.0
        )


def test_an_advantage_function_leaves_the_rewards_alone() -> None:
    rewards = [np.array([1.0, 2.0]), np.array([0.0])]

    remax_credit(rewards, greedy_return=1.0)
    pass_at_k_credit(rewards)
    rloo_credit(rewards)

    np.testing.assert_array_equal(rewards[0], [1.0, 2.0])
