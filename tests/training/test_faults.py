"""What breaks in the midst of a real run ends its own episode, and a user ends the run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from training.faulty_world import ID, KINDS
from training.launching import (
    SMOKE,
    finish,
    in_world,
    path_with_tests,
    recorded,
    trainer,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

CANCELLED, MACHINE = 130, 3


def test_broken_environments_end_their_own_episodes_and_a_second_terminal_cancels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", path_with_tests())
    process = trainer(
        tmp_path,
        "train",
        *in_world(ID),
        'environment.import_modules=["training.faulty_world"]',
        "environment.step_deadline_seconds=2",
        "rollout.max_retries=1",
        "num_training_steps=40",
    )
    (run_folder,) = _folder_of(tmp_path, process)
    busy = subprocess.run(
        [str(Path(sys.executable).with_name("trainer")), "resume", run_folder.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    wait_until(
        process,
        lambda: (
            recorded(tmp_path, "SELECT count(*) FROM metrics WHERE name = 'actor/optimizer_steps'")
            >= 4  # every task was played once
        ),
    )
    subprocess.run(
        [str(Path(sys.executable).with_name("trainer")), "runs", "cancel", run_folder.name],
        cwd=tmp_path,
        check=True,
        timeout=120,
    )
    ended = finish(process, tmp_path)

    assert busy.returncode == MACHINE
    assert f"process {ended.value('SELECT pid FROM attempts')}" in busy.stderr.replace("\n", " ")
    assert ended.returncode == CANCELLED, ended.output
    assert ended.query("SELECT status FROM runs") == [("cancelled",)]
    causes = ended.query(
        "SELECT DISTINCT t.task_id, f.cause FROM failures f JOIN episodes e ON e.id = f.episode_id "
        "JOIN tasks t ON t.hash = e.task_hash"
    )
    by_kind = {str(task).split("/")[-1]: cause for task, cause in causes}
    assert by_kind == {
        "raises in reset": "environment_error",
        "raises in step": "environment_error",
        "never returns": "environment_timeout",
    }
    assert set(by_kind) == set(KINDS) - {"sound"}
    retries = ended.query("SELECT DISTINCT retry FROM episodes WHERE failed ORDER BY 1")
    assert retries == [(0,), (1,)]
    assert ended.value("SELECT count(*) FROM episodes WHERE failed AND trained") == 0
    assert ended.value("SELECT count(*) FROM episodes WHERE failed AND episode_return = 0") == 0


def test_ctrl_c_while_starting_leaves_no_process(tmp_path: Path) -> None:
    process = trainer(tmp_path, "train", str(SMOKE), cold=True)
    wait_until(process, lambda: recorded(tmp_path, "SELECT count(*) FROM runs") > 0)
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    os.kill(process.pid, signal.SIGINT)
    ended = finish(process, tmp_path)

    assert ended.returncode == CANCELLED, ended.output
    assert ended.query("SELECT status FROM runs") == [("cancelled",)]
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive


def _folder_of(folder: Path, process: "subprocess.Popen[str]") -> list[Path]:
    runs = folder / "runs"
    wait_until(process, lambda: any(runs.glob("*/run.lock")) and any(runs.glob("*/logs/*")))
    return list(runs.iterdir())
