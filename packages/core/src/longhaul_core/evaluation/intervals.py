"""Confidence intervals, and the two quantiles that they need.

Written with the standard library and numpy alone, so that the viewer can show an
interval without installing a statistics package.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple


class Interval(NamedTuple):
    """An estimate and the interval that covers the truth in 95 of 100 repetitions."""

    estimate: float
    low: float
    high: float
    confidence: float
    """Between 0 and 1, e.g. 0.95."""
    num_units: int
    """Independent units behind it: episodes, pairs or clusters."""


def success_rate_interval(
    num_successes: int, num_episodes: int, *, confidence: float = 0.95
) -> Interval:
    r"""Success rate and its Wilson score interval.

        center = (p + z²/2n) / (1 + z²/n)
        half   = z / (1 + z²/n) · sqrt(p (1 - p) / n + z²/4n²)

    It stays inside [0, 1] and has a width even at 0 and n successes, where the usual
    p ± z·sqrt(p (1 - p) / n) claims certainty. The episodes must be independent, one per
    task: for several of each task see `success_rate_over_tasks`.

    Args:
        num_successes: 0 to `num_episodes`.
        num_episodes: At least 1.
        confidence: Between 0 and 1.

    Raises:
        ValueError: If a count or the confidence is out of range.

    Source:
        Wilson 1927, Probable inference, the law of succession, and statistical inference.
    """
    check_confidence(confidence)
    if num_episodes < 1:
        raise ValueError(f"a success rate needs at least 1 episode, got {num_episodes}")
    if not 0 <= num_successes <= num_episodes:
        raise ValueError(
            f"number of successes must lie in [0, {num_episodes}], got {num_successes}"
        )
    low, high = _wilson(num_successes / num_episodes, num_episodes, confidence)
    return Interval(num_successes / num_episodes, low, high, confidence, num_episodes)


def bounded_mean_interval(values: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """Mean of independent values that cannot leave [0, 1], and Wilson's interval of it.

    Of values 0 and 1 it is `success_rate_interval`. A value in [0, 1] with mean p has a variance of
    at most p (1 - p), so of others it is wider than it need be, and never claims certainty where
    all are alike, as the t interval does.

    Args:
        values: At least 1.
        confidence: Between 0 and 1.

    Raises:
        ValueError: If there is none, one lies outside [0, 1], or the confidence is out of range.
    """
    check_confidence(confidence)
    if len(values) == 0:
        raise ValueError("a mean needs at least 1 value, got none")
    if not all(0.0 <= value <= 1.0 for value in values):
        raise ValueError(
            f"values must lie in [0, 1], got {min(values)} to {max(values)}; scale them to it"
        )
    mean = min(1.0, math.fsum(values) / len(values))
    return Interval(mean, *_wilson(mean, len(values), confidence), confidence, len(values))


def success_rate_over_tasks(
    successes: Sequence[Sequence[bool]], *, confidence: float = 0.95
) -> Interval:
    r"""Success rate over several episodes of each task, and an interval over the tasks.

    Episodes of one task share its difficulty, so n tasks of m episodes are worth less than n·m
    independent ones. How many they are worth follows from how the tasks' results differ:

        var = n / (n - 1) · Σ (x_i - p m_i)² / M²,   n_eff = p (1 - p) / var,   M = Σ m_i

    with x_i successes in the m_i episodes of task i. `success_rate_interval`'s formula is taken at
    n_eff, kept within [n, M]: with one episode for each task it is the same interval.

    Args:
        successes: For each task, how each of its episodes ended; at least one of each.
        confidence: Between 0 and 1.

    Raises:
        ValueError: If there is no task, a task without an episode, or the confidence is out of
            range.

    Source:
        Franco, Little, Louis & Slud 2019, Comparative study of confidence intervals for
        proportions in complex sample surveys (Wilson's, at the effective sample size).
    """
    check_confidence(confidence)
    if not successes or not all(successes):
        raise ValueError("a success rate over tasks needs at least 1 task, and 1 episode of each")
    num_tasks, num_episodes = len(successes), sum(map(len, successes))
    rate = sum(map(sum, successes)) / num_episodes
    spread = sum((sum(task) - rate * len(task)) ** 2 for task in successes)
    variance = num_tasks / max(1, num_tasks - 1) * spread / num_episodes**2
    effective = float(num_tasks)
    if num_tasks > 1 and 0 < rate < 1:
        worth = rate * (1 - rate) / variance if variance > 0 else math.inf
        effective = min(max(worth, num_tasks), num_episodes)
    return Interval(rate, *_wilson(rate, effective, confidence), confidence, num_tasks)


def _wilson(rate: float, num_units: float, confidence: float) -> tuple[float, float]:
    """Wilson's interval of a rate over `num_units` independent units."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    shrink = 1 + z**2 / num_units
    center = (rate + z**2 / (2 * num_units)) / shrink
    half = z / shrink * math.sqrt(rate * (1 - rate) / num_units + (z / (2 * num_units)) ** 2)
    # At 0 and n successes one end is the rate itself; rounding must not step over it.
    return max(0.0, min(center - half, rate)), min(1.0, max(center + half, rate))


def check_confidence(confidence: float) -> None:
    """Refuse a confidence that is no probability strictly between 0 and 1."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence}")


def student_t_quantile(probability: float, *, degrees_of_freedom: int) -> float:
    """The value that a Student t variable stays below with `probability`.

    Found by halving an interval on the distribution function, to 12 digits or so.

    Args:
        probability: In [0.5, 1).
        degrees_of_freedom: At least 1.

    Raises:
        ValueError: If an argument is out of range.
    """
    if not 0.5 <= probability < 1.0:
        raise ValueError(f"probability must lie in [0.5, 1), got {probability}")
    if degrees_of_freedom < 1:
        raise ValueError(f"degrees of freedom must be at least 1, got {degrees_of_freedom}")
    low, high = 0.0, 1.0
    while student_t_distribution(high, degrees_of_freedom=degrees_of_freedom) < probability:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        if student_t_distribution(middle, degrees_of_freedom=degrees_of_freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def student_t_distribution(value: float, *, degrees_of_freedom: int) -> float:
    r"""Probability that a Student t variable stays below `value` ≥ 0.

    For whole degrees of freedom ν it is a finite sum, with θ = atan(t / √ν):

        odd ν:   1/2 + (θ + sin θ (cos θ + 2/3 cos³θ + … + (2·4⋯(ν-3))/(3·5⋯(ν-2)) cos^(ν-2) θ)) / π
        even ν:  1/2 + sin θ / 2 · (1 + 1/2 cos²θ + … + (1·3⋯(ν-3))/(2·4⋯(ν-2)) cos^(ν-2) θ)

    Source:
        Abramowitz & Stegun 1964, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = math.atan(value / math.sqrt(degrees_of_freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees_of_freedom % 2 == 1
    term, total = (cosine, cosine) if odd else (1.0, 1.0)
    if degrees_of_freedom == 1:
        total = 0.0
    for power in range(3 if odd else 2, degrees_of_freedom - 1, 2):
        term *= (power - 1) / power * cosine**2
        total += term
    above = (angle + sine * total) / math.pi if odd else sine * total / 2
    return min(1.0, 0.5 + above)  # rounding must not step over it
