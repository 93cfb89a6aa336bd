"""SIGTERM to every process of a run, as Slurm and systemd send it."""

import contextlib
import signal
import subprocess
from pathlib import Path

import pytest

from longhaul_core.processes import descendants
from training.launching import (
    SMOKE,
    finish,
    run,
    terminate_all,
    trainer,
    wait_for_the_dead,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

CANCELLED = 130


def starts_ray(process: "subprocess.Popen[str]") -> bool:
    """Whether the first of Ray's own processes is there."""
    for pid in descendants(process.pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if "gcs_server" in Path(f"/proc/{pid}/comm").read_text(encoding="utf-8"):
                return True
    return False


def test_a_run_that_is_terminated_while_ray_starts_ends_as_cancelled(tmp_path: Path) -> None:
    process = trainer(tmp_path, "train", str(SMOKE), cold=True)
    wait_until(process, lambda: starts_ray(process), every=0.005)
    process.send_signal(signal.SIGTERM)
    ended = finish(process, tmp_path, limit_seconds=120)

    assert ended.returncode == CANCELLED, ended.output
    assert "Traceback" not in ended.output
    wait_for_the_dead(tmp_path)


def test_a_run_whose_processes_are_all_terminated_is_stored_as_cancelled_and_goes_on(
    tmp_path: Path,
) -> None:
    process = trainer(tmp_path, "train", str(SMOKE), "num_training_steps=3", cold=True)
    wait_until(process, lambda: any(tmp_path.glob("runs/*/checkpoints/global_step_1")))
    terminate_all(process)
    ended = finish(process, tmp_path, limit_seconds=120)

    assert ended.returncode == CANCELLED, ended.output
    assert ended.query("SELECT status, message FROM attempts") == [("cancelled", "SIGTERM")]
    wait_for_the_dead(tmp_path)

    resumed = run(tmp_path, "resume", "last")

    assert resumed.returncode == 0, resumed.output
    assert resumed.query("SELECT status, resumes_after_training_step FROM attempts") == [
        ("cancelled", None),
        ("finished", 1),
    ]
    assert (
        resumed.value(
            "SELECT count(DISTINCT training_step) FROM metrics "
            "WHERE NOT rolled_back AND name = 'actor/optimizer_steps'"
        )
        == 3
    )
