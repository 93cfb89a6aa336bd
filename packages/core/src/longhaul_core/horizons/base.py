"""What a horizon schedule is, and the little that one may remember.

A schedule holds no counter of its own: the horizon follows from the number of the training
step and from a state that a checkpoint keeps, so a run that goes on after any training step
plays what it would have played.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, Self

from longhaul_core.types import GroupOutcome

__all__ = ["HorizonSchedule", "HorizonState", "checked_training_step", "stage_problems"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizonState:
    """What a schedule knows of the training steps that are done; empty unless it is gated."""

    stage: int = 0
    """0-based stage that the next training step is in."""
    recent: tuple[tuple[int, int], ...] = ()
    """Successes and episodes of the last training steps of this stage, oldest first."""

    def to_json(self) -> dict[str, object]:
        """The state as plain JSON; whole numbers, so nothing is rounded."""
        return {"stage": self.stage, "recent": [list(counts) for counts in self.recent]}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The state that `to_json` wrote."""
        recent = tuple((int(solved), int(played)) for solved, played in content["recent"])
        return cls(stage=int(content["stage"]), recent=recent)


class HorizonSchedule(Protocol):
    """Says how long episodes may be: a pure function of training step and state."""

    def horizon(self, training_step: int, state: HorizonState) -> int:
        """Longest episode of a training step, in steps, at least 1.

        Args:
            training_step: From 1.
            state: After all earlier training steps; `HorizonState()` before the first.

        Raises:
            ValueError: If `training_step` is less than 1.
        """
        ...

    def after(self, state: HorizonState, outcomes: Sequence[GroupOutcome]) -> HorizonState:
        """The state after one more training step, whose groups came out as `outcomes` say."""
        ...


def checked_training_step(training_step: int) -> int:
    """`training_step`, if it is one.

    Raises:
        ValueError: If it is less than 1.
    """
    if training_step < 1:
        raise ValueError(f"training steps count from 1, got {training_step}")
    return training_step


def stage_problems(stages: Sequence[int]) -> list[str]:
    """Why `stages` cannot be the horizons of a growing schedule; empty if they can."""
    if not stages:
        return ["stages must hold at least 1 horizon, got none"]
    problems = [f"stages must be at least 1, got {stage}" for stage in stages if stage < 1]
    problems += [
        f"stages must rise, got {later} after {earlier}"
        for earlier, later in pairwise(stages)
        if later <= earlier
    ]
    return problems
