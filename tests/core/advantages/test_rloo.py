"""Tests for `longhaul_core.advantages.rloo` and `longhaul_core.advantages.drgrpo`."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.advantages.drgrpo import drgrpo_credit
from longhaul_core.advantages.rloo import rloo_credit

groups = st.lists(st.lists(st.floats(-10, 10), min_size=1, max_size=6), min_size=2, max_size=6)


def episodes(*rewards: list[float]) -> list[FloatArray]:
    return [np.array(episode) for episode in rewards]


def test_the_others_are_the_baseline() -> None:
    # returns 3, 1, 2, 0; means of the others 1, 5/3, 4/3, 2
    credits = rloo_credit(episodes([1.0, 2.0], [1.0], [0.0, 2.0, 0.0], [0.0]), discount=0.5)

    np.testing.assert_allclose(
        [credit.episode_advantage for credit in credits], [2.0, -2 / 3, 2 / 3, -2.0]
    )
    np.testing.assert_allclose(credits[2].advantages, [2 / 3] * 3)
    assert credits[2].step_advantages == (0.0, 0.0, 0.0)
    assert credits[2].returns_to_go == (1.0, 2.0, 0.0)


def test_drgrpo_takes_off_the_mean_and_divides_by_nothing() -> None:
    # returns 3, 1, 2, 0; mean 3/2
    credits = drgrpo_credit(episodes([1.0, 2.0], [1.0], [0.0, 2.0, 0.0], [0.0]))

    assert [credit.episode_advantage for credit in credits] == [1.5, -0.5, 0.5, -1.5]
    assert credits[2].advantages == (0.5, 0.5, 0.5)


def test_drgrpo_lets_a_task_of_small_differences_count_little() -> None:
    big = drgrpo_credit(episodes([8.0], [0.0]))
    small = drgrpo_credit(episodes([0.25], [0.0]))

    assert (big[0].episode_advantage, small[0].episode_advantage) == (4.0, 0.125)


@given(groups)
def test_rloo_agrees_with_the_definition(rewards: list[list[float]]) -> None:
    returns = [sum(episode) for episode in rewards]
    expected = [
        own - sum(returns[:place] + returns[place + 1 :]) / (len(returns) - 1)
        for place, own in enumerate(returns)
    ]

    np.testing.assert_allclose(
        [credit.episode_advantage for credit in rloo_credit(episodes(*rewards))],
        expected,
        atol=1e-9,
    )


@given(groups)
def test_drgrpo_agrees_with_the_definition(rewards: list[list[float]]) -> None:
    returns = [sum(episode) for episode in rewards]

    np.testing.assert_allclose(
        [credit.episode_advantage for credit in drgrpo_credit(episodes(*rewards))],
        [own - sum(returns) / len(returns) for own in returns],
        atol=1e-9,
    )


@given(groups)
def test_rloo_is_drgrpo_times_a_factor_of_the_group_size(rewards: list[list[float]]) -> None:
    factor = len(rewards) / (len(rewards) - 1)

    for rloo, drgrpo in zip(
        rloo_credit(episodes(*rewards)), drgrpo_credit(episodes(*rewards)), strict=True
    ):
        np.testing.assert_allclose(
            rloo.episode_advantage, factor * drgrpo.episode_advantage, atol=1e-9
        )
