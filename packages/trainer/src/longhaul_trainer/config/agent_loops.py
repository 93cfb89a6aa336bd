"""How many processes play a run's episodes, and how they share its limits and its groups.

A process that plays is an *agent loop*, with environments of its own. On a CPU there is one, in
the trainer's process; on GPUs, or where `rollout.agent_loops` asks for more, each is an actor of
Ray. `environment.num_workers` and `rollout.concurrent_episodes` are the run's: each loop has a
share of them that does not change (docs/decisions/0016-resources-and-agent-loops.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from longhaul_core.errors import ConfigError
from longhaul_trainer.config.run import RunConfig

__all__ = [
    "AgentLoop",
    "episodes_at_once",
    "num_agent_loops",
    "shares",
    "spread",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLoop:
    """Which of a run's agent loops a process is."""

    index: int = 0
    """From 0 to `of` − 1."""
    of: int = 1
    """Agent loops of the run."""

    def share(self, limit: int, *, unit: int = 1) -> int:
        """This loop's part of a limit of the run; see `shares`."""
        return shares(limit, self.of, unit=unit)[self.index]


def shares(limit: int, num_parts: int, *, unit: int = 1) -> tuple[int, ...]:
    """A limit divided: parts of at least 1 that sum to `limit` and differ by at most `unit`.

    The larger parts come first, but for what is left of whole units, which the last part has.

    Args:
        limit: What is divided.
        num_parts: Into how many parts.
        unit: Parts are multiples of it, such as whole groups, where each part can have one.

    Raises:
        ConfigError: If there are more parts than `limit`.
    """
    if not 1 <= num_parts <= limit:
        raise ConfigError(
            f"a limit of {limit} cannot be divided among {num_parts} agent loops, which need at "
            "least 1 each; raise the limit, or take fewer agent loops"
        )
    if limit // unit < num_parts:
        unit = 1
    whole, rest = divmod(limit // unit, num_parts)
    parts = [(whole + 1) * unit] * rest + [whole * unit] * (num_parts - rest)
    parts[-1] += limit % unit
    return tuple(parts)


def spread(
    num_groups: int, *, playing: Sequence[int], at_once: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """Which of `num_groups` new groups each agent loop plays.

    One after the other they go to the loop that then has the fewest groups for its share.

    Args:
        num_groups: At least 0; they are numbered from 0.
        playing: Groups that each loop has in flight.
        at_once: Episodes that each loop plays at once, in the order of `playing`.

    Returns:
        The numbers of each loop's groups, rising.
    """
    given: list[list[int]] = [[] for _ in playing]
    for group in range(num_groups):
        least = min(
            range(len(given)),
            key=lambda loop: (playing[loop] + len(given[loop]) + 1) / at_once[loop],
        )
        given[least].append(group)
    return tuple(map(tuple, given))


def num_agent_loops(run: RunConfig, *, device: str) -> int:
    """Agent loops of the run: what it asks for, or else what suits the device.

    On a CPU that is 1. On GPUs it is one for each engine and at least 2, but no more than have
    room for a whole group each, nor than a training step has tasks. A loop plays some 100 steps a
    second with prompts of 1,600 tokens; an engine of one H100 reads prompts for some 50 with a
    model of 1.5 billion parameters, and for more with a smaller one.

    Args:
        run: The run.
        device: `"cpu"` or `"gpu"`.
    """
    if run.rollout.agent_loops is not None:
        return run.rollout.agent_loops
    if device == "cpu":
        return 1
    with_room = run.most_agent_loops // run.episodes_of_a_group
    return max(1, min(max(2, run.num_engines), with_room, run.tasks_per_training_step))


def episodes_at_once(run: RunConfig, *, num_loops: int) -> tuple[int, ...]:
    """Most episodes that each agent loop plays at once."""
    limit = min(sum(run.workers_by_environment), run.rollout.concurrent_episodes)
    return shares(limit, num_loops, unit=run.episodes_of_a_group)
