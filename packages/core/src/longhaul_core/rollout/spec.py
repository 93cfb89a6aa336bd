"""Which episode is to be played."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from longhaul_core.types import Task

if TYPE_CHECKING:
    from longhaul_core.rollout.branch import Branch

__all__ = ["EpisodeSpec"]


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
