"""Values by continuations, where the states cannot be counted.

V and Q of a step come from disjoint sets of continuations: with shared ones, a lucky draw would
count for both, and A = Q - V would hide it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, hypot

from longhaul_core.evaluation import Interval, bounded_mean_interval

__all__ = [
    "SampledAdvantage",
    "fewest_continuations",
    "num_wanted",
    "sampled_advantage",
]

_Z = 1.959964
"""Of 95 %."""


def num_wanted(found: Interval, *, so_far: int, half_width: float, most: int) -> int:
    """How many continuations a mean should have: twice as many until its interval is narrow.

    It is narrow where neither end is further than `half_width` from the mean.

    Args:
        found: The interval of those that there are.
        so_far: Continuations that were asked for, those that failed included.
        half_width: Wanted; above 0.
        most: Continuations at most.
    """
    widest = max(found.high - found.estimate, found.estimate - found.low)
    return so_far if widest <= half_width or so_far >= most else min(2 * so_far, most)


def fewest_continuations(half_width: float) -> int:
    """Continuations that an interval of returns between 0 and 1 needs at least: all alike.

        n = z² (1 / half_width - 1), at least 1

    Args:
        half_width: Wanted; above 0.
    """
    return max(1, ceil(_Z**2 * (1 / half_width - 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledAdvantage:
    """What a step's action was worth, by two disjoint sets of continuations."""

    value: Interval
    """V: continuations that choose the action by the policy."""
    action_value: Interval
    """Q: continuations that take the stored action."""

    @property
    def advantage(self) -> Interval:
        r"""A = Q - V, with the interval of a difference of independent means.

            low  = A - √((Q - Q.low)² + (V.high - V)²)
            high = A + √((Q.high - Q)² + (V - V.low)²)

        Source:
            Newcombe 1998, Interval estimation for the difference between independent proportions,
            method 10.
        """
        q, v = self.action_value, self.value
        estimate = q.estimate - v.estimate
        return Interval(
            estimate,
            estimate - hypot(q.estimate - q.low, v.high - v.estimate),
            estimate + hypot(q.high - q.estimate, v.estimate - v.low),
            q.confidence,
            q.num_units + v.num_units,
        )

    @property
    def has_effect(self) -> bool:
        """Whether the advantage's interval leaves out 0."""
        advantage = self.advantage
        return advantage.low > 0.0 or advantage.high < 0.0


def sampled_advantage(
    values_N: Sequence[float], action_values_N: Sequence[float]
) -> SampledAdvantage:
    """V, Q and A of one step, from the discounted returns of its continuations.

    Returns outside [0, 1] are scaled to it, by the least and the largest of both sets, so that
    Wilson's interval is never narrower than that of the spread which was seen.

    Args:
        values_N: Returns of those that chose the action by the policy, at least 1.
        action_values_N: Returns of those that took the stored action, at least 1.
    """
    both = (*values_N, *action_values_N)
    low, high = min(0.0, *both), max(1.0, *both)

    def interval(returns: Sequence[float]) -> Interval:
        scaled = bounded_mean_interval([(each - low) / (high - low) for each in returns])
        estimate, least, most = (low + (high - low) * each for each in scaled[:3])
        return Interval(estimate, least, most, scaled.confidence, scaled.num_units)

    return SampledAdvantage(value=interval(values_N), action_value=interval(action_values_N))
