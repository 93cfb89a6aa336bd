"""A longer horizon when the policy succeeds often enough within the one it has."""

from collections.abc import Sequence
from dataclasses import dataclass

from longhaul_core.errors import ConfigError
from longhaul_core.horizons.base import HorizonState, checked_training_step, stage_problems
from longhaul_core.types import GroupOutcome

__all__ = ["SuccessGatedHorizon"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessGatedHorizon:
    """The next stage begins when the recent success rate reaches a threshold.

    After each training step, over the last `window` training steps of the current stage,

        sum of successes / sum of episodes >= threshold

    moves on by one stage, never back. The window must be full, and begins anew with each
    stage: success within a shorter horizon does not predict that within the longer one. For
    the same reason an episode that was begun under another horizon is not counted.
    """

    stages: tuple[int, ...]
    """Horizons, at least one, each at least 1 and more than the one before."""
    threshold: float
    """Success rate, in (0, 1]."""
    window: int
    """Training steps, at least 1."""

    def __post_init__(self) -> None:
        problems = stage_problems(self.stages)
        if not 0 < self.threshold <= 1:
            problems.append(f"threshold must lie in (0, 1], got {self.threshold:g}")
        if self.window < 1:
            problems.append(f"window must be at least 1, got {self.window}")
        if problems:
            raise ConfigError("; ".join(problems))

    def horizon(self, training_step: int, state: HorizonState) -> int:
        """See `HorizonSchedule.horizon`; the training step is not read.

        Raises:
            ConfigError: If the state is of a schedule with more stages.
        """
        checked_training_step(training_step)
        if not 0 <= state.stage < len(self.stages):
            raise ConfigError(
                f"the horizon schedule stood at stage {state.stage} (from 0) and has "
                f"{len(self.stages)} stages now; resume with the stages that the run was begun with"
            )
        return self.stages[state.stage]

    def after(self, state: HorizonState, outcomes: Sequence[GroupOutcome]) -> HorizonState:
        """See `HorizonSchedule.after`; a training step without an episode of this stage is none."""
        if state.stage == len(self.stages) - 1:
            return state
        counted = [one for one in outcomes if one.horizon == self.stages[state.stage]]
        if not counted:
            return state
        counts = (
            sum(one.num_successes for one in counted),
            sum(one.num_episodes for one in counted),
        )
        recent = (*state.recent, counts)[-self.window :]
        rate = sum(solved for solved, _ in recent) / sum(played for _, played in recent)
        if len(recent) == self.window and rate >= self.threshold:
            return HorizonState(stage=state.stage + 1)
        return HorizonState(stage=state.stage, recent=recent)
