"""A horizon that grows evenly from the first training step on."""

from collections.abc import Sequence
from dataclasses import dataclass

from longhaul_core.errors import ConfigError
from longhaul_core.horizons.base import HorizonState, checked_training_step
from longhaul_core.types import GroupOutcome

__all__ = ["LinearHorizon"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearHorizon:
    """From `start` at training step 1 to `end` at training step `end_training_step`, and on.

        h(k) = start + floor((end - start) * min(k - 1, n - 1) / (n - 1))        k = training step

    with n = `end_training_step`, in whole numbers throughout.
    """

    start: int
    """At least 1."""
    end: int
    """More than `start`."""
    end_training_step: int
    """First training step whose horizon is `end`, at least 2."""

    def __post_init__(self) -> None:
        problems: list[str] = []
        if self.start < 1:
            problems.append(f"start must be at least 1, got {self.start}")
        if self.end <= self.start:
            problems.append(f"end must be more than start = {self.start}, got {self.end}")
        if self.end_training_step < 2:
            problems.append(f"end_training_step must be at least 2, got {self.end_training_step}")
        if problems:
            raise ConfigError("; ".join(problems))

    def horizon(self, training_step: int, state: HorizonState) -> int:
        """See `HorizonSchedule.horizon`; the state is not read."""
        intervals = self.end_training_step - 1
        passed = min(checked_training_step(training_step) - 1, intervals)
        return self.start + (self.end - self.start) * passed // intervals

    def after(self, state: HorizonState, outcomes: Sequence[GroupOutcome]) -> HorizonState:
        """`state`, unchanged."""
        return state
