"""How long credit assignment takes: ours beside the definition written out.

uv run python benchmarks/credit.py
"""

import math
import platform
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from longhaul_core.advantages import EpisodeCredit
from longhaul_core.advantages.gigpo import gigpo_credit
from longhaul_core.advantages.graphgpo import GraphSettings, graphgpo_credit

NUM_GROUPS, GROUP_SIZE, NUM_STEPS = 64, 8, 32
NUM_STATES = 40
DISCOUNT = 0.95
DISTANCE_DECAY = 0.5
REPEATS = 5


class Group(NamedTuple):
    """A group of attempts at one task; each field has one entry per episode."""

    rewards: list[npt.NDArray[np.float64]]
    anchors: list[list[str]]
    finals: list[str | None]
    """State that it ended in; None where it succeeded."""


Combined = list[tuple[float, ...]]
"""Combined advantages of the steps of each episode of a group."""


def main() -> None:
    """Print the best of a few runs of each, over the same groups."""
    random = np.random.default_rng(0)
    groups = [make_group(random) for _ in range(NUM_GROUPS)]
    steps = NUM_GROUPS * GROUP_SIZE * NUM_STEPS
    for name, credit, definition in (
        ("GiGPO", gigpo, gigpo_by_definition),
        ("GraphGPO", graphgpo, graphgpo_by_definition),
    ):
        compare(f"{name} credit of {steps} steps", groups, credit, definition)
    print(f"  {NUM_GROUPS} groups of {GROUP_SIZE} x {NUM_STEPS}, one thread, best of {REPEATS}")
    print(f"  {platform.processor() or platform.machine()}, Python {platform.python_version()}, "
          f"numpy {np.__version__}")  # fmt: skip


def compare(
    title: str,
    groups: Sequence[Group],
    credit: Callable[[Group], Combined],
    definition: Callable[[Group], Combined],
) -> None:
    """Print how long both take over all groups, and how far apart they are."""
    ours = best_seconds(lambda: [credit(group) for group in groups])
    naive = best_seconds(lambda: [definition(group) for group in groups])
    largest = max(
        abs(a - b)
        for group in groups
        for ours_S, naive_S in zip(credit(group), definition(group), strict=True)
        for a, b in zip(ours_S, naive_S, strict=True)
    )
    print(title)
    print(f"  longhaul        {ours * 1e3:8.1f} ms")
    print(f"  by definition   {naive * 1e3:8.1f} ms   ({naive / ours:.1f} times as long)")
    print(f"  largest difference {largest:.1e}")


def make_group(random: np.random.Generator) -> Group:
    """A group of attempts with a sparse reward and observations of a realistic length."""
    rewards = [np.zeros(NUM_STEPS) for _ in range(GROUP_SIZE)]
    for episode in rewards:
        episode[-1] = float(random.random() < 0.5)
    states = [f"You are in room {number}. " * 10 for number in range(NUM_STATES)]
    anchors = [
        [states[int(random.integers(NUM_STATES))] for _ in range(NUM_STEPS)]
        for _ in range(GROUP_SIZE)
    ]
    return Group(rewards, anchors, [None if episode[-1] else states[0] for episode in rewards])


def gigpo(group: Group) -> Combined:
    """Combined advantages by `gigpo_credit`."""
    return combined(gigpo_credit(group.rewards, group.anchors, discount=DISCOUNT))


def graphgpo(group: Group) -> Combined:
    """Combined advantages by `graphgpo_credit`."""
    settings = GraphSettings(distance_decay=DISTANCE_DECAY)
    return combined(graphgpo_credit(*group, settings=settings))


def combined(credits: Sequence[EpisodeCredit]) -> Combined:
    """What the loss uses of each."""
    return [credit.advantages for credit in credits]


def gigpo_by_definition(group: Group) -> Combined:
    """Combined advantages by the paper's equations, one loop each."""
    returns = [
        [
            sum(DISCOUNT**k * float(r) for k, r in enumerate(episode[t:]))
            for t in range(len(episode))
        ]
        for episode in group.rewards
    ]
    return both_parts(group, returns)


def graphgpo_by_definition(group: Group) -> Combined:
    """Combined advantages by the distances of the definition, until nothing changes."""
    paths = [[*s, final] for s, final in zip(group.anchors, group.finals, strict=True)]
    edges = [edge for path in paths for edge in pairwise(path)]
    distance: dict[str | None, float] = {state: math.inf for path in paths for state in path}
    distance[None] = 0
    before: dict[str | None, float] = {}
    while before != distance:
        before = dict(distance)
        for state, following in edges:
            distance[state] = min(distance[state], before[following] + 1)
    furthest = max(d for d in distance.values() if d < math.inf)
    worth = [
        [10 * DISTANCE_DECAY ** min(distance[following], furthest + 1) for following in path[1:]]
        for path in paths
    ]
    return both_parts(group, worth)


def both_parts(group: Group, values: Sequence[Sequence[float]]) -> Combined:
    """The total reward against the group's, and each step's value against those of its state."""
    totals = [float(episode.sum()) for episode in group.rewards]
    met: dict[str, list[float]] = {}
    for states, episode_values in zip(group.anchors, values, strict=True):
        for state, value in zip(states, episode_values, strict=True):
            met.setdefault(state, []).append(value)
    return [
        tuple(
            normalised(total, totals) + normalised(value, met[state])
            for state, value in zip(states, episode_values, strict=True)
        )
        for total, states, episode_values in zip(totals, group.anchors, values, strict=True)
    ]


def normalised(value: float, values: list[float]) -> float:
    """(value - mean) / (sample std + 1e-6), 0 where all values are equal."""
    if max(values) == min(values):
        return 0.0
    mean = sum(values) / len(values)
    variance = sum((other - mean) ** 2 for other in values) / (len(values) - 1)
    return (value - mean) / (variance**0.5 + 1e-6)


def best_seconds(run: Callable[[], object]) -> float:
    """Shortest wall time of a few runs."""
    times: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
