"""Tests for `longhaul_core.advantages.reinforce`."""

from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages import Whiten
from longhaul_core.advantages.credit import FloatArray
from longhaul_core.advantages.reinforce import (
    reinforce_plus_plus_baseline_credit,
    reinforce_plus_plus_credit,
)
from longhaul_core.errors import GroupError

Step = tuple[float, int]
"""Reward, and the tokens of the action."""

eighths = st.integers(-80, 80).map(lambda number: number / 8)
batches = st.lists(
    st.lists(st.tuples(eighths, st.integers(1, 4)), min_size=1, max_size=5),
    min_size=2,
    max_size=6,
)
UNITS: list[Whiten] = ["token", "episode"]


def rewards_of(batch: list[list[Step]]) -> list[FloatArray]:
    return [np.array([reward for reward, _ in episode]) for episode in batch]


def tokens_of(batch: list[list[Step]]) -> list[list[int]]:
    return [[tokens for _, tokens in episode] for episode in batch]


HAND_WORKED: list[list[Step]] = [[(0.0, 1), (4.0, 1)], [(0.0, 2)]]
"""Two episodes of one token a step and of two tokens; discount 1/2.

returns-to-go 2, 4 | 0
by token    2, 4, 0, 0: mean 3/2; centered 1/2, 5/2, -3/2, -3/2
            sample variance (1 + 25 + 9 + 9) / 4 / 3 = 11/3
by episode  (2 + 4) / 2 = 3 and 0: mean 3/2; centered as above
            (1/2 * 1/4 + 1/2 * 25/4 + 9/4) / (2 - 1) = 11/2
"""


@pytest.mark.parametrize(("whiten", "variance"), [("token", 11 / 3), ("episode", 11 / 2)])
def test_matches_the_hand_worked_batch(whiten: Whiten, variance: float) -> None:
    first, second = reinforce_plus_plus_credit(
        rewards_of(HAND_WORKED), tokens_of(HAND_WORKED), discount=0.5, whiten=whiten
    )

    np.testing.assert_allclose(
        [*first.advantages, *second.advantages],
        np.array([0.5, 2.5, -1.5]) / variance**0.5,
        rtol=1e-7,
    )
    assert first.step_advantages == first.advantages
    assert first.episode_advantage == 0.0
    assert first.returns_to_go == (2.0, 4.0)


@pytest.mark.parametrize(
    ("whiten", "expected"),
    [
        # By token 1/2 over 4, -1/2 over 2, 3 over 1, -3 over 1: mean (2 - 1) / 8 = 1/8;
        # centered 3/8, -5/8, 23/8, -25/8; variance (4*9 + 2*25 + 529 + 625) / 64 / 7 = 155/56
        ("token", [0.375 / 1.66369, -0.625 / 1.66369, 2.875 / 1.66369, -3.125 / 1.66369]),
        # By episode the mean is 0 and the variance (1/4 + 1/4 + 9 + 9) / 3 = 37/6
        ("episode", [0.5 / 2.48328, -0.5 / 2.48328, 3 / 2.48328, -3 / 2.48328]),
    ],
)
def test_the_baseline_form_takes_off_the_mean_of_each_task_first(
    whiten: Whiten, expected: list[float]
) -> None:
    # task a: returns 1, 0, mean 1/2; task b: returns 6, 0, mean 3; the task's steps lie apart
    credits = reinforce_plus_plus_baseline_credit(
        [np.array([0.0, 1.0]), np.array([6.0]), np.array([0.0]), np.array([0.0])],
        [[3, 1], [1], [2], [1]],
        ["a", "b", "a", "b"],
        whiten=whiten,
    )

    order = [0, 2, 1, 3]
    np.testing.assert_allclose(
        [credits[place].episode_advantage for place in order], expected, rtol=1e-5
    )
    assert credits[0].advantages == (credits[0].episode_advantage,) * 2
    assert credits[0].step_advantages == (0.0, 0.0)


@given(batches, st.sampled_from(UNITS), st.floats(0, 1))
def test_agrees_with_the_definition(
    batch: list[list[Step]], whiten: Whiten, discount: float
) -> None:
    found = reinforce_plus_plus_credit(
        rewards_of(batch), tokens_of(batch), discount=discount, whiten=whiten
    )

    returns = [
        [
            sum(discount**k * reward for k, (reward, _) in enumerate(episode[t:]))
            for t in range(len(episode))
        ]
        for episode in batch
    ]
    expected = naive_whitening(returns, tokens_of(batch), by_episode=whiten == "episode")
    for credit, episode in zip(found, expected, strict=True):
        np.testing.assert_allclose(credit.advantages, episode, rtol=1e-5, atol=1e-6)


