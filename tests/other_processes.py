"""What tests ask of other processes, which may end while they are asked."""

import time
from collections.abc import Callable, Sequence

import psutil

__all__ = ["alive", "children_of", "command_of", "runs", "still_running", "wait_until"]


def command_of(process: psutil.Process) -> str:
    """Its command line; empty when it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def children_of(process: psutil.Process) -> list[psutil.Process]:
    """What it has started; nothing when it has ended."""
    try:
        return process.children()
    except psutil.Error:
        return []


def runs(process: psutil.Process) -> bool:
    """Whether it goes on; one whose exit code nobody has asked for does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def still_running(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Those that do not end within a minute."""
    _, alive = psutil.wait_procs(processes, timeout=60)
    return [one for one in alive if runs(one)]


def alive(pid: int) -> bool:
    """As `runs`, of the process of this number."""
    try:
        return runs(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def wait_until(claim: Callable[[], bool]) -> None:
    """Wait for something that happens in another process; a minute is a failure."""
    deadline = time.monotonic() + 60
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.02)
