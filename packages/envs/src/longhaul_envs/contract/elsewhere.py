"""What an environment does in a process of its own, under another hash seed, and what it leaves.

Run as a program it plays what standard input asks for, in the order given, and prints what was
seen as JSON.
"""

import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryFile
from typing import Any, NamedTuple, cast

from longhaul_core.errors import EnvironmentFailure
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Split, Task
from longhaul_envs.contract.recording import Facts, reactions, recorded
from longhaul_envs.players import opened

__all__ = ["Elsewhere", "Held", "played_elsewhere"]

_OTHER_HASH_SEED = "4711"
_DEADLINE_SECONDS = 600
_NUM_STEPS = 6


class Held(NamedTuple):
    """What a process holds."""

    threads: int
    descriptors: int
    children: int

    def exceeds(self, other: "Held") -> bool:
        """Whether it is more of anything."""
        return any(mine > its for mine, its in zip(self, other, strict=True))

    def __str__(self) -> str:
        """For messages."""
        return f"{self.threads} threads, {self.descriptors} descriptors, {self.children} children"


class Elsewhere(NamedTuple):
    """What was seen of another process."""

    facts: list[list[Facts]]
    """Of each episode."""
    held: list[Held]
    """After each time that an environment was made, played and closed. The first round warms up;
    the first that leaves more than it did is the last."""


def played_elsewhere(
    spec: GymEnvironmentSpec,
    episodes: Sequence[tuple[Task, list[str]]],
    *,
    rounds_of: Task,
    rounds: int,
    settle_seconds: float,
) -> Elsewhere:
    """Play in one process: the episodes by one environment, then `rounds_of` by one each time.

    Args:
        spec: Of the environment.
        episodes: Each task, and the actions that are played.
        rounds_of: The task of the rounds.
        rounds: How often an environment is made for it, at most.
        settle_seconds: Given to threads and processes that were told to end.

    Raises:
        EnvironmentFailure: If the process does not end well, or leaves a process behind.
    """
    rows = [[_row(task), actions] for task, actions in episodes]
    request = [spec.to_json(), rows, _row(rounds_of), rounds, settle_seconds]
    facts, held = cast("tuple[Any, Any]", _ask(request, settle_seconds=settle_seconds))
    return Elsewhere(facts, [Held(*counts) for counts in held])


def _ask(asked: object, *, settle_seconds: float) -> object:
    with ExitStack() as stack:
        request, answer, said = (
            stack.enter_context(TemporaryFile("w+", encoding="utf-8")) for _ in range(3)
        )
        json.dump(asked, request)
        request.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=request,
            stdout=answer,  # no pipes: a process that is left behind would hold their ends
            stderr=said,
            env={
                **os.environ,
                "PYTHONHASHSEED": _OTHER_HASH_SEED,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            start_new_session=True,  # by which what it leaves behind is found
        )
        try:
            process.wait(timeout=_DEADLINE_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise EnvironmentFailure(
                f"a second process did not end within {_DEADLINE_SECONDS} s; does a thread of the "
                "environment outlive `close`?"
            ) from error
        finally:
            left = _members_of_session(process.pid, settle_seconds=settle_seconds)
            for pid in left:
                _kill(pid)
            process.wait()
        if process.returncode != 0:
            said.seek(0)
            words = said.read().strip()[-500:]
            raise EnvironmentFailure(f"a second process cannot play it: {words}")
        if left:
            raise EnvironmentFailure(f"{len(left)} processes outlive the one that closed it")
        answer.seek(0)
        return json.loads(answer.read().splitlines()[-1])


def _members_of_session(session: int, *, settle_seconds: float) -> list[int]:
    """Processes of a session, once those that were about to end have ended."""
    deadline = time.monotonic() + settle_seconds
    while True:
        found = [pid for pid, fields in _processes().items() if fields[3] == str(session)]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)  # the end of a process that is no child is no event here


def _processes() -> Mapping[int, list[str]]:
    """By process id: state, parent, group, session and the rest of `/proc/PID/stat`."""
    found: dict[int, list[str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):  # it ended in between
            continue
        fields = line.rpartition(")")[2].split()
        if fields[0] != "Z":
            found[int(folder.name)] = fields
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return


def _row(task: Task) -> list[str | int]:
    return [task.environment, task.version, task.data_hash, task.task_id, task.seed, task.split]


def _task_of(row: list[str]) -> Task:
    environment, version, data_hash, task_id, seed, split = row
    return Task(
        environment=environment,
        version=version,
        data_hash=data_hash,
        task_id=task_id,
        seed=int(seed),
        split=Split(split),
    )


# In the second process


def _answer() -> None:
    spec_json, rows, rounds_of, rounds, settle_seconds = json.load(sys.stdin)
    spec = GymEnvironmentSpec.from_json(spec_json)
    facts: list[list[Facts]] = []
    if rows:
        with opened(spec) as player:
            facts = [reactions(player, _task_of(row), actions) for row, actions in rows]
    held = _held_by_rounds(spec, _task_of(rounds_of), rounds, settle_seconds)
    print(json.dumps([facts, held]))  # noqa: T201  it is what the process is for


def _held_by_rounds(
    spec: GymEnvironmentSpec, task: Task, rounds: int, settle_seconds: float
) -> list[Held]:
    found: list[Held] = []
    for number in range(rounds):
        with opened(spec) as player:
            recorded(player, task, num_steps=_NUM_STEPS, draw=Random(number))
            player.render()
        found.append(_settled(found[0] if found else None, settle_seconds))
        if found[-1].exceeds(found[0]):
            break
    return found


def _settled(expected: Held | None, settle_seconds: float) -> Held:
    """What is held, once it is no more than `expected`, or else once time has run out."""
    gc.collect()
    deadline = time.monotonic() + (settle_seconds if expected else 0.3)
    held = _held()
    while time.monotonic() < deadline and (expected is None or held.exceeds(expected)):
        time.sleep(0.05)
        held = _held()
    return held


def _held() -> Held:
    me = str(os.getpid())
    return Held(
        threads=max(threading.active_count(), len(os.listdir("/proc/self/task"))),
        descriptors=len(os.listdir("/proc/self/fd")),
        children=sum(fields[1] == me for fields in _processes().values()),
    )


if __name__ == "__main__":
    _answer()
