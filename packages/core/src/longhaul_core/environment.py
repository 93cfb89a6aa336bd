"""What the episode loop needs from an environment, and nothing more.

Environments themselves are `gymnasium.Env`s (see `longhaul_core.gym`, the adapter
that makes one of these out of any of those); this protocol is the asynchronous side
that the loop awaits, so a local process and a remote server look alike.
"""

from dataclasses import dataclass
from typing import Protocol

from longhaul_core.types import Observation, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What came back from one action."""

    observation: Observation
    """Shown to the policy next; after the last action, the final observation."""
    reward: float
    """For this step alone."""
    terminated: bool = False
    """The task itself ended."""
    truncated: bool = False
    """The environment's own limit ended the episode."""
    success: bool = False
    """Whether the task counts as solved."""
    action_accepted: bool = True
    """False if the environment did not understand the action."""


class Environment(Protocol):
    """One episode's world. Build it, run it once, close it.

    The loop never calls `reset` twice: a fresh episode is a fresh object, so no
    state leaks from one episode to the next.
    """

    async def open(self) -> None:
        """Wait for what the episode will need, e.g. a free worker process.

        The loop awaits this once, before `reset`. Deadlines of an episode begin after
        it, because waiting one's turn is no fault of the environment.
        """
        ...

    async def reset(self, task: Task) -> Observation:
        """Start the episode and return the first observation.

        The same task and the same actions must give the same episode;
        `longhaul_envs.check` holds every environment to it.
        """
        ...

    async def step(self, action: str) -> StepResult:
        """Apply `action`, the parsed text, and advance by one step."""
        ...

    async def close(self) -> None:
        """Release what the episode holds.

        Safe to call twice, after a failure, and if `open` was never reached.
        """
        ...


class EnvironmentFactory(Protocol):
    """Makes a fresh environment for each episode."""

    def __call__(self, task: Task) -> Environment:
        """Return an environment that has not been reset."""
        ...
