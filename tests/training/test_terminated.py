"""SIGTERM while a run starts; `test_kill.py` sends it to every process of one that trains."""

import contextlib
import signal
import subprocess
from pathlib import Path

import pytest

from longhaul_core.processes import descendants
from training.launching import (
    SMOKE,
    finish,
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
    wait_until(process, lambda: starts_ray(process), every=0.02)
    process.send_signal(signal.SIGTERM)
    ended = finish(process, tmp_path, limit_seconds=120)

    assert ended.returncode == CANCELLED, ended.output
    assert "Traceback" not in ended.output
    wait_for_the_dead(tmp_path)
