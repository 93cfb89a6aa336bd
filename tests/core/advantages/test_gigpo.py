"""Tests for `longhaul_core.advantages.gigpo`."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages import EpisodeCredit
from longhaul_core.advantages.credit import FloatArray
from longhaul_core.advantages.gigpo import gigpo_credit
from longhaul_core.advantages.grpo import grpo_credit

Episode = list[tuple[float, str]]
"""Reward and anchor state of each step."""

# Eighths add up without rounding, which dividing by a deviation near 0 would magnify.
eighths = st.integers(-80, 80).map(lambda number: number / 8)
groups = st.lists(
    st.lists(st.tuples(eighths, st.sampled_from("abcd")), min_size=1, max_size=6),
    min_size=2,
    max_size=5,
)


def credits_of(
    group: list[Episode], *, discount: float = 0.9, scale_by_std: bool = True, weight: float = 1.0
) -> tuple[EpisodeCredit, ...]:
    return gigpo_credit(
        rewards_of(group),
        [[state for _, state in episode] for episode in group],
        discount=discount,
        scale_by_std=scale_by_std,
        step_advantage_weight=weight,
    )


def rewards_of(group: list[Episode]) -> list[FloatArray]:
    return [np.array([reward for reward, _ in episode]) for episode in group]


HAND_WORKED: list[Episode] = [
    [(0.0, "start"), (10.0, "door")],
    [(0.0, "start"), (0.0, "wall"), (0.0, "door")],
]
"""Two attempts: one walks to the door and is paid 10, one meets a wall and is not paid.

discount 0.95: returns-to-go 9.5, 10 | 0, 0, 0
A^S   start {9.5, 0}: mean 4.75,  4.75 | -4.75;   door {10, 0}: mean 5,  5 | -5;   wall alone: 0
      std of {9.5, 0} = 9.5 / sqrt 2, of {10, 0} = 10 / sqrt 2, so scaled: ±1/sqrt 2 = ±0.70711
A^E   per episode {10, 0}: mean 5, 5 | -5, scaled ±0.70711
      per row {10, 10, 0, 0, 0}: mean 4, 6 | -4; sample variance (2*36 + 3*16) / 4 = 30,
      std 5.47723, scaled 1.09545 | -0.73030
