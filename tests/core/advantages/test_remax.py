"""Tests for `longhaul_core.advantages.remax`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages.remax import remax_credit


def test_the_greedy_return_is_the_baseline() -> None:
    # returns 3, 1, 2 against 2
    credits = remax_credit(
        [np.array([1.0, 2.0]), np.array([1.0]), np.array([0.0, 2.0])],
        greedy_return=2.0,
        discount=0.5,
    )

    assert [credit.advantages for credit in credits] == [(1.0, 1.0), (-1.0,), (0.0, 0.0)]
    assert credits[0].episode_advantage == 1.0
    assert credits[0].step_advantages == (0.0, 0.0)
    assert credits[0].returns_to_go == (2.0, 2.0)


@given(st.lists(st.lists(st.floats(-10, 10), min_size=1), min_size=1), st.floats(-10, 10))
def test_agrees_with_the_definition(rewards: list[list[float]], greedy: float) -> None:
    credits = remax_credit([np.array(episode) for episode in rewards], greedy_return=greedy)

    np.testing.assert_allclose(
        [credit.episode_advantage for credit in credits],
        [sum(episode) - greedy for episode in rewards],
        atol=1e-9,
    )


def test_one_episode_is_enough() -> None:
    (credit,) = remax_credit([np.array([5.0])], greedy_return=1.0)

    assert credit.advantages == (4.0,)


def test_what_others_got_does_not_matter() -> None:
    alone = remax_credit([np.array([5.0])], greedy_return=1.0)
    among = remax_credit([np.array([5.0]), np.array([-9.0])], greedy_return=1.0)

    assert among[0] == alone[0]


@pytest.mark.parametrize("greedy", [float("nan"), float("inf")])
def test_a_baseline_that_is_no_number_is_refused(greedy: float) -> None:
    with pytest.raises(ValueError, match=f"greedy_return must be finite, got {greedy}"):
        remax_credit([np.array([5.0])], greedy_return=greedy)
