"""Tests for `longhaul_core.advantages.returns`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages import returns_to_go


def test_matches_a_hand_worked_pair_of_unequal_length() -> None:
    long, short = returns_to_go([np.array([1.0, 0.0, 2.0]), np.array([3.0])], discount=0.5)

    # 2; 0 + 0.5*2 = 1; 1 + 0.5*1 = 1.5
    np.testing.assert_allclose(long, [1.5, 1.0, 2.0])
    np.testing.assert_allclose(short, [3.0])


@given(
    rewards=st.lists(st.lists(st.floats(-10, 10), min_size=1, max_size=12), min_size=1, max_size=5),
    discount=st.floats(0, 1),
)
def test_agrees_with_the_definition(rewards: list[list[float]], discount: float) -> None:
    """Check the recursion against the double sum it abbreviates."""
    found = returns_to_go([np.array(episode) for episode in rewards], discount=discount)

    for episode, returns in zip(rewards, found, strict=True):
        expected = [
            sum(discount**k * reward for k, reward in enumerate(episode[t:]))
            for t in range(len(episode))
        ]
        np.testing.assert_allclose(returns, expected, atol=1e-9)


def test_the_rewards_given_are_left_alone() -> None:
    rewards = np.array([1.0, 1.0])

    returns_to_go([rewards], discount=1.0)

    np.testing.assert_array_equal(rewards, [1.0, 1.0])


@pytest.mark.parametrize("discount", [1.5, -0.1])
def test_a_discount_outside_its_range_is_refused(discount: float) -> None:
    with pytest.raises(ValueError, match=rf"discount must lie in \[0, 1\], got {discount}"):
        returns_to_go([np.zeros(1)], discount=discount)
