"""Tests for `longhaul_core.advantages.grpo`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages.credit import FloatArray, Statistics
from longhaul_core.advantages.grpo import grpo_credit

# Eighths add up without rounding, which dividing by a deviation near 0 would magnify.
eighths = st.integers(-80, 80).map(lambda number: number / 8)
groups = st.lists(st.lists(eighths, min_size=1, max_size=6), min_size=2, max_size=6)


def episodes(*rewards: list[float]) -> list[FloatArray]:
    return [np.array(episode) for episode in rewards]


def advantages_of(
    rewards: list[FloatArray], *, scale_by_std: bool, statistics: Statistics = "episode"
) -> list[float]:
    credits = grpo_credit(rewards, scale_by_std=scale_by_std, statistics=statistics)
    return [credit.episode_advantage for credit in credits]


def test_one_success_among_four_per_episode() -> None:
    group = episodes([0.0, 1.0], [0.0], [0.0], [0.0, 0.0, 0.0])

    # mean 1/4; centered 3/4, -1/4, -1/4, -1/4
    # sample variance (9 + 1 + 1 + 1) / 16 / 3 = 1/4, std 1/2
    np.testing.assert_allclose(
        advantages_of(group, scale_by_std=False), [0.75, -0.25, -0.25, -0.25]
    )
    np.testing.assert_allclose(
        advantages_of(group, scale_by_std=True), [1.5, -0.5, -0.5, -0.5], atol=1e-5
    )


def test_one_success_among_four_per_row() -> None:
    group = episodes([0.0, 1.0], [0.0], [0.0], [0.0, 0.0, 0.0])

    # rows 1 1 | 0 | 0 | 0 0 0: mean 2/7; centered 5/7 twice, -2/7 five times
    # sample variance (2 * 25 + 5 * 4) / 49 / 6 = 70/294 = 5/21, std 0.4879500
    np.testing.assert_allclose(
        advantages_of(group, scale_by_std=False, statistics="row"),
        [5 / 7, -2 / 7, -2 / 7, -2 / 7],
    )
    np.testing.assert_allclose(
        advantages_of(group, scale_by_std=True, statistics="row"),
        [1.4638501, -0.5855400, -0.5855400, -0.5855400],
        atol=1e-5,
    )


def test_every_step_gets_the_advantage_of_its_episode() -> None:
    first, second = grpo_credit(episodes([0.0, 2.0], [0.0]), discount=0.5, scale_by_std=False)

    assert first.advantages == (1.0, 1.0)
    assert first.step_advantages == (0.0, 0.0)
    assert first.returns_to_go == (1.0, 2.0)
    assert second.advantages == (-1.0,)


@pytest.mark.parametrize("statistics", ["episode", "row"])
@pytest.mark.parametrize("scale_by_std", [True, False])
def test_equal_returns_give_exactly_zero(statistics: Statistics, scale_by_std: bool) -> None:
    # 0.1 three times has a mean of 0.10000000000000002 in float64.
    group = episodes([0.1], [0.1], [0.1])

    assert advantages_of(group, scale_by_std=scale_by_std, statistics=statistics) == [0.0] * 3


@given(groups, st.booleans())
def test_row_advantages_cancel_over_steps(rewards: list[list[float]], scale_by_std: bool) -> None:
    credits = grpo_credit(episodes(*rewards), scale_by_std=scale_by_std, statistics="row")

    assert abs(sum(sum(credit.advantages) for credit in credits)) < 1e-8


def test_row_statistics_do_follow_length() -> None:
    short = advantages_of(episodes([1.0], [0.0]), scale_by_std=False, statistics="row")
    long = advantages_of(episodes([1.0, 0.0, 0.0], [0.0]), scale_by_std=False, statistics="row")

    # rows 1 | 0: mean 1/2.  rows 1 1 1 | 0: mean 3/4.
    np.testing.assert_allclose(short, [0.5, -0.5])
    np.testing.assert_allclose(long, [0.25, -0.75])


@given(groups)
def test_agrees_with_the_definition(rewards: list[list[float]]) -> None:
    returns = [sum(episode) for episode in rewards]
    mean = sum(returns) / len(returns)
    std = (sum((r - mean) ** 2 for r in returns) / (len(returns) - 1)) ** 0.5

    np.testing.assert_allclose(
        advantages_of(episodes(*rewards), scale_by_std=True),
        [(r - mean) / (std + 1e-6) for r in returns],
        rtol=1e-6,
        atol=1e-7,
    )
