"""Horizon schedules: how long the episodes of a training step may be."""

from longhaul_core.horizons.base import HorizonSchedule, HorizonState, stage_problems
from longhaul_core.horizons.fixed import FixedHorizon
from longhaul_core.horizons.linear import LinearHorizon
from longhaul_core.horizons.stepwise import StepwiseHorizon
from longhaul_core.horizons.success_gated import SuccessGatedHorizon

__all__ = [
    "FixedHorizon",
    "HorizonSchedule",
    "HorizonState",
    "LinearHorizon",
    "StepwiseHorizon",
    "SuccessGatedHorizon",
    "stage_problems",
]
