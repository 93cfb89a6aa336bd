"""What a person sees of a run while it goes, and the watch over it.

verl, vLLM and Ray print a great deal, from many processes. While a run goes on, this
process's standard output and error are the file `logs/processes.log` in the run's folder,
and the terminal belongs to the display. The same thread that draws watches for a request
to cancel and for stages that outlast their limit: verl waits without a word when one of
its processes has died. SIGTERM cancels a run, as Ctrl-C does, and so does the end of its
terminal (SIGHUP), unless `nohup` has it ignored. While weights change, those two wait for the end
of the training step, so that it can be kept.
"""

from __future__ import annotations

import _thread
import io
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from longhaul_core.health import warnings_of
from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.ending_signals import ending_signals
from longhaul_trainer.training.stages import StageClock

if TYPE_CHECKING:
    from longhaul_trainer.verl.run_recorder import EpisodeCounts, RunRecorder

logger = logging.getLogger(__name__)

REDRAW_SECONDS = 1.0
ASK_SECONDS = 3.0
"""How often the store is read for a cancellation, and a heartbeat of the run is written to it."""


class RunProgress:
    """Shows a run and watches over it, on a thread of its own, while the block runs."""

    def __init__(
        self,
        stages: StageClock,
        *,
        config: RunConfig,
        log_folder: Path,
        redraw_seconds: float = REDRAW_SECONDS,
    ) -> None:
        self.cancelled_by = ""
        """Who cancelled, if it was not Ctrl-C."""
        self.deadline_missed = ""
        """Which stage outlasted its limit."""
        self.terminated = False
        """Whether SIGTERM or SIGHUP came; Ray's processes may have had it too."""
        self._redraw_seconds = redraw_seconds
        self._stages = stages
        self._config = config
        self._log = log_folder / "processes.log"
        self._stack = ExitStack()
        self._ended = threading.Event()
        self._recorder: RunRecorder | None = None
        self._asking = threading.Lock()
        self._is_interrupting = False
        """Whether the next signal is the watch's own."""
        self._is_ending = False
        self._ends_at = math.inf
        """When a run that waits for the end of its training step ends without (`monotonic`)."""
        self._counts: EpisodeCounts | None = None
        self._asked = 0.0
        self._line = ""
        self._warned_of: set[str] = set()
        self._step_seconds: list[float] = []
        stages.on_finished = self._finished
        stages.on_warning = self._warn

    def __enter__(self) -> Self:
        self._console = Console(file=self._stack.enter_context(_terminal()), stderr=False)
        self._stack.enter_context(_redirected(self._log))
        self._bar = Progress(
            TextColumn("[bold]training step"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task("", total=self._config.num_training_steps)
        self._live: Live | None = None
        if self._console.is_terminal:
            live = Live(
                self._view(),
                console=self._console,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live = self._stack.enter_context(live)
        for number in ending_signals():
            self._stack.callback(signal.signal, number, signal.getsignal(number))
        self.hear_signals()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(timeout=10)
        self._stack.close()

    def watch(self, recorder: RunRecorder) -> None:
        """Read the counts of episodes from `recorder`, and keep the run's heartbeat through it."""
        self._recorder = recorder

    def hear_signals(self) -> None:
        """Have SIGTERM and SIGHUP cancel the run; a second one changes nothing.

        To be called again once Ray is there: its own handler would abort this process after three
        seconds, and GNU `timeout` sends the signal twice.
        """
        self._is_interrupting = False
        for number in ending_signals():
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        own, self._is_interrupting = self._is_interrupting, False
        if not own:
            again, self.terminated = self.terminated, True
            self.cancelled_by = self.cancelled_by or signal.Signals(number).name
            if again or self._is_ending:
                return
            if self._stages.is_updating:
                self._stages.ends = True
                self._ends_at = time.monotonic() + self._config.checkpoint.grace_seconds
                return
        raise KeyboardInterrupt

    def _interrupt(self) -> None:
        """Raise KeyboardInterrupt in the main thread, of a run in the background of a script too.

        There the shell has SIGINT ignored.
        """
        self._is_interrupting = True
        _thread.interrupt_main(signal.SIGTERM)

    def say(self, line: str) -> None:
        """Print a line as it is, where the display is."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def hold_signals(self) -> None:
        """The run is about to end, and no signal hinders it but Ctrl-C."""
        self._is_ending = True

    def look_away(self) -> None:
        """Ask the recorder nothing any more: it is about to end as well.

        Ray ends a process, without a word, that asks something of it after its end.
        """
        self.hold_signals()
        with self._asking:
            self._recorder = None

    def _watch(self) -> None:
        while not self._ended.wait(self._redraw_seconds):
            self._check_stage()
            if time.monotonic() > self._ends_at:
                self._ends_at = math.inf
                if self._stages.is_updating:
                    self._interrupt()
            self._ask()
            if self._live is not None:
                self._live.update(self._view(), refresh=True)

    def _check_stage(self) -> None:
        stage = self._stages.stage
        limit, setting = self._config.trainer.stage_limit_seconds.of(stage.name)
        if time.monotonic() - stage.started > limit and not self.deadline_missed:
            self.deadline_missed = (
                f"stage {stage.name!r} of training step {stage.training_step} took longer than "
                f"{limit:g} s; a process of verl, vLLM or Ray has probably died: see {self._log}"
                + (f"; if all were at work, raise {setting}" if setting else "")
            )
            self._interrupt()

    def _ask(self) -> None:
        with self._asking:
            recorder = self._recorder
            if recorder is None or time.monotonic() - self._asked < ASK_SECONDS:
                return
            self._asked = time.monotonic()
            status = recorder.alive()
        if status is None:
            return
        self._counts = status.counts
        if status.cancel_requested and not self.cancelled_by:
            self.cancelled_by = "cancelled by `trainer runs cancel`"
            self._interrupt()

    def _finished(self, training_step: int, metrics: Mapping[str, float]) -> None:
        """A training step is over: remember its line, and warn of what looks like a collapse."""
        self._bar.update(self._task, completed=training_step)
        seconds = metrics.get("timing_s/step", 0.0)
        self._step_seconds = [*self._step_seconds, seconds][-10:]
        tokens = metrics.get("perf/total_num_tokens", 0.0)
        self._line = (
            f"return {metrics['episodes/mean_return']:.3f}   "
            f"success {metrics['episodes/success_rate']:.0%}   "
            f"steps {metrics['episodes/mean_steps']:.1f}   "
            f"invalid {metrics['episodes/invalid_action_rate']:.1%}   "
            f"entropy {metrics['actor/entropy']:.3f}   "
            f"{seconds:.1f} s   {tokens / max(seconds, 1e-9):,.0f} tokens/s"
        )
        logger.info("training step %d is over: %s", training_step, self._line)
        for warning in warnings_of(metrics):
            if warning.metric not in self._warned_of:
                self._warned_of.add(warning.metric)
                self._warn(training_step, f"{warning.message}; {warning.advice}")
        if self._live is None:
            self._console.print(
                f"step {training_step}  {self._line}", highlight=False, soft_wrap=True
            )

    def _warn(self, training_step: int, text: str) -> None:
        logger.warning("training step %d: %s", training_step, text)
        self._console.print(
            f"[yellow]step {training_step}:[/] {escape(text)}", highlight=False, soft_wrap=True
        )

    def _view(self) -> Group:
        stage = self._stages.stage
        elapsed = time.monotonic() - stage.started
        now = f"{stage.name}  {elapsed:.0f} s"
        counts = self._counts
        if counts is not None and stage.name in ("episodes", "validation"):
            mean = counts.total_return / counts.num_episodes if counts.num_episodes else 0.0
            failed = f", {counts.num_failed} failed" if counts.num_failed else ""
            now += f"  {counts.num_episodes} episodes{failed}, {counts.num_steps} steps"
            now += f", return so far {mean:.3f}"
        lines = [self._bar, Text(f"now      {now}{self._left()}", style="dim")]
        if self._line:
            lines.append(Text(f"last     {self._line}", style="dim"))
        return Group(*lines)

    def _left(self) -> str:
        if not self._step_seconds:
            return ""
        mean = sum(self._step_seconds) / len(self._step_seconds)
        done = self._bar.tasks[0].completed
        left = (self._config.num_training_steps - done) * mean
        return f"  about {left / 60:.0f} min left"


class _Terminal(io.TextIOWrapper):
    """A terminal or pipe that may be closed while the run goes on; what comes then is lost."""

    is_gone = False

    def write(self, text: str, /) -> int:
        with self._while_it_is_there():
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with self._while_it_is_there():
            super().flush()

    @contextmanager
    def _while_it_is_there(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            if not self.is_gone:
                self.is_gone = True
                logger.warning("what the run prints is lost from here on: %s", error)


@contextmanager
def _terminal() -> Generator[TextIO]:
    """The terminal that standard output is now, kept open under another descriptor."""
    sys.stdout.flush()
    binary = os.fdopen(os.dup(1), "wb")
    terminal = _Terminal(binary, encoding="utf-8", line_buffering=True)
    try:
        yield terminal
    finally:
        with suppress(OSError):  # of a terminal that is gone
            terminal.close()


@contextmanager
def _redirected(path: Path) -> Generator[None]:
    """Standard output and error, of this process and its children, go to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for earlier, standard in zip(saved, (1, 2), strict=True):
            os.dup2(earlier, standard)
            os.close(earlier)
