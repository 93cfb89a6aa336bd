"""What a run is doing now: read by the progress display and by the watch over deadlines.

verl waits silently when one of its processes has died. So the trainer records the stage that it
enters, and a stage that exceeds its time limit ends the run with an error that names the stage.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One thing the run does."""

    name: str
    training_step: int
    started: float
    """`time.monotonic()` at its beginning."""


class StageClock:
    """The current stage, safe to read from another thread and from a handler of signals."""

    def __init__(self) -> None:
        self.is_updating = False
        """Whether weights have begun to change by a training step that is not over."""
        self.ends = False
        """Whether no further training step may begin."""
        self.on_finished: Callable[[int, Mapping[str, float]], None] | None = None
        """Called with the number of a training step and its metrics when it is over."""
        self.on_warning: Callable[[int, str], None] | None = None
        """Called with the number of a training step and what a person should know of it."""
        self._stage = Stage(name="start", training_step=0, started=time.monotonic())

    def enter(self, name: str, *, training_step: int) -> None:
        """Say that stage `name` begins; the one before has ended."""
        self._stage = Stage(name=name, training_step=training_step, started=time.monotonic())
        logger.info("training step %d: %s", training_step, name)

    def begin_step(self, training_step: int) -> None:
        """Say that a training step begins with its episodes.

        Raises:
            KeyboardInterrupt: If `ends`.
        """
        if self.ends:
            raise KeyboardInterrupt
        self.enter("episodes", training_step=training_step)

    def begin_update(self, training_step: int) -> None:
        """Say that the learner begins to change weights; `finished` ends that."""
        self.is_updating = True
        self.enter("update", training_step=training_step)

    @property
    def stage(self) -> Stage:
        """The current stage."""
        return self._stage

    def finished(self, *, training_step: int, metrics: Mapping[str, float]) -> None:
        """Say that a training step is over, with what was measured in it."""
        self.is_updating = False
        if self.on_finished is not None:
            self.on_finished(training_step, metrics)

    def warn(self, training_step: int, text: str) -> None:
        """Say what a person should know of a training step; from any thread."""
        if self.on_warning is not None:
            self.on_warning(training_step, text)
