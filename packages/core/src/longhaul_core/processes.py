"""What a process has started, and the memory that it holds (Linux, `/proc`)."""

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["descendants", "resident_bytes"]


def descendants(pid: int) -> list[int]:
    """Process ids of all that a process started and that is still below it, parents first.

    Those that have ended and are not reaped are among them. Empty if there is no such process.
    """
    found: list[int] = [pid]
    for one in found:
        try:
            for thread in Path("/proc", str(one), "task").iterdir():
                found += map(int, (thread / "children").read_text("ascii").split())
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
    return found[1:]


def resident_bytes(pids: Iterable[int]) -> int:
    """Resident memory of processes, in bytes; those that are gone have none.

    Pages that processes share count for each of them.
    """
    pages = 0
    for pid in pids:
        try:
            pages += int(Path("/proc", str(pid), "statm").read_text("ascii").split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")
