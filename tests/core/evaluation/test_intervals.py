"""Tests for `longhaul_core.evaluation.intervals`."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.evaluation import (
    bounded_mean_interval,
    success_rate_interval,
    success_rate_over_tasks,
)
from longhaul_core.evaluation.intervals import student_t_distribution, student_t_quantile


@pytest.mark.parametrize(
    ("degrees_of_freedom", "quantile"),
    # Table of the two-sided 95 % points, in any textbook.
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423), (127, 1.9788)],
)
def test_t_quantiles_are_those_of_the_table(degrees_of_freedom: int, quantile: float) -> None:
    found = student_t_quantile(0.975, degrees_of_freedom=degrees_of_freedom)

    assert found == pytest.approx(quantile, abs=5e-5)


def test_one_degree_of_freedom_is_the_cauchy_distribution() -> None:
    # F(1) = 1/2 + atan(1) / pi = 3/4
    assert student_t_distribution(1.0, degrees_of_freedom=1) == pytest.approx(0.75)


def test_two_degrees_of_freedom_have_a_closed_form() -> None:
    # F(t) = 1/2 + t / (2 sqrt(2 + t²)); t = sqrt 2: 1/2 + 1 / (2 sqrt 2)
    expected = 0.5 + 1 / (2 * math.sqrt(2))

    assert student_t_distribution(math.sqrt(2), degrees_of_freedom=2) == pytest.approx(expected)


def test_the_distribution_is_a_probability_far_out_too() -> None:
    found = [
        student_t_distribution(1.7**power, degrees_of_freedom=degrees_of_freedom)
        for degrees_of_freedom in range(1, 60)
        for power in range(24)
    ]
    assert max(found) == 1.0
    assert min(found) > 0.5


@given(st.floats(0.5, 0.999), st.integers(1, 60))
def test_the_quantile_undoes_the_distribution(probability: float, degrees_of_freedom: int) -> None:
    value = student_t_quantile(probability, degrees_of_freedom=degrees_of_freedom)

    assert student_t_distribution(value, degrees_of_freedom=degrees_of_freedom) == pytest.approx(
        probability, abs=1e-9
    )


def test_a_success_rate_matches_a_hand_worked_wilson_interval() -> None:
    found = success_rate_interval(8, 10)

    # z = 1.959964, z² = 3.841459; shrink = 1.3841459
    # center = (0.8 + 0.19207295) / 1.3841459 = 0.7167402
    # half = 1.959964 / 1.3841459 * sqrt(0.8*0.2/10 + 3.841459/400) = 0.2265778
    assert found.estimate == 0.8
    assert found.low == pytest.approx(0.490162, abs=1e-6)
    assert found.high == pytest.approx(0.943318, abs=1e-6)


@pytest.mark.parametrize(("successes", "low", "high"), [(0, 0.0, 0.277533), (10, 0.722467, 1.0)])
def test_no_success_and_nothing_but_success_are_not_certain(
    successes: int, low: float, high: float
) -> None:
    found = success_rate_interval(successes, 10)

    # z² / (n + z²) = 3.841459 / 13.841459 = 0.277533
    assert found.low == pytest.approx(low, abs=1e-6)
    assert found.high == pytest.approx(high, abs=1e-6)


@given(st.integers(1, 500), st.data())
def test_the_interval_holds_the_rate_and_stays_a_rate(
    num_episodes: int, data: st.DataObject
) -> None:
    found = success_rate_interval(data.draw(st.integers(0, num_episodes)), num_episodes)

    assert 0.0 <= found.low <= found.estimate <= found.high <= 1.0


@pytest.mark.parametrize(("successes", "episodes"), [(3, 2), (-1, 2), (0, 0)])
def test_impossible_counts_are_refused(successes: int, episodes: int) -> None:
    with pytest.raises(ValueError, match=r"number of successes|at least 1 episode"):
        success_rate_interval(successes, episodes)


def test_a_percentage_is_no_confidence() -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1, got 95"):
        success_rate_interval(1, 2, confidence=95)


# Several episodes of each task


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_with_one_episode_of_each_task_the_interval_is_that_of_independent_episodes(
    successes: list[bool],
) -> None:
    found = success_rate_over_tasks([[success] for success in successes])

    assert found == pytest.approx(success_rate_interval(sum(successes), len(successes)))


def test_episodes_that_only_repeat_their_task_s_result_add_nothing() -> None:
    once = [[place < 6] for place in range(10)]

    found = success_rate_over_tasks([task * 8 for task in once])

    assert found == pytest.approx(success_rate_interval(6, 10))
    assert found.num_units == 10


def test_an_interval_over_tasks_matches_a_hand_worked_one() -> None:
    found = success_rate_over_tasks([[True, True], [True, False], [False, False], [True, False]])

    # p = 4/8; x - 2p = 1, 0, -1, 0; var = 4/3 * 2 / 64 = 1/24; n_eff = (1/4) / (1/24) = 6
    # z² = 3.841459; shrink = 1 + z²/6 = 1.640243; center = 1/2
    # half = 1.959964 / 1.640243 * sqrt(1/4/6 + 3.841459/144) = 0.312384
    assert found.estimate == 0.5
    assert found.low == pytest.approx(0.5 - 0.312384, abs=1e-6)
    assert found.high == pytest.approx(0.5 + 0.312384, abs=1e-6)
    assert found.num_units == 4


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=8), min_size=1, max_size=30))
def test_an_interval_over_tasks_is_no_narrower_than_that_of_as_many_independent_episodes(
    successes: list[list[bool]],
) -> None:
    found = success_rate_over_tasks(successes)
    episodes = success_rate_interval(sum(map(sum, successes)), sum(map(len, successes)))

    assert 0.0 <= found.low <= found.estimate <= found.high <= 1.0
    assert found.estimate == episodes.estimate
    assert found.low <= episodes.low + 1e-12
    assert found.high >= episodes.high - 1e-12


@pytest.mark.parametrize("successes", [[], [[True], []]])
def test_a_task_without_an_episode_is_refused(successes: list[list[bool]]) -> None:
    with pytest.raises(ValueError, match="at least 1 task, and 1 episode of each"):
        success_rate_over_tasks(successes)


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=40))
def test_a_mean_of_zeros_and_ones_has_wilsons_interval(values: list[float]) -> None:
    expected = success_rate_interval(int(sum(values)), len(values))

    assert bounded_mean_interval(values) == pytest.approx(expected)


def test_a_mean_of_other_values_has_the_interval_of_as_many_zeros_and_ones_of_its_mean() -> None:
    assert bounded_mean_interval([0.5, 0.75, 0.75, 1.0]) == success_rate_interval(3, 4)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20))
def test_a_bounded_mean_stays_between_its_bounds(values: list[float]) -> None:
    found = bounded_mean_interval(values)

    assert 0.0 <= found.low <= found.estimate + 1e-12
    assert found.estimate - 1e-12 <= found.high <= 1.0
    assert found.low < found.high


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "at least 1 value, got none"),
        ([0.5, 1.5], r"must lie in \[0, 1\], got 0.5 to 1.5; scale them"),
        ([0.5, float("nan")], r"must lie in \[0, 1\]"),
    ],
)
def test_values_beyond_their_bounds_are_refused(values: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bounded_mean_interval(values)
