"""Tests for `longhaul_core.evaluation.paired`."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.evaluation import (
    cluster_bootstrap_difference,
    cluster_t_difference,
    mean_interval,
    paired_difference,
    paired_t_p_value,
    sign_test_p_value,
)


def test_a_paired_difference_matches_the_hand_worked_one() -> None:
    before = {"a": 0.0, "b": 1.0, "c": 0.0, "d": 0.0}
    after = {"d": 0.0, "c": 1.0, "b": 1.0, "a": 1.0}

    found = paired_difference(before, after)

    # differences 1, 0, 1, 0: mean 0.5, s² = 4 * 0.25 / 3 = 1/3, s / sqrt 4 = 0.288675
    # t(3) = 3.182446, half = 0.918693
    assert found.estimate == 0.5
    assert found.low == pytest.approx(-0.418693, abs=1e-6)
    assert found.high == pytest.approx(1.418693, abs=1e-6)
    assert found.num_units == 4


def test_the_interval_of_a_mean_matches_the_hand_worked_one() -> None:
    found = mean_interval(np.array([1.0, 2.0, 6.0]))

    # mean 3, s² = (4 + 1 + 9) / 2 = 7, s / sqrt 3 = 1.527525; t(2) = 4.302653, half = 6.572410
    assert found.estimate == 3.0
    assert (found.low, found.high) == pytest.approx((3 - 6.572410, 3 + 6.572410), abs=1e-5)
    assert found.num_units == 3


def test_pairing_is_narrower_than_the_spread_between_tasks() -> None:
    before = {str(task): float(task) for task in range(20)}
    after = {str(task): float(task) + 1.0 for task in range(20)}

    found = paired_difference(before, after)

    assert (found.low, found.high) == pytest.approx((1.0, 1.0))


def test_three_seeds_match_the_hand_worked_interval() -> None:
    runs = [np.array([1.0, 0.0]), np.array([1.0, 1.0]), np.array([0.0, 0.0, 0.0, 0.0])]

    found = cluster_t_difference(runs)

    # means 0.5, 1, 0: mean 0.5, s = 0.5, s / sqrt 3 = 0.288675; t(2) = 4.302653
    # half = 1.242069; a run counts the same however many tasks it has
    assert found.estimate == 0.5
    assert found.low == pytest.approx(0.5 - 1.242069, abs=1e-6)
    assert found.high == pytest.approx(0.5 + 1.242069, abs=1e-6)
    assert found.num_units == 3


def test_the_bootstrap_of_two_constant_runs_has_the_three_means_it_can_have() -> None:
    runs = [np.zeros(5), np.ones(5)]

    # Drawn runs: 00, 01, 10, 11 with means 0, 1/2, 1/2, 1, a quarter each.
    wide = cluster_bootstrap_difference(runs, seed=0, confidence=0.95)
    narrow = cluster_bootstrap_difference(runs, seed=0, confidence=0.4)

    assert (wide.estimate, wide.low, wide.high) == (0.5, 0.0, 1.0)
    assert (narrow.low, narrow.high) == (0.5, 0.5)


def test_the_bootstrap_agrees_with_the_known_spread_of_a_mean() -> None:
    random = np.random.default_rng(1)
    runs = [random.normal(size=200) for _ in range(40)]

    found = cluster_bootstrap_difference(runs, seed=2, num_resamples=2000)

    # Standard error of 8,000 unit normals: sqrt(1/8000); runs add as much again, since
    # their means differ by sampling alone: about 1.96 * sqrt(2/8000) = 0.031 each way.
    assert found.high - found.low == pytest.approx(2 * 0.031, rel=0.25)


def test_the_bootstrap_repeats_under_its_seed() -> None:
    runs = [np.array([0.0, 1.0, 1.0]), np.array([1.0, 0.0, 0.0])]

    first = cluster_bootstrap_difference(runs, seed=7, num_resamples=200)

    assert cluster_bootstrap_difference(runs, seed=7, num_resamples=200) == first


@given(st.lists(st.lists(st.integers(-4, 4), min_size=1, max_size=6), min_size=2, max_size=5))
def test_both_intervals_hold_the_mean_of_the_runs(differences: list[list[int]]) -> None:
    runs = [np.array(values, dtype=np.float64) for values in differences]
    mean = float(np.mean([values.mean() for values in runs]))

    by_t = cluster_t_difference(runs)

    assert by_t.estimate == pytest.approx(mean)
    assert by_t.low <= by_t.estimate <= by_t.high
    assert cluster_bootstrap_difference(runs, seed=0, num_resamples=100).estimate == by_t.estimate


def test_tasks_without_a_partner_are_named() -> None:
    with pytest.raises(ValueError, match=r"2 tasks have a result on one side only: \['a', 'c'\]"):
        paired_difference({"a": 1.0, "b": 1.0}, {"b": 1.0, "c": 1.0})


def test_one_task_gives_no_interval() -> None:
    with pytest.raises(ValueError, match="at least 2 independent units, got 1"):
        paired_difference({"a": 1.0}, {"a": 0.0})


def test_one_run_gives_no_interval_over_runs() -> None:
    with pytest.raises(ValueError, match="at least 2 runs, got 1"):
        cluster_t_difference([np.ones(64)])


def test_a_result_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="must be finite, got nan"):
        paired_difference({"a": float("nan"), "b": 0.0}, {"a": 0.0, "b": 0.0})


def test_p_values_match_the_hand_worked_ones() -> None:
    before = {"a": 0.0, "b": 1.0, "c": 0.0, "d": 0.0}
    after = {"d": 0.0, "c": 1.0, "b": 1.0, "a": 1.0}

    # t = 0.5 / 0.288675 = 1.732051 with 3 degrees of freedom: 2 (1 - 0.909155)
    assert paired_t_p_value(before, after) == pytest.approx(0.181690, abs=1e-6)
    assert sign_test_p_value(2, 0) == 0.5
    assert sign_test_p_value(9, 1) == pytest.approx(2 * 11 / 1024)
    assert sign_test_p_value(3, 3) == sign_test_p_value(0, 0) == 1.0
    # A large panel: sqrt(2 / (pi n)) of the ways are the even split itself, by Stirling.
    assert sign_test_p_value(10_000, 10_000) == 1.0
    assert sign_test_p_value(9_999, 10_001) == pytest.approx(1 - (2 / math.pi / 20_000) ** 0.5)
    assert sign_test_p_value(0, 1_000) == 2.0**-999
    assert sign_test_p_value(0, 2_000) == 0.0


def test_p_values_without_any_spread_are_1_and_0() -> None:
    tasks = {"a": 0.5, "b": 0.25}

    assert paired_t_p_value(tasks, tasks) == 1.0
    assert paired_t_p_value(tasks, {task: value + 1.0 for task, value in tasks.items()}) == 0.0
    with pytest.raises(ValueError, match="-1"):
        sign_test_p_value(-1, 2)


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=2, max_size=12),
    st.floats(0.5, 0.99),
)
def test_p_is_small_where_the_interval_leaves_out_zero(
    pairs: list[tuple[float, float]], confidence: float
) -> None:
    before = {str(task): pair[0] for task, pair in enumerate(pairs)}
    after = {str(task): pair[1] for task, pair in enumerate(pairs)}

    p = paired_t_p_value(before, after)
    interval = paired_difference(before, after, confidence=confidence)

    assert 0.0 <= p <= 1.0
    if abs(p - (1 - confidence)) > 1e-6:
        assert (p < 1 - confidence) == (interval.low > 0 or interval.high < 0)


@given(st.integers(0, 15), st.integers(0, 15))
def test_the_sign_test_counts_splits_as_uneven(up: int, down: int) -> None:
    """By listing every way in which the tasks could have flipped."""
    total = up + down
    if total > 12:
        return
    uneven = sum(
        min(ones, total - ones) <= min(up, down)
        for ones in (bin(way).count("1") for way in range(2**total))
    )

    assert sign_test_p_value(up, down) == pytest.approx(uneven / 2**total)
