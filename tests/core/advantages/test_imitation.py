"""Tests for `longhaul_core.advantages.imitation`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.advantages.imitation import imitation_credit
from longhaul_core.errors import GroupError

rewards = st.lists(st.lists(st.floats(0, 10), min_size=1, max_size=6), min_size=1, max_size=6)


def episodes(*of_steps: list[float]) -> list[FloatArray]:
    return [np.array(episode) for episode in of_steps]


def test_a_demonstration_counts_one_or_its_return() -> None:
    played = episodes([1.0, 2.0], [0.5], [0.0, 2.0, 0.0])

    ones = imitation_credit(played, weight="one", discount=0.5)
    returns = imitation_credit(played, weight="return", discount=0.5)

    assert [credit.advantages for credit in ones] == [(1.0, 1.0), (1.0,), (1.0, 1.0, 1.0)]
    assert [credit.advantages for credit in returns] == [(3.0, 3.0), (0.5,), (2.0, 2.0, 2.0)]
    assert ones[2].returns_to_go == returns[2].returns_to_go == (1.0, 2.0, 0.0)


@given(rewards)
def test_no_demonstration_is_compared_with_another(of_steps: list[list[float]]) -> None:
    together = imitation_credit(episodes(*of_steps), weight="return")
    alone = [imitation_credit(episodes(each), weight="return")[0] for each in of_steps]

    assert list(together) == alone


def test_a_return_below_zero_is_no_weight() -> None:
    with pytest.raises(GroupError, match=r"return -0\.5 cannot be weighed"):
        imitation_credit(episodes([1.0], [-0.5]), weight="return")

    assert imitation_credit(episodes([-0.5]), weight="one")[0].advantages == (1.0,)
