"""Tests for `longhaul_trainer.cli.exit_codes` and `run_log`."""

import io
import json
import logging
from pathlib import Path

import pytest
from rich.console import Console

from longhaul_core import errors
from longhaul_trainer.cli.exit_codes import ExitCode, show_error
from longhaul_trainer.cli.run_log import NOISE, RunLog
from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.directory import RunDirectory


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), ExitCode.BAD_CONFIG),
        (errors.MachineError("x"), ExitCode.MACHINE),
        (errors.StoreError("x"), ExitCode.STORE),
        (errors.PolicyTimeout("x"), ExitCode.RUN_FAILED),
        (errors.LonghaulError("x"), ExitCode.RUN_FAILED),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: errors.LonghaulError, code: ExitCode) -> None:
    assert show_error(error, Console(file=io.StringIO())) is code


def test_an_error_is_shown_as_it_is_with_its_notes_and_without_a_traceback() -> None:
    error = errors.ConfigError("betas[0] = [bold] is wrong")
    error.add_note("Logs: /somewhere")
    screen = io.StringIO()

    show_error(error, Console(file=screen, width=100))

    assert "betas[0] = [bold] is wrong" in screen.getvalue()
    assert "Logs: /somewhere" in screen.getvalue()
    assert "Traceback" not in screen.getvalue()


def test_a_path_is_shown_in_one_piece_on_a_narrow_screen() -> None:
    path = "/home/" + "folder/" * 20 + "processes.log"
    error = errors.MachineError("the engine died")
    error.add_note(f"Logs: {path}")
    screen = io.StringIO()

    show_error(error, Console(file=screen, width=60))

    assert path in screen.getvalue()


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A fresh run's folder."""
    return RunDirectory.create(
        RunConfig(
            num_training_steps=1, tasks_per_training_step=1, runs_directory=str(tmp_path / "runs")
        )
    )


def test_a_run_logs_for_people_and_for_machines(run: RunDirectory) -> None:
    with RunLog(run):
        logging.getLogger("longhaul_trainer.somewhere").info("step %d done", 3)

    line = run.log_file.read_text(encoding="utf-8")
    entry = json.loads(run.log_file.with_suffix(".jsonl").read_text(encoding="utf-8"))
    assert line.endswith("INFO    longhaul_trainer.somewhere: step 3 done\n")
    assert (entry["level"], entry["message"]) == ("INFO", "step 3 done")


def test_a_library_that_quietens_the_root_loggers_handlers_does_not_quieten_a_runs_log(
    run: RunDirectory,
) -> None:
    with RunLog(run):
        for handler in logging.getLogger().handlers:
            if Path(getattr(handler, "baseFilename", "")).parent == run.log_file.parent:
                handler.setLevel(logging.ERROR)
        logging.getLogger("longhaul_trainer.somewhere").info("step 3 done")

    assert "step 3 done" in run.log_file.read_text(encoding="utf-8")


def test_a_warning_that_each_read_repeats_is_left_out_and_an_error_is_not(
    run: RunDirectory,
) -> None:
    with RunLog(run):
        logging.getLogger(NOISE).warning("too many threads")
        logging.getLogger(NOISE).error("no threads at all")

    assert "too many" not in run.log_file.read_text(encoding="utf-8")
    assert "no threads at all" in run.log_file.read_text(encoding="utf-8")


def test_an_error_leaves_its_traceback_in_the_log_and_the_logs_path_on_itself(
    run: RunDirectory,
) -> None:
    def fail() -> None:
        raise errors.StoreError("the disk is full")

    with pytest.raises(errors.StoreError) as raised:
        with RunLog(run):
            fail()

    assert raised.value.__notes__ == [f"Logs: {run.logs}"]
    assert "in fail" in run.log_file.read_text(encoding="utf-8")
    entry = json.loads(run.log_file.with_suffix(".jsonl").read_text(encoding="utf-8"))
    assert "the disk is full" in entry["traceback"]


def test_a_log_ends_with_its_block_and_a_second_attempt_adds_to_it(run: RunDirectory) -> None:
    log = logging.getLogger("longhaul_trainer.somewhere")
    with RunLog(run):
        log.info("first")
    log.info("between")
    with RunLog(run):
        log.info("second")

    text = run.log_file.read_text(encoding="utf-8")
    assert [line.rpartition(" ")[2] for line in text.splitlines()] == ["first", "second"]
