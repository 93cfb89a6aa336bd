"""Tests for `longhaul_trainer.verl.progress`: the watch over a run, and what ends it."""

import os
import pty
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from longhaul_core.store.maintenance import request_cancel
from longhaul_core.store.queries import get_run
from longhaul_core.store.session import open_store
from longhaul_trainer.config import RunConfig
from longhaul_trainer.training.stages import StageClock
from longhaul_trainer.verl import progress as progress_module
from longhaul_trainer.verl.progress import RunProgress
from trainer.verl.local_ray import ray_here, recorder_of, refusing, wait_for
from trainer.verl.pythons import Pythons

pytestmark = [
    pytest.mark.usefixtures("cpu_run"),
    pytest.mark.slow,  # Ray takes seconds to start
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of Ray's own imports
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of Ray's own imports
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of Ray's own imports
]


@pytest.fixture(scope="module")
def _ray(cpu_run: None, pythons: Pythons) -> Generator[None]:
    with ray_here(python=pythons.engine):
        yield


METRICS = {
    "episodes/mean_return": 0.5,
    "episodes/success_rate": 0.5,
    "episodes/mean_steps": 3.0,
    "episodes/invalid_action_rate": 0.0,
    "actor/entropy": 1.0,
}
"""Of a training step, those that its line shows."""


def short_stages() -> RunConfig:
    """A run whose weight sync may take a tenth of a second."""
    return RunConfig.model_validate(
        {
            "num_training_steps": 2,
            "tasks_per_training_step": 2,
            "trainer": {"stage_limit_seconds": {"weight_sync": 0.1}},
        }
    )


def watching(stages: StageClock, *, log_folder: Path) -> RunProgress:
    """What watches over a run of short stages, fifty times a second."""
    return RunProgress(stages, config=short_stages(), log_folder=log_folder, redraw_seconds=0.02)


def silent_seconds(engine: Engine) -> float:
    with Session(engine) as session:
        return time.time() - get_run(session, run_id="run").summary.heartbeat_at


@pytest.mark.usefixtures("_ray")
def test_the_watch_goes_on_after_a_sign_of_life_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress_module, "ASK_SECONDS", 0.05)
    path = tmp_path / "store.db"
    config = RunConfig(num_training_steps=2, tasks_per_training_step=2)
    with recorder_of(path) as recorder:
        engine = open_store(path)
        with RunProgress(
            StageClock(), config=config, log_folder=tmp_path, redraw_seconds=0.02
        ) as progress:
            with refusing(path, "UPDATE OF heartbeat_at ON runs"):
                progress.watch(recorder)
                wait_for(lambda: "sign of life" in caplog.text)
            wait_for(lambda: silent_seconds(engine) < 5)
            with pytest.raises(KeyboardInterrupt):
                request_cancel(engine, run_id="run")
                wait_for(lambda: progress.deadline_missed)  # never
            progress.look_away()
        engine.dispose()

    assert progress.cancelled_by == "cancelled by `trainer runs cancel`"


def test_a_stage_that_outlasts_its_own_limit_ends_the_run_with_the_setting_that_raises_it(
    tmp_path: Path,
) -> None:
    stages = StageClock()
    with watching(stages, log_folder=tmp_path) as progress:
        stages.enter("checkpoint", training_step=3)
        time.sleep(0.3)  # longer than another stage's limit
        assert not progress.deadline_missed
        with pytest.raises(KeyboardInterrupt):
            stages.enter("weight sync", training_step=3)
            wait_for(lambda: False)

    assert progress.deadline_missed.startswith(
        "stage 'weight sync' of training step 3 took longer than 0.1 s"
    )
    assert progress.deadline_missed.endswith("raise trainer.stage_limit_seconds.weight_sync")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels_a_run_and_a_second_one_changes_nothing(
    number: signal.Signals, tmp_path: Path
) -> None:
    before = signal.getsignal(number)
    with watching(StageClock(), log_folder=tmp_path) as progress:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        signal.raise_signal(number)
        assert progress.cancelled_by == number.name
        assert progress.terminated
    assert signal.getsignal(number) is before


