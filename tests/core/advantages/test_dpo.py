"""Tests for `longhaul_core.advantages.dpo` and `longhaul_core.advantages.preferences`."""

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages.dpo import dpo_credit
from longhaul_core.advantages.estimator import Group
from longhaul_core.advantages.preferences import (
    Choice,
    Preferences,
    PreferenceSettings,
    pair_losses,
    paired,
    paired_steps,
)
from longhaul_core.errors import GroupError

HALF = PreferenceSettings(beta=0.5, pairs_per_task=2)


def group(
    returns: list[float], gains: list[float], settings: PreferenceSettings = HALF, tokens: int = 3
) -> Group:
    """Episodes of two steps, the second of which pays."""
    return Group(
        name="a",
        step_rewards=[np.array([0.0, value]) for value in returns],
        anchor_states=[["", ""]] * len(returns),
        final_states=[None] * len(returns),
        num_action_tokens=[[tokens, 1]] * len(returns),
        preferences=Preferences(settings=settings, gains=[[gain, 0.0] for gain in gains]),
    )


def advantages(*groups: Group) -> list[list[float]]:
    return [[episode.episode_advantage for episode in of_group] for of_group in dpo_credit(groups)]


def test_matches_the_hand_worked_pairs() -> None:
    # m of (0, 1) = 0.5 (0.5 - 0.1) = 0.2, of (0, 2) = 0.5 (0.5 + 0.3) = 0.4, of the other group 0;
    # σ(-m) = 0.450166, 0.401312, 0.5; N/P = 5/3
    found = advantages(group([1.0, 0.0, 0.5], [0.5, 0.1, -0.3]), group([0.0, 2.0], [1.0, 1.0]))

    won, lost = 0.450166 * 0.5 * 5 / 3, 0.401312 * 0.5 * 5 / 3
    assert found[0] == pytest.approx([won + lost, -won, -lost], abs=1e-6)
    assert found[1] == pytest.approx([-0.25 * 5 / 3, 0.25 * 5 / 3])


def test_every_step_of_an_episode_has_its_advantage_and_returns_are_recorded() -> None:
    ((better, worse),) = dpo_credit([group([1.0, 0.0], [0.0, 0.0])], discount=0.5)

    assert better.advantages == (0.5, 0.5)  # β σ(0) = 0.25, by the factor N/P = 2
    assert worse.advantages == (-0.5, -0.5)
    assert (better.step_advantages, better.returns_to_go) == ((0.0, 0.0), (0.5, 1.0))


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(-40, 40)),
            min_size=2,
            max_size=5,
        ),
        min_size=1,
        max_size=4,
    ),
    st.floats(0.01, 2),
    st.integers(1, 4),
    st.sampled_from([1e-6, 0.3, 0.5]),
)
def test_is_the_naive_sum_over_pairs(
    episodes: list[list[tuple[float, float]]], beta: float, most: int, min_gap: float
) -> None:
    settings = PreferenceSettings(beta=beta, pairs_per_task=most, min_gap=min_gap)
    groups = [
        group([r for r, _ in each], [gain for _, gain in each], settings) for each in episodes
    ]

    found = advantages(*groups)

    expected = [[0.0] * len(each) for each in episodes]
    pairs: list[tuple[int, int, int]] = []
    for place, each in enumerate(episodes):
        best = next(k for k, one in enumerate(each) if one[0] == max(r for r, _ in each))
        worse = [k for k, one in enumerate(each) if each[best][0] - one[0] >= min_gap]
        for k in sorted(worse, key=lambda k: each[k][0])[:most]:
            pairs.append((place, best, k))
    for place, best, k in pairs:
        margin = beta * (episodes[place][best][1] - episodes[place][k][1])
        part = beta / (1 + exp(margin)) * sum(map(len, episodes)) / len(pairs)
        expected[place][best] += part
        expected[place][k] -= part
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12)
    assert sum(map(sum, found)) == pytest.approx(0.0, abs=1e-9)  # what is won is lost


def test_a_settled_pair_pushes_no_more_and_a_turned_one_with_all_of_beta() -> None:
    assert advantages(group([1.0, 0.0], [5000.0, -5000.0])) == [[0.0, 0.0]]
    assert advantages(group([1.0, 0.0], [-5000.0, 5000.0])) == [[1.0, -1.0]]
    assert pair_losses([0.0, 5000.0, -5000.0]).tolist() == [log(2), 0.0, 5000.0]


