"""Synchronous or asynchronous rollout."""

import math
import re
from collections.abc import Generator
from typing import Annotated, Literal

from pydantic import Field

from longhaul_trainer.config.section import Section

HOUR = 3600.0
OTHER_STAGES_SECONDS = HOUR / 2
"""Limit of the stages that have no setting: they do not grow with the model or the episodes."""

SERVING = "serving"
"""The stage of a gateway by hand, which lasts until somebody ends it."""

Seconds = Annotated[float, Field(gt=0)]


class StageLimits(Section):
    """Seconds that a stage of a run may take.

    A stage that takes longer ends the run with an error that names it, because verl waits for ever
    when one of its processes has died. Stages without a setting have half an hour.
    """

    loading_the_model: Seconds = 2 * HOUR
    """Loading the weights into learner and engines, and compiling there."""
    loading_the_checkpoint: Seconds = 2 * HOUR
    """Loading a checkpoint, when a run is resumed."""
    episodes: Seconds = 6 * HOUR
    """All episodes of a training step; each step and reply also has a deadline of its own."""
    log_probabilities: Seconds = 6 * HOUR
    """Log-probabilities of all rows, by the learner and by the starting model."""
    values: Seconds = 6 * HOUR
    """The critic's values of all rows."""
    update: Seconds = 6 * HOUR
    """All optimizer steps of a training step."""
    weight_sync: Seconds = HOUR
    """Copying the new weights into the engines."""
    validation: Seconds = 6 * HOUR
    """All tasks of the panel."""
    checkpoint: Seconds = 2 * HOUR
    """Writing a checkpoint."""

    def of(self, stage: str) -> tuple[float, str | None]:
        """Limit of a stage in seconds, and the setting that raises it; None where none does.

        Args:
            stage: By the name that a run shows, e.g. `weight sync`.
        """
        if stage == SERVING:
            return math.inf, None
        field = re.sub(r"\W", "_", stage)
        if field not in type(self).model_fields:
            return OTHER_STAGES_SECONDS, None
        return getattr(self, field), f"trainer.stage_limit_seconds.{field}"


class TrainerConfig(Section):
    """Synchronous or asynchronous rollout: are episodes generated while the learner learns?"""

    mode: Literal["sync", "colocate_async", "separate_async"] = "sync"
    """`sync`: on-policy; each training step generates its episodes and then learns from them.
    `colocate_async`: asynchronous rollout on the learner's GPUs; episodes go on from one training
    step to the next, and pause during each update. `separate_async`: asynchronous rollout on GPUs
    of its own, which never pauses."""
    prefetch_batches: int = Field(default=0, ge=0)
    """Asynchronous rollout: batches of groups, of one training step each, that are in progress
    beyond the one that is learned from. At least 1, and 0 in `sync`."""
    max_staleness: int = Field(default=0, ge=0)
    """Training steps by which the weights that sampled a group may be older than those that learn
    from it. In `sync`: training steps that a surplus group of `sampling` may wait."""
    on_stale: Literal["drop", "wait"] = "drop"
    """What happens to groups that would exceed `max_staleness`: `drop` discards them and generates
    others; `wait` lets the learner wait for them, so that none is discarded."""
    stage_limit_seconds: StageLimits = StageLimits()

    def conflicts(self) -> Generator[str]:
        """Only asynchronous rollout prefetches, and `max_staleness` must allow it."""
        if self.mode == "sync":
            if self.prefetch_batches > 0:
                yield (
                    f"trainer.prefetch_batches = {self.prefetch_batches} with "
                    'trainer.mode = "sync", which generates one batch at a time; leave it out, or '
                    "choose another mode"
                )
            return
        if self.prefetch_batches == 0:
            yield (
                f'trainer.mode = "{self.mode}" with trainer.prefetch_batches = 0 has no batch in '
                'flight; set it to at least 1, or trainer.mode = "sync"'
            )
        if self.max_staleness < self.prefetch_batches:
            yield (
                f"trainer.max_staleness = {self.max_staleness} is less than "
                "trainer.prefetch_batches = "
                f"{self.prefetch_batches}; a batch is learned from that many training steps after "
                "it was begun, so it would always be stale"
            )
