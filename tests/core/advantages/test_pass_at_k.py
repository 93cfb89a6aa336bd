"""Tests for `longhaul_core.advantages.pass_at_k`."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages.pass_at_k import pass_at_k_credit
from longhaul_core.errors import GroupError

eighths = st.integers(-80, 80).map(lambda number: number / 8)
returns_lists = st.lists(eighths, min_size=2, max_size=7)


def advantages_of(
    returns: list[float], *, k: int | None = None, scale_by_std: bool = False
) -> list[float]:
    credits = pass_at_k_credit(
        [np.array([value]) for value in returns], k=k, scale_by_std=scale_by_std
    )
    return [credit.episode_advantage for credit in credits]


@pytest.mark.parametrize(
    ("k", "expected"),
    [
        # pairs with each other: 4 beats 1, 0, 2 by 3, 4, 2; 2 beats 1, 0 by 1, 2; 1 beats 0 by 1
        (2, [1 / 3, 3.0, 0.0, 1.0]),
        # 4 over the best of {1,0} {1,2} {0,2}: 3, 2, 2; 2 over that of {1,0}: 1; 1 over none
        (3, [0.0, 7 / 3, 0.0, 1 / 3]),
        # 4 over the best of all others, 2
        (4, [0.0, 2.0, 0.0, 0.0]),
        (None, [0.0, 2.0, 0.0, 0.0]),
    ],
)
def test_matches_the_hand_worked_group(k: int | None, expected: list[float]) -> None:
    np.testing.assert_allclose(advantages_of([1.0, 4.0, 0.0, 2.0], k=k), expected)


def test_scaling_divides_by_the_deviation_of_the_returns() -> None:
    # returns 1, 0, 0, 0: mean 1/4, sample variance (9 + 1 + 1 + 1) / 16 / 3 = 1/4, std 1/2
    np.testing.assert_allclose(
        advantages_of([1.0, 0.0, 0.0, 0.0], scale_by_std=True), [2.0, 0.0, 0.0, 0.0], atol=1e-5
    )


def test_two_that_both_solve_a_task_have_nothing_to_add() -> None:
    assert advantages_of([1.0, 1.0, 0.0]) == [0.0, 0.0, 0.0]


def test_every_step_gets_the_advantage_of_its_episode() -> None:
    first, second = pass_at_k_credit(
        [np.array([0.0, 2.0]), np.array([1.0])], scale_by_std=False, discount=0.5
    )

    assert first.advantages == (1.0, 1.0)
    assert first.returns_to_go == (1.0, 2.0)
    assert second.advantages == (0.0,)


@given(returns_lists, st.data())
def test_agrees_with_the_definition(returns: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(2, len(returns)))

    expected: list[float] = []
    for place, own in enumerate(returns):
        others = returns[:place] + returns[place + 1 :]
        leads = [max(0.0, own - max(best)) for best in combinations(others, k - 1)]
        expected.append(sum(leads) / len(leads))

    np.testing.assert_allclose(advantages_of(returns, k=k), expected, atol=1e-9)


@given(returns_lists, st.booleans())
def test_no_attempt_is_worse_than_nothing(returns: list[float], scale_by_std: bool) -> None:
    assert min(advantages_of(returns, k=2, scale_by_std=scale_by_std)) >= 0.0


def test_a_large_group_is_counted_exactly() -> None:
    # C(127, 63) has 38 digits; one winner beats any 63 others by 1
    found = advantages_of([0.0] * 127 + [1.0], k=64)

    np.testing.assert_allclose(found, [0.0] * 127 + [1.0])


def test_a_group_smaller_than_k_is_refused() -> None:
    with pytest.raises(GroupError, match="k = 4 needs 4 trajectories, got 3"):
        advantages_of([1.0, 0.0, 0.0], k=4)


@pytest.mark.parametrize("k", [1, 0, -1])
def test_fewer_than_two_attempts_are_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"k must be at least 2, got {k}"):
        advantages_of([1.0, 0.0], k=k)
