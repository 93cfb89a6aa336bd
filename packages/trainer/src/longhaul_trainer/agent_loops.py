"""How the processes that play a run's episodes share the run's limits.

On GPUs verl plays episodes in several *agent loops*, each a process of its own with its own
environments. `environment.num_workers` and `rollout.concurrent_episodes` are the run's: each loop
gets its share of them.
"""

from dataclasses import dataclass

from longhaul_core.errors import ConfigError
from longhaul_trainer.config import RunConfig

__all__ = ["AgentLoop", "least_workers", "most_agent_loops", "shares"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLoop:
    """Which of a run's agent loops a process is."""

    index: int = 0
    """From 0 to `of` − 1."""
    of: int = 1
    """Agent loops of the run."""

    def share(self, limit: int) -> int:
        """This loop's part of a limit of the run; see `shares`."""
        return shares(limit, self.of)[self.index]


def shares(limit: int, num_parts: int) -> tuple[int, ...]:
    """A limit divided: parts of at least 1 that sum to `limit` and differ by at most 1.

    The larger parts come first.

    Raises:
        ConfigError: If there are more parts than `limit`.
    """
    if not 1 <= num_parts <= limit:
        raise ConfigError(
            f"a limit of {limit} cannot be divided among {num_parts} agent loops, which need at "
            "least 1 each; raise the limit, or take fewer agent loops"
        )
    whole, rest = divmod(limit, num_parts)
    return (whole + 1,) * rest + (whole,) * (num_parts - rest)


def most_agent_loops(run: RunConfig) -> int:
    """Most agent loops that leave each of them an episode and an environment."""
    workers = (entry.num_workers for entry in run.played_environments)
    return min(run.rollout.concurrent_episodes, *workers)


def least_workers(run: RunConfig) -> str:
    """The smallest `num_workers` of the run's environments, for messages, by its setting."""
    least = min(run.played_environments, key=lambda entry: entry.num_workers)
    if not run.environments:
        return f"environment.num_workers = {least.num_workers}"
    return f"environments: num_workers = {least.num_workers} of {least.id!r}"