@contextmanager
def signalled_while_weights_change(folder: Path) -> Generator[tuple[RunProgress, StageClock]]:
    """A run that has had SIGTERM in its first update, and has minutes to end it."""
    stages = StageClock()
    with watching(stages, log_folder=folder) as progress:
        stages.begin_step(1)
        stages.begin_update(1)
        signal.raise_signal(signal.SIGTERM)
        yield progress, stages
    assert progress.cancelled_by == "SIGTERM"
    assert not progress.deadline_missed


def test_a_signal_while_weights_change_lets_the_training_step_end(tmp_path: Path) -> None:
    with signalled_while_weights_change(tmp_path) as (progress, stages):
        assert progress.terminated
        for stage in ("weight sync", "validation", "checkpoint"):
            stages.enter(stage, training_step=1)
        stages.finished(training_step=1, metrics=METRICS)
        with pytest.raises(KeyboardInterrupt):
            stages.begin_step(2)


def test_a_training_step_that_ended_in_time_after_a_signal_is_kept_in_peace(
    tmp_path: Path,
) -> None:
    with signalled_while_weights_change(tmp_path) as (progress, stages):
        stages.finished(training_step=1, metrics=METRICS)
        progress.hold_signals()
        progress._ends_at = 0.0  # the grace is over while the checkpoint is written
        wait_for(lambda: progress._ends_at > 0)  # the watch saw it, and let it pass
        signal.raise_signal(signal.SIGHUP)


def test_a_training_step_that_does_not_end_in_time_after_a_signal_is_left(
    tmp_path: Path,
) -> None:
    with signalled_while_weights_change(tmp_path) as (progress, _):
        with pytest.raises(KeyboardInterrupt):
            progress._ends_at = 0.0
            wait_for(lambda: False)


def test_under_nohup_a_run_outlives_its_terminal(tmp_path: Path) -> None:
    earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with watching(StageClock(), log_folder=tmp_path) as progress:
            signal.raise_signal(signal.SIGHUP)
            assert not progress.terminated
    finally:
        signal.signal(signal.SIGHUP, earlier)


def test_sigterm_hinders_no_run_that_is_ending_but_a_stage_that_takes_too_long_does(
    tmp_path: Path,
) -> None:
    stages = StageClock()
    with watching(stages, log_folder=tmp_path) as progress:
        progress.look_away()
        signal.raise_signal(signal.SIGTERM)
        assert progress.terminated
        with pytest.raises(KeyboardInterrupt):
            stages.enter("weight sync", training_step=1)
            wait_for(lambda: False)
    assert progress.deadline_missed


def test_the_watch_interrupts_a_run_in_the_background_of_a_script_where_sigint_is_ignored(
    tmp_path: Path,
) -> None:
    stages = StageClock()
    earlier = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with watching(stages, log_folder=tmp_path) as progress:
            with pytest.raises(KeyboardInterrupt):
                stages.enter("weight sync", training_step=1)
                wait_for(lambda: False)
    finally:
        signal.signal(signal.SIGINT, earlier)
    assert not progress.terminated


@contextmanager
def standard_output(kind: str) -> Generator[int]:
    """The other end of a terminal or pipe that standard output is while the block runs."""
    saved = os.dup(1)
    ours, theirs = pty.openpty() if kind == "terminal" else os.pipe()
    os.dup2(theirs, 1)
    os.close(theirs)
    try:
        yield ours
    finally:
        os.dup2(saved, 1)
        os.close(saved)


@pytest.mark.parametrize("kind", ["terminal", "pipe"])
def test_where_nobody_reads_any_more_what_a_run_prints_the_run_goes_on(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stages = StageClock()
    with (
        standard_output(kind) as ours,
        watching(stages, log_folder=tmp_path) as progress,
    ):
        progress.say("a line of a gateway")
        read = b""
        while b"gateway" not in read:  # the bar may come in pieces, before the line or after it
            read += os.read(ours, 4096)
        os.close(ours)
        progress.say("another line")
        stages.warn(1, "all is well")
        with pytest.raises(KeyboardInterrupt):
            stages.enter("weight sync", training_step=1)
            wait_for(lambda: False)
    assert progress.deadline_missed
    assert caplog.text.count("what the run prints is lost from here on") == 1
