"""A longer horizon after every so many training steps: ScalingInter-RL."""

from collections.abc import Sequence
from dataclasses import dataclass

from longhaul_core.errors import ConfigError
from longhaul_core.horizons.base import HorizonState, checked_training_step, stage_problems
from longhaul_core.types import GroupOutcome

__all__ = ["StepwiseHorizon"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepwiseHorizon:
    """Stages of equal length, the last one without end.

        h(k) = stages[min((k - 1) // n, len(stages) - 1)]        k = training step, from 1

    with n = `training_steps_per_stage`. What AgentGym-RL calls `rounds` and
    `steps_scaling_inter` are the stages and n.

    Source:
        Xi et al. 2025, AgentGym-RL, arXiv:2509.08755 (ScalingInter-RL).
    """

    stages: tuple[int, ...]
    """Horizons, at least one, each at least 1 and more than the one before."""
    training_steps_per_stage: int
    """At least 1."""

    def __post_init__(self) -> None:
        problems = stage_problems(self.stages)
        if self.training_steps_per_stage < 1:
            problems.append(
                f"training_steps_per_stage must be at least 1, got {self.training_steps_per_stage}"
            )
        if problems:
            raise ConfigError("; ".join(problems))

    def horizon(self, training_step: int, state: HorizonState) -> int:
        """See `HorizonSchedule.horizon`; the state is not read."""
        stage = (checked_training_step(training_step) - 1) // self.training_steps_per_stage
        return self.stages[min(stage, len(self.stages) - 1)]

    def after(self, state: HorizonState, outcomes: Sequence[GroupOutcome]) -> HorizonState:
        """`state`, unchanged."""
        return state
