"""Values by continuations, where the states cannot be counted.

V and Q of a step come from disjoint sets of continuations: with shared ones, a lucky draw would
count for both, and A = Q - V would hide it.

Shapes: N continuations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, hypot

import numpy as np

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.evaluation import Interval, bounded_mean_interval
from longhaul_core.truth.state_graph import ENDED, StateGraph

__all__ = [
    "MOST_CONTINUATIONS",
    "Draw",
    "SampledAdvantage",
    "continuations",
    "fewest_continuations",
    "num_wanted",
    "sampled_advantage",
    "sampled_value",
]

MOST_CONTINUATIONS = 4096
_Z = 1.959964
"""Of 95 %."""

Draw = Callable[[int], FloatArray]
"""Plays so many further continuations; their discounted returns, shape (N,)."""


def sampled_value(
    draw: Draw,
    *,
    half_width: float,
    first: int = 32,
    most: int = MOST_CONTINUATIONS,
) -> Interval:
    """The mean return of as many continuations as an interval of a given width needs.

    The interval is Wilson's of 95 %; see `bounded_mean_interval` and `num_wanted`.

    Args:
        draw: Plays further ones; their returns lie in [0, 1].
        half_width: Wanted; above 0.
        first: Continuations before the first look, at least 1.
        most: Continuations at most; the interval may then be wider than it was to be.

    Raises:
        ValueError: An argument is out of range, or a return lies outside [0, 1].
    """
    if not half_width > 0.0:
        raise ValueError(f"half_width must be above 0, got {half_width}")
    if not 1 <= first <= most:
        raise ValueError(f"first must be from 1 to most = {most}, got {first}")
    returns = draw(first)
    while True:
        found = bounded_mean_interval(returns.tolist())
        wanted = num_wanted(found, so_far=len(returns), half_width=half_width, most=most)
        if wanted == len(returns):
            return found
        returns = np.concatenate([returns, draw(wanted - len(returns))])


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


def continuations(
    graph: StateGraph,
    probabilities_E: FloatArray,
    *,
    state: int,
    steps_left: int,
    edge: int | None = None,
    discount: float,
    random: np.random.Generator,
) -> Draw:
    """Continuations from a state, drawn on its task's graph instead of in the environment.

    Args:
        graph: Of the task.
        probabilities_E: Of each edge's action in its state; see `tabulated`.
        state: Where they begin.
        steps_left: At least 1.
        edge: Taken first; None draws that one too.
        discount: Per step.
        random: A generator of these continuations' own.
    """
    bounds_S = np.searchsorted(graph.sources_E, np.arange(len(graph.states) + 1))
    cumulative_E = np.cumsum(probabilities_E)
    before_S = np.append(0.0, cumulative_E)[bounds_S]

    def draw(number: int) -> FloatArray:
        returns_N, weight = np.zeros(number), 1.0
        states_N = np.full(number, state)
        playing_N = np.arange(number)
        for step in range(steps_left):
            if step == 0 and edge is not None:
                edges_N = np.full(number, edge)
            else:
                start_N, stop_N = before_S[states_N], before_S[states_N + 1]
                place_N = start_N + random.random(len(states_N)) * (stop_N - start_N)
                edges_N = np.searchsorted(cumulative_E, place_N, side="right")
                # Rounding must not lead into the next state.
                edges_N = np.minimum(edges_N, bounds_S[states_N + 1] - 1)
            returns_N[playing_N] += weight * graph.rewards_E[edges_N]
            goes_on_N = graph.targets_E[edges_N] != ENDED
            playing_N = playing_N[goes_on_N]
            states_N = graph.targets_E[edges_N][goes_on_N]
            weight *= discount
            if len(playing_N) == 0:
                break
        return returns_N

    return draw
