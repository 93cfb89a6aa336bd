"""Tests for `longhaul_core.advantages.whiten`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages import whitened
from longhaul_core.advantages.whiten import step_counts

eighths = st.integers(-80, 80).map(lambda number: number / 8)
counted = st.lists(st.tuples(eighths, st.integers(0, 4)), min_size=1, max_size=8).filter(
    lambda pairs: sum(count for _, count in pairs) > 1
)


def test_matches_the_hand_worked_values() -> None:
    found = whitened(np.array([5.0, 1.0, 1.0]), np.array([1.0, 2.0, 1.0]))

    # 5 1 1 1: mean 2, centered 3 | -1, sample variance (9 + 1 + 1 + 1) / 3 = 4
    np.testing.assert_allclose(found, [1.5, -0.5, -0.5])


@given(counted)
def test_counting_twice_is_being_there_twice(pairs: list[tuple[float, int]]) -> None:
    repeated = [value for value, count in pairs for _ in range(count)]
    mean = sum(repeated) / len(repeated)
    variance = sum((value - mean) ** 2 for value in repeated) / (len(repeated) - 1)

    found = whitened(
        np.array([value for value, _ in pairs]), np.array([float(count) for _, count in pairs])
    )

    np.testing.assert_allclose(
        found, [(value - mean) / (variance + 1e-8) ** 0.5 for value, _ in pairs], atol=1e-6
    )


@given(counted, st.floats(-1000, 1000))
def test_what_counts_nothing_moves_nothing(pairs: list[tuple[float, int]], other: float) -> None:
    values, counts = np.array(pairs, dtype=np.float64).T

    padded = whitened(np.array([other, *values]), np.array([0.0, *counts]))

    np.testing.assert_allclose(padded[1:], whitened(values, counts), rtol=1e-6, atol=1e-9)


def test_equal_values_give_exactly_zero() -> None:
    assert whitened(np.full(3, 0.1), np.array([1.0, 5.0, 1.0])).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("count", [0.0, 1.0, 0.1 + 0.2 + 0.7])
def test_a_single_thing_has_nothing_to_be_compared_with(count: float) -> None:
    assert whitened(np.array([1.0]), np.array([count])).tolist() == [0.0]


def test_steps_count_by_their_tokens_or_by_their_share_of_an_episode() -> None:
    tokens = [[2, 0, 6], [5], [0]]

    np.testing.assert_allclose(step_counts(tokens, whiten="token"), [2, 0, 6, 5, 0])
    np.testing.assert_allclose(step_counts(tokens, whiten="episode"), [0.25, 0, 0.75, 1, 0])


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ValueError, match="of episode 1 must not be negative, got -3"):
        step_counts([[1], [2, -3]], whiten="token")
