"""What tests ask of other processes, which may end while they are asked."""

from collections.abc import Sequence

import psutil

__all__ = ["children_of", "command_of", "runs", "still_running"]


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
