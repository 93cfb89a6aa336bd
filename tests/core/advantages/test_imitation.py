"""Tests for `longhaul_core.advantages.imitation`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.advantages.imitation import imitation_credit

rewards = st.lists(st.lists(st.floats(-10, 10), min_size=1, max_size=6), min_size=1, max_size=6)


def episodes(*of_steps: list[float]) -> list[FloatArray]:
    return [np.array(episode) for episode in of_steps]


def test_every_step_of_a_demonstration_counts_one() -> None:
    credits = imitation_credit(episodes([1.0, 2.0], [0.5], [0.0, 2.0, 0.0]), discount=0.5)

    assert [credit.advantages for credit in credits] == [(1.0, 1.0), (1.0,), (1.0, 1.0, 1.0)]
    assert [credit.episode_advantage for credit in credits] == [1.0, 1.0, 1.0]
    assert credits[2].returns_to_go == (1.0, 2.0, 0.0)


@given(rewards)
def test_no_demonstration_is_compared_with_another(of_steps: list[list[float]]) -> None:
    together = imitation_credit(episodes(*of_steps))
    alone = [imitation_credit(episodes(each))[0] for each in of_steps]

    assert list(together) == alone


def test_rewards_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        imitation_credit(episodes([1.0, float("nan")]))
