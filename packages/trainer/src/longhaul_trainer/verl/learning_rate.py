"""The learning rate of an optimizer step, and the one that a training step reports.

verl's rises from 0: the first optimizer step changes no weight, and what was played for it is lost.
And verl reports the rate of the next one. Here the first of W steps has 1/W of the whole rate, and
the metric `lr` is that of the update it stands beside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR
from verl.workers.engine.base import BaseEngine


class RisingLearningRate(BaseEngine):
    """An engine of verl whose learning rate rises so. Put it before verl's engine."""

    optimizer_config: Any  # verl's, whose fields are untyped
    lr_scheduler: Any

    def _build_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> LambdaLR:
        """Constant after the rise; verl's own where `[verl]` names another kind."""
        settings = self.optimizer_config
        if settings.lr_scheduler_type != "constant":
            engine: Any = super()
            return engine._build_lr_scheduler(optimizer)
        num_rising = max(1, settings.lr_warmup_steps)
        return LambdaLR(optimizer, lambda done: min(1.0, (done + 1) / num_rising))

    def lr_scheduler_step(self) -> float:
        """Go on to the next optimizer step's rate; returns that of the one which is over."""
        used: float = self.lr_scheduler.get_last_lr()[0]
        self.lr_scheduler.step()
        return used
