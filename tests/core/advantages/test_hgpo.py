"""Tests for `longhaul_core.advantages.hgpo`."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages import EpisodeCredit
from longhaul_core.advantages.credit import FloatArray
from longhaul_core.advantages.gigpo import gigpo_credit
from longhaul_core.advantages.hgpo import hgpo_credit

Episode = list[tuple[float, str]]
"""Reward and anchor state of each step."""

eighths = st.integers(-80, 80).map(lambda number: number / 8)
groups = st.lists(
    st.lists(st.tuples(eighths, st.sampled_from("abc")), min_size=1, max_size=6),
    min_size=2,
    max_size=5,
)


def rewards_of(group: list[Episode]) -> list[FloatArray]:
    return [np.array([reward for reward, _ in episode]) for episode in group]


def states_of(group: list[Episode]) -> list[list[str]]:
    return [[state for _, state in episode] for episode in group]


def credits_of(
    group: list[Episode],
    *,
    history: int = 2,
    exponent: float = 1.0,
    scale_by_std: bool = True,
    discount: float = 1.0,
) -> tuple[EpisodeCredit, ...]:
    return hgpo_credit(
        rewards_of(group),
        states_of(group),
        discount=discount,
        history_length=history,
        history_weight_exponent=exponent,
        scale_by_std=scale_by_std,
    )


HAND_WORKED: list[Episode] = [
    [(0.0, "start"), (0.0, "hall"), (8.0, "door")],
    [(0.0, "start"), (0.0, "hall"), (4.0, "door")],
    [(0.0, "start"), (0.0, "door")],
]
"""Three attempts; two reach the door through the hall, one directly. Nothing is discounted,
so every return-to-go of an attempt is 8, 4 or 0.

depth 0   start {8, 4, 0}: mean 4, 4 | 0 | -4     hall {8, 4}: 2 | -2     door {8, 4, 0}: 4 | 0 | -4
depth 1   start: no past; start-hall {8, 4}: 2 | -2; hall-door {8, 4}: 2 | -2; start-door alone
depth 2   start-hall-door {8, 4}: 2 | -2

weights 1, 2, 3:  start 4 | 0 | -4
                  hall  (1*2 + 2*2) / 3 = 2 | -2
                  door  (1*4 + 2*2 + 3*2) / 6 = 7/3 | (0 - 4 - 6) / 6 = -5/3 | -4
