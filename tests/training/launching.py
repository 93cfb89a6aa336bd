"""Runs of the real command line, in processes of their own, on a store and folder of their own.

All processes of a run are forks of processes that have imported what they need
(`conftest.forked`), unless it is started cold.
"""

import contextlib
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from longhaul_core.processes import descendants
from longhaul_trainer.cli.main import app
from longhaul_trainer.verl.cpu.preload import SHARED_ZYGOTE

ROOT = Path(__file__).parents[2]
FORKED_TRAINER = "LONGHAUL_TESTS_TRAINER"
"""Variable: the Python that trainers which are not cold are started with."""
SMOKE = ROOT / "configs" / "smoke.toml"
SMOKE_RUN = ("train", str(SMOKE), "tasks_per_training_step=4")
"""The smoke run with half of its tasks: all of them take twice as long, and show no more."""
WORLDS = Path(__file__).with_name("worlds.toml")
TIME_LIMIT_SECONDS = 600
STARTED: list["subprocess.Popen[str]"] = []
"""Every run of this session, so that none outlives the test that started it."""


@dataclass(frozen=True)
class Launched:
    """A training run that was started in `folder`."""

    folder: Path
    returncode: int
    output: str

    @property
    def run_folder(self) -> Path:
        (folder,) = (self.folder / "runs").iterdir()
        return folder

    @property
    def run_id(self) -> str:
        return self.run_folder.name

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Rows of `sql` on the run's store, as a person would ask it."""
        connection = sqlite3.connect(f"file:{self.folder / 'longhaul.db'}?mode=ro", uri=True)
        try:
            return connection.execute(sql, parameters).fetchall()
        finally:
            connection.close()

    def value(self, sql: str, *parameters: object) -> Any:  # noqa: ANN401  # what SQL holds
        """The only number that `sql` asks for."""
        ((value,),) = self.query(sql, *parameters)
        return value


def trainer(
    folder: Path, *arguments: str, cold: bool = False, program: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """Start `trainer …` in `folder`, as the leader of a process group.

    Unless it is cold this process stands in for it: SIGKILL and SIGTERM reach it, SIGINT does not.

    Args:
        folder: Its working folder.
        arguments: Of the command line.
        cold: As a user starts it, with a zygote of its own for Ray's workers.
        program: What Python is given in place of the command line's own file.
    """
    # SLURM's way to hide GPUs, which a run on the CPU has nothing to do with.
    variables = os.environ | {"COLUMNS": "100", "CUDA_VISIBLE_DEVICES": "NoDevFiles"}
    command = [*(program or (str(Path(sys.executable).with_name("trainer")),)), *arguments]
    if cold:
        variables.pop(SHARED_ZYGOTE, None)
        # As after a login: this soft limit is every distribution's.
        command = ["bash", "-c", 'ulimit -Sn 1024; exec "$@"', "bash", *command]
    else:
        command.insert(0, variables[FORKED_TRAINER])
    with (folder / "output.txt").open("a", encoding="utf-8") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=variables,
        )
    STARTED.append(process)
    return process


FORKING = (
    "-c",
    f"""
import os, sys
from types import SimpleNamespace
from longhaul_trainer.cli import evolve, warm_start
from longhaul_trainer.cli.main import main

python, command = os.environ["{FORKED_TRAINER}"], {str(Path(sys.executable).with_name("trainer"))!r}
of_forks = SimpleNamespace(executable=python, argv=[command], stdout=sys.stdout)
evolve.sys = warm_start.sys = of_forks
main()
""",
)
"""A program: `trainer`, whose further commands are forks too."""


def forked_trainer(file: Path) -> None:
    """Write a program that starts a trainer which is not cold."""
    command = [os.environ[FORKED_TRAINER], str(Path(sys.executable).with_name("trainer"))]
    file.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
    file.chmod(0o700)


def finish(
    process: subprocess.Popen[str], folder: Path, *, limit_seconds: float = TIME_LIMIT_SECONDS
) -> Launched:
    """Wait for the end of a run, whatever it is; an interrupted wait ends the run too."""
    try:
        returncode = process.wait(limit_seconds)
    except BaseException:
        kill_group(process)
        raise
    return Launched(folder, returncode, (folder / "output.txt").read_text(encoding="utf-8"))


def run(folder: Path, *arguments: str, cold: bool = False) -> Launched:
    """Start `trainer …` and wait for its end."""
    return finish(trainer(folder, *arguments, cold=cold), folder)


def audit(launched: Launched) -> None:
    """Have a run audited, as `trainer audit` does, and assert that it is as it was meant.

    In this process: a fork of the command takes 4 s to come to it.
    """
    with contextlib.chdir(launched.folder):
        ended = CliRunner().invoke(app, ["audit", launched.run_id])
    assert ended.exit_code == 0, ended.output


def path_with_tests() -> str:
    """What `PYTHONPATH` must be for a run to find the environments of the tests."""
    tests = str(Path(__file__).parents[1])
    return os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])


def in_world(environment: str) -> tuple[str, str]:
    """What `trainer train` is given to train in one of the worlds of these tests."""
    return str(WORLDS), f'environment.id="{environment}"'


def recorded(folder: Path, sql: str) -> int:
    """The number that `sql` asks for now, of a run that may just be making its store."""
    try:
        return int(Launched(folder, 0, "").value(sql))
    except sqlite3.OperationalError:
        return 0


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill -9 of the whole process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


def terminate_all(process: subprocess.Popen[str]) -> None:
    """SIGTERM to a program and to everything below it, and to the program once more."""
    for pid in (*descendants(process.pid), process.pid, process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def wait_until(
    process: subprocess.Popen[str], happened: Callable[[], bool], *, every: float = 0.2
) -> None:
    """Poll for a moment of a run, with so many seconds between; the run must not end before it."""
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    while not happened():
        assert process.poll() is None, f"the run ended with {process.returncode} too soon"
        assert time.monotonic() < deadline, "the moment never came"
        time.sleep(every)


def processes_in(folder: Path) -> dict[int, str]:
    """Processes whose working folder is `folder`: the command line of each, by its id."""
    found: dict[int, str] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                command = (process / "cmdline").read_text().replace("\0", " ")
                found[int(process.name)] = command
        except OSError:
            continue
    return found


def wait_for_the_dead(folder: Path) -> None:
    """Nothing that the killed process had started may stay."""
    deadline = time.monotonic() + 60
    while left := processes_in(folder):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
