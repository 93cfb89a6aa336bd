"""What is checked, and how thoroughly."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from longhaul_core.environment import Determinism, EnvironmentDescription
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Split, Task
from longhaul_envs.contract.recording import Recorded

__all__ = ["SETTLE_SECONDS", "Subject", "ignore"]

SETTLE_SECONDS = 6.0
"""Given to threads and processes that were told to end, before they count as left behind."""


def ignore(words: str) -> None:
    """Tell nobody."""
    del words


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An environment under its options."""

    spec: GymEnvironmentSpec
    description: EnvironmentDescription
    is_gym: bool
    """Whether a Gymnasium class plays it, rather than a source's own `make`."""
    tasks: Mapping[Split, Sequence[Task]]
    """All of them."""
    starts: Sequence[Task]
    """Those whose first observation is looked at, of each split."""
    sample: Sequence[Task]
    """Those that are played, of each split."""
    horizon: int
    tell: Callable[[str], None] = ignore
    """Is told what was covered, in words."""
    settle_seconds: float = SETTLE_SECONDS
    recorded: dict[str, Recorded] = field(default_factory=dict[str, Recorded])
    """How episodes began, by task id, as checks play them."""

    @property
    def repeats_episodes(self) -> bool:
        """Whether the same actions are to bring the same episode."""
        return self.description.determinism is Determinism.EXACT

    @property
    def repeats_starts(self) -> bool:
        """Whether a task is to begin the same each time."""
        return self.description.determinism is not Determinism.NONE