@pytest.mark.parametrize(
    ("returns", "settings", "pairs"),
    [
        ([0.0, 1.0, 1.0, 0.5], PreferenceSettings(pairs_per_task=3), [(1, 0), (1, 3)]),
        ([1.0, 0.5, 0.25, 0.25], PreferenceSettings(), [(0, 2)]),
        ([1.0, 0.5, 0.75], PreferenceSettings(min_gap=0.5, pairs_per_task=2), [(0, 1)]),
        # a sum of the same rewards in another order
        ([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1], PreferenceSettings(), []),
        ([0.3, 0.1 + 0.1], PreferenceSettings(min_gap=0.1), [(0, 1)]),
        ([1.0], PreferenceSettings(), []),
        ([], PreferenceSettings(), []),
    ],
)
def test_the_best_is_paired_with_the_worst_by_enough(
    returns: list[float], settings: PreferenceSettings, pairs: list[tuple[int, int]]
) -> None:
    assert paired(returns, settings) == pairs


def test_a_group_without_a_pair_has_no_advantage_and_changes_that_of_no_pair() -> None:
    alone = advantages(group([1.0, 0.0], [0.1, 0.0]))
    beside = advantages(group([1.0, 1.0], [3.0, 0.0]), group([1.0, 0.0], [0.1, 0.0]))

    assert beside[0] == [0.0, 0.0]
    # by the weight 1/N of a token both are the same
    assert np.array(beside[1]) / 4 == pytest.approx(np.array(alone[0]) / 2)
    assert advantages(group([1.0, 1.0], [3.0, 0.0])) == [[0.0, 0.0]]


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(GroupError, match="at least 2"):
        dpo_credit([group([1.0], [0.0])])
    with pytest.raises(ValueError, match=r"\[2, 2\] steps need a gain .* for each step, got \[2\]"):
        dpo_credit([group([1.0, 0.0], [0.0])])
    with pytest.raises(ValueError, match="gain over the reference"):
        dpo_credit([group([1.0, 0.0], [0.0, float("nan")])])


def test_matches_the_hand_worked_pairs_of_steps() -> None:
    # Three episodes. In state s "left" was followed by 1 and by 0, "right" by 0.25, "up" by 0:
    # worth 0.5, 0.25 and 0. In t two actions were followed by equal returns; u was seen once.
    choices = [
        [Choice("s", "left"), Choice("t", "go")],
        [Choice("s", "right"), Choice("t", "stay"), Choice("s", "left")],
        [Choice("s", "up"), Choice("u", "go"), Choice("", "right")],
    ]
    rewards = [np.array([0.0, 1.0]), np.array([0.25, 0.0, 0.0]), np.zeros(3)]
    gains = [[0.5, 9.0], [0.1, 9.0, 9.0], [-0.3, 9.0, 9.0]]
    settings = PreferenceSettings(beta=0.5, pairs="steps", pairs_per_task=2)
    of_steps = Group(
        name="a",
        step_rewards=rewards,
        anchor_states=[["", ""], ["", "", ""], ["", "", ""]],
        final_states=[None] * 3,
        num_action_tokens=[[1, 1], [1, 1, 1], [1, 1, 1]],
        preferences=Preferences(settings=settings, gains=gains, choices=choices),
    )

    ((first, second, third),) = dpo_credit([of_steps])

    # t: "go" is worth 1 and "stay" 0, a third pair, of the margin 0. In s m = 0.5 (0.5 + 0.3) = 0.4
    # against "up" and 0.2 against "right"; σ(-m) = 0.401312, 0.450166, 0.5; N/P = 3/3
    up, right, stay = 0.401312 * 0.5, 0.450166 * 0.5, 0.25
    assert first.advantages == pytest.approx((up + right, stay), abs=1e-6)
    assert second.advantages == pytest.approx((-right, -stay, 0), abs=1e-6)
    assert third.advantages == pytest.approx((-up, 0, 0), abs=1e-6)
    assert first.step_advantages == first.advantages
    assert first.episode_advantage == 0


@pytest.mark.parametrize(
    ("most", "least", "expected"),
    [
        (2, 1e-6, [((0, 0), (2, 0)), ((0, 0), (1, 0))]),
        (1, 1e-6, [((0, 0), (2, 0))]),
        (2, 0.5, [((0, 0), (2, 0))]),
        (2, 1.5, []),
    ],
)
def test_pairs_of_steps_are_of_the_best_action_and_the_worse_ones(
    most: int, least: float, expected: list[tuple[tuple[int, int], tuple[int, int]]]
) -> None:
    settings = PreferenceSettings(pairs="steps", pairs_per_task=most, min_gap=least)
    choices = [[Choice("s", action)] for action in ("a", "b", "c", "a")]

    found = paired_steps([[1.0], [0.75], [0.0], [1.0]], choices, settings)

    assert found == expected


def test_steps_are_compared_in_one_state_with_one_prompt_alone() -> None:
    settings = PreferenceSettings(pairs="steps")
    apart = [[Choice("s read this", "a")], [Choice("s read that", "b")], [Choice("", "c")]]
    same = [[Choice("s", "a")], [Choice("s", "a")]]

    assert paired_steps([[1.0], [0.0], [0.0]], apart, settings) == []
    assert paired_steps([[1.0], [0.0]], same, settings) == []
