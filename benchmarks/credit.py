"""How long credit assignment takes: ours beside the definition written out.

uv run python benchmarks/credit.py
"""

import platform
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from longhaul_core.advantages import gigpo_credit

NUM_GROUPS, GROUP_SIZE, NUM_STEPS = 64, 8, 32
NUM_STATES = 40
DISCOUNT = 0.95
REPEATS = 5

Group = tuple[list[npt.NDArray[np.float64]], list[list[str]]]


def main() -> None:
    """Print the best of a few runs of both, over the same groups."""
    random = np.random.default_rng(0)
    groups = [make_group(random) for _ in range(NUM_GROUPS)]
    ours = best_seconds(lambda: [vectorised(group) for group in groups])
    naive = best_seconds(lambda: [by_definition(group) for group in groups])
    largest = max(
        abs(a - b)
        for group in groups
        for ours_S, naive_S in zip(vectorised(group), by_definition(group), strict=True)
        for a, b in zip(ours_S, naive_S, strict=True)
    )
    steps = NUM_GROUPS * GROUP_SIZE * NUM_STEPS
    print(f"GiGPO credit of {steps} steps ({NUM_GROUPS} groups of {GROUP_SIZE} x {NUM_STEPS})")
    print(f"  longhaul        {ours * 1e3:8.1f} ms")
    print(f"  by definition   {naive * 1e3:8.1f} ms   ({naive / ours:.1f} times as long)")
    print(f"  largest difference {largest:.1e}")
    print(f"  {platform.processor() or platform.machine()}, Python {platform.python_version()}, "
          f"numpy {np.__version__}, one thread, best of {REPEATS}")  # fmt: skip


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
    return rewards, anchors


def vectorised(group: Group) -> list[tuple[float, ...]]:
    """Combined advantages by `gigpo_credit`."""
    return [credit.advantages for credit in gigpo_credit(*group, discount=DISCOUNT)]


def by_definition(group: Group) -> list[tuple[float, ...]]:
    """Combined advantages by the paper's equations, one loop each."""
    rewards, anchors = group
    totals = [float(episode.sum()) for episode in rewards]
    returns = [
        [
            sum(DISCOUNT**k * float(r) for k, r in enumerate(episode[t:]))
            for t in range(len(episode))
        ]
        for episode in rewards
    ]
    met: dict[str, list[float]] = {}
    for states, episode_returns in zip(anchors, returns, strict=True):
        for state, to_go in zip(states, episode_returns, strict=True):
            met.setdefault(state, []).append(to_go)
    return [
        tuple(
            normalised(total, totals) + normalised(to_go, met[state])
            for state, to_go in zip(states, episode_returns, strict=True)
        )
        for total, states, episode_returns in zip(totals, anchors, returns, strict=True)
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
