"""Which episode is to be played, and from which stored step on."""

from dataclasses import dataclass

from longhaul_core.errors import ConfigError
from longhaul_core.types import Step, Task, Trajectory

__all__ = ["Branch", "EpisodeSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Where a continuation leaves a stored episode."""

    episode_id: str
    """Of the stored episode."""
    recorded: Trajectory
    """It. A continuation has its horizon."""
    step_index: int
    """0-based step at which it is taken up: the first one that is not replayed."""
    action: str | None = None
    """What is done there; None leaves it to whoever goes on."""

    def __post_init__(self) -> None:
        num_steps = len(self.recorded.steps)
        if not 0 <= self.step_index < num_steps:
            raise ConfigError(
                f"step {self.step_index} of {self.episode_id} cannot be taken up: the episode has "
                f"{num_steps} steps, so name one from 0 to {num_steps - 1}"
            )

    @property
    def replayed(self) -> tuple[Step, ...]:
        """The steps before."""
        return self.recorded.steps[: self.step_index]

    @property
    def stored(self) -> Step:
        """The step at which it is taken up, as it was played."""
        return self.recorded.steps[self.step_index]

    @property
    def takes_stored_action(self) -> bool:
        """Whether the action that is given is the one that was stored."""
        return self.action == self.stored.action


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSpec:
    """One try at one task: everything that tells it from every other one."""

    task: Task
    seed: int
    """Seeds the sampling of its actions, see `episode_seed`."""
    group_index: int = 0
    """Which group of its training step it belongs to."""
    sample_index: int = 0
    """0-based place in the group."""
    retry: int = 0
    """How often it was tried before."""
    branch: Branch | None = None
    """The stored episode that it continues; None for one that starts from its task."""

    @property
    def episode_id(self) -> str:
        """The same for all steps of the episode and for no other one in flight."""
        place = f"{self.group_index}/{self.sample_index}/{self.retry}"
        return f"{self.task.task_id}/{place}/{self.seed:x}"