"""


@pytest.mark.parametrize(
    ("statistics", "scale_by_std", "episode", "step", "combined"),
    [
        ("episode", False, [5, -5], [4.75, 5, -4.75, 0, -5], [9.75, 10, -9.75, -5, -10]),
        ("row", False, [6, -4], [4.75, 5, -4.75, 0, -5], [10.75, 11, -8.75, -4, -9]),
        (
            "episode",
            True,
            [0.70711, -0.70711],
            [0.70711, 0.70711, -0.70711, 0, -0.70711],
            [1.41421, 1.41421, -1.41421, -0.70711, -1.41421],
        ),
        (
            "row",
            True,
            [1.09545, -0.73030],
            [0.70711, 0.70711, -0.70711, 0, -0.70711],
            [1.80255, 1.80255, -1.43740, -0.73030, -1.43740],
        ),
    ],
)
def test_matches_the_hand_worked_group(
    statistics: str,
    scale_by_std: bool,
    episode: list[float],
    step: list[float],
    combined: list[float],
) -> None:
    first, second = gigpo_credit(
        rewards_of(HAND_WORKED),
        [[state for _, state in attempt] for attempt in HAND_WORKED],
        discount=0.95,
        scale_by_std=scale_by_std,
        statistics="row" if statistics == "row" else "episode",
    )

    np.testing.assert_allclose(
        [first.episode_advantage, second.episode_advantage], episode, atol=1e-5
    )
    np.testing.assert_allclose(first.step_advantages + second.step_advantages, step, atol=1e-5)
    np.testing.assert_allclose(first.advantages + second.advantages, combined, atol=1e-5)
    np.testing.assert_allclose(first.returns_to_go + second.returns_to_go, [9.5, 10, 0, 0, 0])


def test_the_step_part_counts_by_its_weight() -> None:
    first, _ = credits_of(HAND_WORKED, discount=0.95, scale_by_std=False, weight=0.5)

    # 5 + 0.5 * 4.75, 5 + 0.5 * 5
    np.testing.assert_allclose(first.advantages, [7.375, 7.5])


def test_a_state_visited_twice_in_one_episode_counts_twice() -> None:
    first, second = credits_of(
        [[(0.0, "hall"), (0.0, "hall"), (3.0, "hall")], [(0.0, "hall")]],
        discount=1.0,
        scale_by_std=False,
    )

    # returns-to-go 3, 3, 3 | 0: mean 9/4
    np.testing.assert_allclose(first.step_advantages, [0.75, 0.75, 0.75])
    np.testing.assert_allclose(second.step_advantages, [-2.25])


def test_a_state_nobody_shares_has_no_step_advantage() -> None:
    first, second = credits_of([[(1.0, "a"), (2.0, "b")], [(5.0, "c")]])

    assert first.step_advantages + second.step_advantages == (0.0, 0.0, 0.0)


def test_equal_returns_in_a_state_give_exactly_zero() -> None:
    group: list[Episode] = [[(0.1, "a")], [(0.1, "a")], [(0.1, "a")]]

    assert all(credit.advantages == (0.0,) for credit in credits_of(group))


@given(groups)
def test_without_the_step_part_it_is_grpo(group: list[Episode]) -> None:
    found = credits_of(group, weight=0.0)

    for credit, grpo in zip(found, grpo_credit(rewards_of(group)), strict=True):
        assert credit.advantages == grpo.advantages


@given(groups, st.booleans())
def test_the_step_part_cancels_over_each_anchor_group(
    group: list[Episode], scale_by_std: bool
) -> None:
    sums: dict[str, float] = defaultdict(float)
    for episode, credit in zip(group, credits_of(group, scale_by_std=scale_by_std), strict=True):
        for (_, state), advantage in zip(episode, credit.step_advantages, strict=True):
            sums[state] += advantage

    assert all(abs(total) < 1e-8 for total in sums.values())


@given(groups, st.booleans())
def test_agrees_with_the_definition(group: list[Episode], scale_by_std: bool) -> None:
    """Check the vectorised form against equations 3 to 8 written out."""
    found = credits_of(group, discount=0.9, scale_by_std=scale_by_std)

    for episode, credit in zip(naive_gigpo(group, 0.9, scale_by_std), found, strict=True):
        np.testing.assert_allclose(credit.advantages, episode, rtol=1e-5, atol=1e-6)


def naive_gigpo(group: list[Episode], discount: float, scale: bool) -> list[list[float]]:
    def normal(value: float, values: list[float]) -> float:
        if max(values) == min(values):
            return 0.0
        mean = sum(values) / len(values)
        variance = sum((v - mean) ** 2 for v in values) / (len(values) - 1)
        return (value - mean) / (variance**0.5 + 1e-6) if scale else value - mean

    totals = [sum(reward for reward, _ in episode) for episode in group]
    returns = [
        [
            sum(discount**k * reward for k, (reward, _) in enumerate(episode[t:]))
            for t in range(len(episode))
        ]
        for episode in group
    ]
    met: dict[str, list[float]] = defaultdict(list)
    for episode, episode_returns in zip(group, returns, strict=True):
        for (_, state), to_go in zip(episode, episode_returns, strict=True):
            met[state].append(to_go)
    return [
        [
            normal(total, totals) + normal(to_go, met[state])
            for (_, state), to_go in zip(episode, episode_returns, strict=True)
        ]
        for episode, total, episode_returns in zip(group, totals, returns, strict=True)
    ]


def test_a_missing_anchor_state_is_refused() -> None:
    with pytest.raises(ValueError, match=r"episodes have \[2, 1\] rewards but \[1, 1\] anchor"):
        gigpo_credit([np.zeros(2), np.zeros(1)], [["a"], ["a"]], discount=1.0)


def test_states_that_are_alike_are_one_if_asked() -> None:
    rewards = [np.array([6.0]), np.array([0.0])]
    anchors = [["Room 4, 12:05"], ["Room 4, 12:06"]]

    apart = gigpo_credit(rewards, anchors, discount=1.0, scale_by_std=False)
    joined = gigpo_credit(rewards, anchors, discount=1.0, scale_by_std=False, similarity=0.9)

    # 12 of 13 characters in common: 24/26 = 0.92
    assert [credit.step_advantages for credit in apart] == [(0.0,), (0.0,)]
    assert [credit.step_advantages for credit in joined] == [(3.0,), (-3.0,)]


@given(groups)
def test_states_that_differ_enough_stay_apart_by_similarity(group: list[Episode]) -> None:
    by_hash = credits_of(group)
    by_similarity = gigpo_credit(
        rewards_of(group),
        [[state for _, state in episode] for episode in group],
        discount=0.9,
        similarity=0.5,
    )

    assert by_similarity == by_hash
