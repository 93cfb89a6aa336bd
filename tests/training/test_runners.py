"""A runner and then the run are killed while episodes are played: nothing doubled, no hole."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ports import free_port
from training.launching import (
    Launched,
    finish,
    kill_group,
    run,
    trainer,
    wait_for_the_dead,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAMS = Path(__file__).with_name("programs.toml")
PROGRAM = Path(__file__).with_name("patient_program.py")
NUM_TRAINING_STEPS, NUM_TASKS, GROUP_SIZE = 3, 2, 3


@contextmanager
def runner(folder: Path, port: int, name: str) -> Generator["subprocess.Popen[bytes]"]:
    """A runner of two places, in a process of its own, until the block ends."""
    command = [
        *(str(Path(sys.executable).with_name("trainer")), "runner"),
        *("--connect", f"http://127.0.0.1:{port}", "--concurrency", "2", "--name", name),
        *("--drain-seconds", "1", "--", sys.executable, str(PROGRAM), str(folder)),
    ]
    with (folder / f"{name}.txt").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def asked(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """What the store says now; nothing while there is none yet."""
    try:
        with closing(sqlite3.connect(f"file:{folder / 'longhaul.db'}?mode=ro", uri=True)) as store:
            return store.execute(sql).fetchall()
    except sqlite3.OperationalError:
        return []


def is_playing(folder: Path, name: str, *, after_training_step: int) -> Callable[[], bool]:
    """Whether a runner plays an episode of training, and a checkpoint is left to go on from.

    The program ends none after a checkpoint before `go_on`.
    """
    playing = (
        "SELECT 1 FROM lease_summary WHERE state = 'playing' AND attempt = "
        "(SELECT max(attempt) FROM attempts) "
        f"AND runner = '{name}' AND task_id LIKE 'train%'"
    )

    def holds() -> bool:
        kept = any(folder.glob(f"runs/*/checkpoints/global_step_{after_training_step}"))
        return kept and bool(asked(folder, playing))

    return holds


def go_on(folder: Path, *reached: str) -> None:
    """Let `patient_program.py` end its episodes: from the start, or after a checkpoint."""
    for name in reached:
        (folder / name).touch()


def begun(folder: Path, port: int, *settings: str) -> "subprocess.Popen[str]":
    """A run that waits for runners."""
    tasks = [
        {"id": f"{split}-{place}", "split": split, "place": f"{split} {place}"}
        for split, number in (("train", NUM_TASKS), ("validation", 1), ("test", 1))
        for place in range(number)
    ]
    (folder / "hunts.jsonl").write_text("\n".join(map(json.dumps, tasks)), encoding="utf-8")
    shutil.copy(PROGRAMS, folder)
    described = (
        *(PROGRAMS.name, 'agent.kind="remote"', f"agent.port={port}", "agent.lost_seconds=3"),
        *(f"num_training_steps={NUM_TRAINING_STEPS}", f"tasks_per_training_step={NUM_TASKS}"),
        *(f"rollout.group_size={GROUP_SIZE}", "rollout.max_retries=3", *settings),
    )
    return trainer(folder, "train", *described)


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """Runner `one` is killed in training step 2, and the run in training step 3."""
    folder, port = tmp_path_factory.mktemp("runners"), free_port()
    process = begun(folder, port, "checkpoint.every=1")
    go_on(folder, "start", f"global_step_{NUM_TRAINING_STEPS}")
    with runner(folder, port, "one") as one, runner(folder, port, "two") as two:
        wait_until(process, is_playing(folder, "one", after_training_step=1), every=0.05)
        one.send_signal(signal.SIGKILL)
        go_on(folder, "global_step_1")
        wait_until(process, is_playing(folder, "two", after_training_step=2), every=0.05)
        kill_group(process)
        go_on(folder, "global_step_2")
        wait_for_the_dead(folder)
        ended = finish(trainer(folder, "resume", "last"), folder)
        assert ended.returncode == 0, ended.output
        two.send_signal(signal.SIGTERM)
        assert two.wait(60) == 0, (folder / "two.txt").read_text(encoding="utf-8")
    return ended


def test_both_were_killed_while_they_played(resumed: Launched) -> None:
    attempts = resumed.query("SELECT resumes_after_training_step, status FROM attempts ORDER BY 1")
    lost = resumed.value(
        "SELECT count(*) FROM lease_summary WHERE runner = 'one' AND state = 'lost'"
    )
    cut = resumed.value(
        "SELECT count(*) FROM lease_summary WHERE attempt = 0 AND state IN ('playing', 'run_ended')"
    )

    assert attempts[-1] == (2, "finished")
    assert len(attempts) == 2
    assert lost > 0
    assert cut > 0, "no lease was cut off by the kill of the run"


def test_each_episode_is_there_once_and_trained_once(resumed: Launched) -> None:
    played = resumed.query(
        "SELECT training_step, group_index, sample_index, sum(NOT failed), sum(trained) "
        "FROM episode_summary WHERE phase = 'train' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    )

    assert played == [
        (step, group, sample, 1, 1)
        for step in range(1, NUM_TRAINING_STEPS + 1)
        for group in range(NUM_TASKS)
        for sample in range(GROUP_SIZE)
    ]


def test_what_the_lost_runner_played_has_failed_and_was_played_again(resumed: Launched) -> None:
    lost = resumed.query(
        "SELECT e.failure_cause, e.trained FROM lease_summary l JOIN episode_summary e "
        "ON e.episode_id = l.episode_id WHERE l.runner = 'one' AND l.state = 'lost'"
    )

    assert set(lost) == {("runner_lost", 0)}


def test_each_trained_call_was_read_by_the_loss_once(resumed: Launched) -> None:
    trained, read, distinct = resumed.query(
        "SELECT (SELECT count(*) FROM call_detail JOIN episode_summary USING (episode_id) "
        "        WHERE episode_summary.trained AND call_detail.trained), count(*), "
        "count(DISTINCT episode_id || '/' || step_index || '/' || call_index) "
        "FROM call_loss_inputs WHERE update_training_step IS NOT NULL"
    )[0]

    assert trained == read == distinct > 0


def test_the_audit_of_the_whole_run_is_clean(resumed: Launched) -> None:
    audited = run(resumed.folder, "audit", "last")

    assert audited.returncode == 0, audited.output
    assert resumed.query("PRAGMA foreign_key_check") == []


def test_what_runners_play_when_a_run_is_cancelled_is_stored_as_cancelled(tmp_path: Path) -> None:
    port = free_port()
    process = begun(tmp_path, port)
    with runner(tmp_path, port, "one"):
        playing = "SELECT 1 FROM lease_summary WHERE state = 'playing'"
        wait_until(process, lambda: bool(asked(tmp_path, playing)))
        (run_folder,) = (tmp_path / "runs").iterdir()
        subprocess.run(
            [str(Path(sys.executable).with_name("trainer")), "runs", "cancel", run_folder.name],
            cwd=tmp_path,
            check=True,
            timeout=120,
        )
        ended = finish(process, tmp_path)

    assert ended.returncode == 130, ended.output
    assert ended.query("SELECT status FROM runs") == [("cancelled",)]
    states = ended.query("SELECT DISTINCT state FROM lease_summary WHERE state <> 'returned'")
    assert states == [("cancelled",)]
