"""The same horizon from the first training step to the last."""

from collections.abc import Sequence
from dataclasses import dataclass

from longhaul_core.errors import ConfigError
from longhaul_core.horizons.base import HorizonState, checked_training_step
from longhaul_core.types import GroupOutcome

__all__ = ["FixedHorizon"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedHorizon:
    """h(k) = `steps`."""

    steps: int
    """At least 1."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ConfigError(f"steps must be at least 1, got {self.steps}")

    def horizon(self, training_step: int, state: HorizonState) -> int:
        """See `HorizonSchedule.horizon`; the state is not read."""
        checked_training_step(training_step)
        return self.steps

    def after(self, state: HorizonState, outcomes: Sequence[GroupOutcome]) -> HorizonState:
        """`state`, unchanged."""
        return state