"""


def test_matches_the_hand_worked_group() -> None:
    first, second, third = credits_of(HAND_WORKED, scale_by_std=False)

    np.testing.assert_allclose(first.advantages, [4.0, 2.0, 7 / 3])
    np.testing.assert_allclose(second.advantages, [0.0, -2.0, -5 / 3])
    np.testing.assert_allclose(third.advantages, [-4.0, -4.0])
    assert first.step_advantages == first.advantages
    assert first.episode_advantage == 0.0
    assert first.returns_to_go == (8.0, 8.0, 8.0)


def test_scaling_is_by_the_deviation_of_each_group() -> None:
    first, _, third = credits_of(HAND_WORKED)

    # std of {8, 4, 0} is 4, of {8, 4} 2 sqrt 2
    np.testing.assert_allclose(first.advantages, [1.0, 0.5**0.5, (1 + 5 * 0.5**0.5) / 6], rtol=1e-5)
    np.testing.assert_allclose(third.advantages, [-1.0, -1.0], rtol=1e-5)


def test_the_form_of_the_code_is_the_hand_worked_one() -> None:
    # Weights 2, 3, 4. At the door the second attempt is average at depth 0, which is left out.
    def found(*, scale_by_std: bool) -> list[tuple[float, ...]]:
        credits = hgpo_credit(
            rewards_of(HAND_WORKED),
            states_of(HAND_WORKED),
            discount=1.0,
            history_form="code",
            scale_by_std=scale_by_std,
        )
        return [credit.advantages for credit in credits]

    door = (2 * 4 + 3 * 2 + 4 * 2) / 9
    unscaled = [(4.0, 2.0, door), (0.0, -2.0, -2.0), (-4.0, -4.0)]
    assert found(scale_by_std=False) == [pytest.approx(steps) for steps in unscaled]
    # Over n the deviation of {8, 4, 0} is sqrt(32 / 3), that of {8, 4} is 2.
    far = 4 / (32 / 3) ** 0.5
    scaled = [(far, 1.0, (2 * far + 3 + 4) / 9), (0.0, -1.0, -1.0), (-far, -far)]
    assert found(scale_by_std=True) == [pytest.approx(steps, abs=1e-5) for steps in scaled]


@pytest.mark.parametrize(
    ("history", "exponent", "door"),
    [
        (0, 1.0, 4.0),
        (1, 1.0, (4 + 2 * 2) / 3),
        (5, 1.0, 7 / 3),  # no step has so much past
        (2, 0.0, (4 + 2 + 2) / 3),
        (2, 2.0, (1 * 4 + 4 * 2 + 9 * 2) / 14),
    ],
)
def test_depth_and_exponent_weigh_the_levels(history: int, exponent: float, door: float) -> None:
    first, _, _ = credits_of(HAND_WORKED, history=history, exponent=exponent, scale_by_std=False)

    assert first.advantages[2] == pytest.approx(door)


def test_a_level_in_which_a_step_is_average_still_counts() -> None:
    # depth 0 {6, 0, 3}: the third is average; depth 1 {0, 3} makes it 3/2, weights 1 and 2
    group: list[Episode] = [
        [(6.0, "b")],
        [(0.0, "a"), (0.0, "b")],
        [(0.0, "a"), (3.0, "b")],
    ]

    third = credits_of(group, history=1, scale_by_std=False)[2]

    assert third.advantages[1] == pytest.approx((1 * 0 + 2 * 1.5) / 3)


@given(groups, st.booleans())
def test_without_a_past_it_is_the_step_part_of_gigpo(
    group: list[Episode], scale_by_std: bool
) -> None:
    found = credits_of(group, history=0, scale_by_std=scale_by_std, discount=0.5)
    gigpo = gigpo_credit(
        rewards_of(group), states_of(group), discount=0.5, scale_by_std=scale_by_std
    )

    for credit, other in zip(found, gigpo, strict=True):
        np.testing.assert_allclose(credit.advantages, other.step_advantages, atol=1e-12)


@given(groups, st.integers(0, 3), st.floats(0, 3), st.booleans())
def test_agrees_with_the_definition(
    group: list[Episode], history: int, exponent: float, scale_by_std: bool
) -> None:
    found = credits_of(
        group, history=history, exponent=exponent, scale_by_std=scale_by_std, discount=0.5
    )

    returns = [
        [
            sum(0.5**k * reward for k, (reward, _) in enumerate(episode[t:]))
            for t in range(len(episode))
        ]
        for episode in group
    ]
    pasts: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for episode, to_go in zip(group, returns, strict=True):
        for t in range(len(episode)):
            for k in range(min(history, t) + 1):
                pasts[tuple(state for _, state in episode[t - k : t + 1])].append(to_go[t])
    for credit, episode, to_go in zip(found, group, returns, strict=True):
        for t, advantage in enumerate(credit.advantages):
            total, weights = 0.0, 0.0
            for k in range(min(history, t) + 1):
                others = pasts[tuple(state for _, state in episode[t - k : t + 1])]
                if len(others) > 1:
                    total += (k + 1) ** exponent * normal(to_go[t], others, scale_by_std)
                    weights += (k + 1) ** exponent
            expected = total / weights if weights else 0.0
            assert advantage == pytest.approx(expected, rel=1e-5, abs=1e-6)


def normal(value: float, values: list[float], scale: bool) -> float:
    if max(values) == min(values):
        return 0.0
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return (value - mean) / (variance**0.5 + 1e-6) if scale else value - mean


@pytest.mark.parametrize(
    ("history", "exponent", "message"),
    [
        (-1, 1.0, "history_length must not be negative, got -1"),
        (1, -0.5, "history_weight_exponent must be finite and not negative, .*, got -0.5"),
        (1, float("nan"), "history_weight_exponent must be finite and not negative, .*, got nan"),
        (1, float("inf"), "history_weight_exponent must be finite and not negative, .*, got inf"),
    ],
)
def test_what_makes_no_sense_is_named(history: int, exponent: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        credits_of(HAND_WORKED, history=history, exponent=exponent)