@given(batches, st.sampled_from(UNITS), st.data())
def test_the_baseline_form_agrees_with_the_definition(
    batch: list[list[Step]], whiten: Whiten, data: st.DataObject
) -> None:
    batch = [*batch, *batch[::-1]]  # at least two of each task
    half = len(batch) // 2
    names = data.draw(st.lists(st.sampled_from("xyz"), min_size=half, max_size=half))
    groups = [*names, *names[::-1]]

    found = reinforce_plus_plus_baseline_credit(
        rewards_of(batch), tokens_of(batch), groups, whiten=whiten
    )

    totals = [sum(reward for reward, _ in episode) for episode in batch]
    differences = [
        total - fmean(t for t, other in zip(totals, groups, strict=True) if other == group)
        for total, group in zip(totals, groups, strict=True)
    ]
    spread = [[d] * len(episode) for d, episode in zip(differences, batch, strict=True)]
    expected = naive_whitening(spread, tokens_of(batch), by_episode=whiten == "episode")
    for credit, episode in zip(found, expected, strict=True):
        np.testing.assert_allclose(credit.advantages, episode, rtol=1e-5, atol=1e-5)


def naive_whitening(
    values: list[list[float]], tokens: list[list[int]], *, by_episode: bool
) -> list[list[float]]:
    """Token by token, each with its share."""
    shares: list[tuple[float, float]] = []
    for episode, counts in zip(values, tokens, strict=True):
        for value, count in zip(episode, counts, strict=True):
            shares += [(value, 1 / sum(counts) if by_episode else 1.0)] * count
    total = sum(share for _, share in shares)
    mean = sum(share * value for value, share in shares) / total
    variance = sum(share * (value - mean) ** 2 for value, share in shares) / (total - 1)
    return [[(value - mean) / (variance + 1e-8) ** 0.5 for value in episode] for episode in values]


@given(batches, st.sampled_from(UNITS), eighths)
def test_a_reward_at_the_end_of_every_episode_changes_nothing(
    batch: list[list[Step]], whiten: Whiten, bonus: float
) -> None:
    paid = [[*ep[:-1], (ep[-1][0] + bonus, ep[-1][1])] for ep in batch]

    for before, after in zip(
        reinforce_plus_plus_credit(rewards_of(batch), tokens_of(batch), whiten=whiten),
        reinforce_plus_plus_credit(rewards_of(paid), tokens_of(paid), whiten=whiten),
        strict=True,
    ):
        np.testing.assert_allclose(after.advantages, before.advantages, rtol=1e-6, atol=1e-8)


@given(batches, st.sampled_from(UNITS))
def test_a_step_without_tokens_moves_no_statistic(batch: list[list[Step]], whiten: Whiten) -> None:
    longer = [[*episode, (0.0, 0)] for episode in batch]

    for before, after in zip(
        reinforce_plus_plus_credit(rewards_of(batch), tokens_of(batch), whiten=whiten),
        reinforce_plus_plus_credit(rewards_of(longer), tokens_of(longer), whiten=whiten),
        strict=True,
    ):
        np.testing.assert_allclose(after.advantages[:-1], before.advantages, atol=1e-9)


def test_an_easy_task_counts_against_the_whole_step_and_not_against_itself() -> None:
    credits = reinforce_plus_plus_credit(
        [np.array([1.0]), np.array([1.0]), np.array([0.0]), np.array([0.0])], [[1]] * 4
    )
    baseline = reinforce_plus_plus_baseline_credit(
        [np.array([1.0]), np.array([1.0]), np.array([0.0]), np.array([0.0])],
        [[1]] * 4,
        ["easy", "easy", "hard", "hard"],
    )

    # 1 1 0 0: centered ±1/2, variance (4 / 4) / 3 = 1/3
    np.testing.assert_allclose(
        [credit.advantages[0] for credit in credits],
        np.array([0.5, 0.5, -0.5, -0.5]) * 3**0.5,
        rtol=1e-6,
    )
    assert [credit.advantages for credit in baseline] == [(0.0,)] * 4


def test_a_lone_attempt_of_a_group_is_named() -> None:
    with pytest.raises(GroupError, match="at least 2 trajectories to compare, got 1 in group 'b'"):
        reinforce_plus_plus_baseline_credit([np.ones(1)] * 3, [[1]] * 3, ["a", "b", "a"])


def test_a_missing_group_is_refused() -> None:
    with pytest.raises(ValueError, match="got 3 episodes and 2 groups"):
        reinforce_plus_plus_baseline_credit([np.ones(1)] * 3, [[1]] * 3, ["a", "b"])
