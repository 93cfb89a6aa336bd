"""Paired differences: the same tasks before and after, or under two policies.

Tasks differ in difficulty far more than policies do, so the two results of one task are
subtracted before anything is averaged. And results of one training run share its luck:
where several runs (seeds) are pooled, the run is the independent unit, not the task, and
the interval is that of the `cluster_…` functions.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from longhaul_core.evaluation.intervals import (
    Interval,
    check_confidence,
    student_t_distribution,
    student_t_quantile,
)

FloatArray = npt.NDArray[np.float64]


def paired_difference(
    before: Mapping[str, float], after: Mapping[str, float], *, confidence: float = 0.95
) -> Interval:
    r"""Mean of `after - before` over the tasks of one run, with its t interval.

        d̄ ± t(n - 1) · s / √n,   s² = Σ (d_i - d̄)² / (n - 1)

    Args:
        before: Task id to result (success as 0 or 1, or a return).
        after: The same tasks.
        confidence: Between 0 and 1.

    Raises:
        ValueError: If the tasks differ, there are fewer than 2, or a result is not finite.
    """
    return mean_interval(paired_differences(before, after), confidence=confidence)


def paired_t_p_value(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    r"""How likely so large a mean difference is where there is none, in [0, 1].

    Two-sided, by the t distribution of n - 1 degrees of freedom: it is below 1 - confidence where
    the interval of `paired_difference` leaves out 0.

    Args:
        before: Task id to result.
        after: The same tasks.

    Returns:
        1 where no result differs; 0 where all differ by the same, which leaves no deviation.

    Raises:
        ValueError: As `paired_difference`.
    """
    differences = paired_differences(before, after)
    _check_units(differences)
    deviation = float(differences.std(ddof=1))
    mean = float(differences.mean())
    if mean == 0.0:
        return 1.0
    if deviation == 0.0:
        return 0.0
    t = abs(mean) * math.sqrt(len(differences)) / deviation
    return 2 * (1 - student_t_distribution(t, degrees_of_freedom=len(differences) - 1))


def sign_test_p_value(num_up: int, num_down: int) -> float:
    r"""How likely so uneven a split of the results that differ is by chance, in [0, 1].

        p = min(1, 2 · Σ_{i ≤ min(up, down)} C(n, i) / 2^n),   n = up + down

    Two-sided and exact, for any number of tasks. For solved or not it is McNemar's exact test: of
    the tasks that flipped, as many should be lost as gained.

    Args:
        num_up: Tasks whose result rose.
        num_down: Tasks whose result fell.

    Returns:
        0 only where the probability is too small for a float, of more than a thousand flips.

    Raises:
        ValueError: If a number is negative.

    Source:
        McNemar 1947, Note on the sampling error of the difference between correlated proportions;
        exact by the binomial distribution.
    """
    if min(num_up, num_down) < 0:
        raise ValueError(f"numbers of tasks must not be negative, got {num_up} and {num_down}")
    total = num_up + num_down
    tail = ways = 1
    for place in range(min(num_up, num_down)):
        ways = ways * (total - place) // (place + 1)  # C(n, i + 1) from C(n, i)
        tail += ways
    return min(1.0, 2 * tail / 2**total)


def cluster_t_difference(
    differences: Sequence[FloatArray], *, confidence: float = 0.95
) -> Interval:
    """Mean difference over several runs, with the t interval over the runs' means.

    The honest one for a handful of seeds: with 3 of them it uses t(2) = 4.30, so it is
    wide unless the seeds agree.

    Args:
        differences: For each run (seed) its paired differences, one per task. Every run
            counts the same.
        confidence: Between 0 and 1.

    Raises:
        ValueError: If there are fewer than 2 runs or a run is empty or not finite.
    """
    return mean_interval(_cluster_means(differences), confidence=confidence)


def cluster_bootstrap_difference(
    differences: Sequence[FloatArray],
    *,
    seed: int,
    confidence: float = 0.95,
    num_resamples: int = 10_000,
) -> Interval:
    """Mean difference over several runs, with a percentile bootstrap over runs and tasks.

    Each resample draws as many runs as there are, with replacement, and inside each drawn
    run as many tasks, with replacement. It makes no assumption on the shape of the
    differences, and with few runs it is too narrow: fewer than about 10 runs can show only
    a part of how runs vary, which `cluster_t_difference` makes up for.

    Args:
        differences: For each run (seed) its paired differences, one per task. Every run
            counts the same.
        seed: Of the resampling; the same seed gives the same interval.
        confidence: Between 0 and 1.
        num_resamples: At least 100.

    Raises:
        ValueError: If there are fewer than 2 runs, a run is empty or not finite, or an
            argument is out of range.

    Source:
        Davison & Hinkley 1997, Bootstrap Methods and their Application, section 3.8.
    """
    check_confidence(confidence)
    if num_resamples < 100:
        raise ValueError(f"number of resamples must be at least 100, got {num_resamples}")
    means = _cluster_means(differences)
    random = np.random.default_rng(seed)
    num_runs = len(differences)
    resampled = np.zeros(num_resamples)
    for drawn in random.integers(num_runs, size=(num_runs, num_resamples)):
        for run, run_differences in enumerate(differences):
            wanted = np.flatnonzero(drawn == run)
            num_tasks = len(run_differences)
            tasks = random.integers(num_tasks, size=(len(wanted), num_tasks))
            resampled[wanted] += run_differences[tasks].mean(axis=1) / num_runs
    low, high = np.quantile(resampled, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    return Interval(float(means.mean()), low, high, confidence, num_runs)


def paired_differences(before: Mapping[str, float], after: Mapping[str, float]) -> FloatArray:
    """`after - before` for each task, in the order of the task ids.

    Raises:
        ValueError: If the tasks differ; the message names some that only one side has.
    """
    if unpaired := sorted(before.keys() ^ after.keys()):
        raise ValueError(f"{len(unpaired)} tasks have a result on one side only: {unpaired[:3]}")
    return np.array([after[task] - before[task] for task in sorted(before)])


def mean_interval(values: FloatArray, *, confidence: float = 0.95) -> Interval:
    r"""Mean of independent values, and its t interval.

        m ± t(n - 1) · s / √n,   s² = Σ (x_i - m)² / (n - 1)

    Args:
        values: At least 2, in any unit.
        confidence: Between 0 and 1.

    Raises:
        ValueError: If there are fewer than 2, or one is not finite.
    """
    check_confidence(confidence)
    _check_units(values)
    mean = float(values.mean())
    quantile = student_t_quantile((1 + confidence) / 2, degrees_of_freedom=len(values) - 1)
    half = quantile * float(values.std(ddof=1)) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half, confidence, len(values))


def _check_units(values: FloatArray) -> None:
    if len(values) < 2:
        raise ValueError(f"an interval needs at least 2 independent units, got {len(values)}")
    if not np.isfinite(values).all():
        raise ValueError(f"results must be finite, got {values[~np.isfinite(values)][0]}")


def _cluster_means(differences: Sequence[FloatArray]) -> FloatArray:
    for run, values in enumerate(differences):
        if len(values) == 0 or not np.isfinite(values).all():
            raise ValueError(f"differences of run {run} must be finite and at least one")
    if len(differences) < 2:
        raise ValueError(f"an interval needs at least 2 runs, got {len(differences)}")
    return np.array([values.mean() for values in differences])
