"""From a run's configuration to its horizon schedule."""

from __future__ import annotations

from longhaul_core.horizons import (
    FixedHorizon,
    HorizonSchedule,
    LinearHorizon,
    StepwiseHorizon,
    SuccessGatedHorizon,
)
from longhaul_trainer.config import RunConfig


def horizon_schedule(run: RunConfig) -> HorizonSchedule:
    """How long the training episodes of the run may be; it ends at `rollout.horizon`."""
    growth, final = run.horizon_schedule, run.rollout.horizon
    match growth.kind:
        case "fixed":
            return FixedHorizon(steps=final)
        case "stepwise":
            return StepwiseHorizon(
                stages=growth.stages, training_steps_per_stage=growth.training_steps_per_stage
            )
        case "linear":
            return LinearHorizon(
                start=growth.start, end=final, end_training_step=growth.end_training_step
            )
        case "success_gated":
            return SuccessGatedHorizon(
                stages=growth.stages,
                threshold=growth.success_threshold,
                window=growth.success_window,
            )
