"""Data that is made once: by one of several processes, whole or not at all."""

import os
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from longhaul_core.errors import MachineError
from longhaul_envs.built import built_once, shared

BUILD = """
import sys, time
from pathlib import Path
from longhaul_envs.built import built_once

def build(folder):
    with open(sys.argv[2], "a", encoding="utf-8") as log:
        log.write("built\\n")
    (folder / "first").write_text("1", encoding="utf-8")
    print("half", flush=True)
    if sys.argv[3] == "wait":
        sys.stdin.read()
    (folder / "second").write_text("2", encoding="utf-8")

print("asking", flush=True)
print(sorted(p.name for p in built_once(Path(sys.argv[1]), build).iterdir()), flush=True)
"""


def start(target: Path, log: Path, how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, str(target), str(log), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_processes_at_once_build_it_once_and_both_find_it_whole(tmp_path: Path) -> None:
    target, log = tmp_path / "made" / "index", tmp_path / "log"
    first = start(target, log, "wait")
    assert first.stdout is not None
    assert [first.stdout.readline() for _ in range(2)] == ["asking\n", "half\n"]
    second = start(target, log, "go")
    assert second.stdout is not None
    assert second.stdout.readline() == "asking\n"

    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(timeout=1)  # for the first, which has half of it
    assert not target.exists()
    outputs = [first.communicate("")[0], second.communicate("")[0]]

    assert outputs == ["['first', 'second']\n"] * 2
    assert log.read_text("utf-8") == "built\n"


def test_a_place_that_cannot_be_written_is_named_with_what_names_another(tmp_path: Path) -> None:
    (tmp_path / "home").touch()  # below a file nothing can be made, not even by root

    with pytest.raises(MachineError, match=r"home/\.cache/index cannot be made: .*LONGHAUL_DATA"):
        built_once(tmp_path / "home" / ".cache" / "index", lambda folder: None)


def test_a_process_that_is_killed_while_it_builds_leaves_the_place_to_the_next(
    tmp_path: Path,
) -> None:
    target, log = tmp_path / "index", tmp_path / "log"
    killed = start(target, log, "wait")
    assert killed.stdout is not None
    assert [killed.stdout.readline() for _ in range(2)] == ["asking\n", "half\n"]
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()

    assert not target.exists()
    assert start(target, log, "go").communicate("")[0].endswith("['first', 'second']\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".index.lock", "index", "log"]


def test_a_build_that_raises_leaves_nothing(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "half").write_text("", encoding="utf-8")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        built_once(tmp_path / "index", build)

    assert sorted(path.name for path in tmp_path.iterdir()) == [".index.lock"]


class Opened:
    """Counts how often it is opened."""

    num_opened = 0

    def __init__(self, name: str) -> None:
        Opened.num_opened += 1
        self.name = name


def test_what_is_shared_is_opened_once_and_let_go_with_its_last_holder() -> None:
    Opened.num_opened = 0
    first, second, other = (shared(Opened, name) for name in ("shop", "shop", "library"))
    gone = weakref.ref(first)

    assert first is second
    assert first is not other
    assert Opened.num_opened == 2

    del first, second
    assert gone() is None
    assert shared(Opened, "shop").name == "shop"
    assert Opened.num_opened == 3


def test_a_fork_opens_its_own() -> None:
    opened = shared(Opened, "forked")
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, b"other" if shared(Opened, "forked") is not opened else b"same")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        assert answer.read() == b"other"
    os.waitpid(pid, 0)
