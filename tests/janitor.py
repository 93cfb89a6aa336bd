"""Ends what a suite of tests has left when it is gone, however it ended.

The suite starts this file as a process of its own, which waits for the suite's end, by SIGKILL too.
Then every process that has the suite's mark among its environment variables is killed, and the
suite's folder of temporary files is deleted.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

MARK = "LONGHAUL_SUITE"
"""Variable that all processes of a suite inherit; its value is the suite's folder."""
TEMPORARY = "PYTEST_DEBUG_TEMPROOT"
"""pytest's variable for the place of its own folders, which outlive the suite."""
DATA = "LONGHAUL_DATA"
"""Variable for the folder in which environments build what they play by."""
PATIENCE_SECONDS = 30.0
"""Longest wait for killed processes to be gone, before their folder is deleted."""


def begin_suite() -> Path:
    """Give this process and its children a folder of temporary files, and a janitor.

    What environments build lies there too, unless another folder is named: it is built by this
    suite's code, once for all its processes.

    Returns:
        The folder, with a short path: sockets have room for 107 characters. pytest's own folder
        (`tmp_path`) stays where it was, for whoever looks at a failed test.
    """
    os.environ.setdefault(TEMPORARY, tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="lh-", dir=os.environ[TEMPORARY]))
    folder.chmod(0o711)  # PostgreSQL runs as another user, where root runs the tests
    os.posix_spawn(
        sys.executable,
        [sys.executable, __file__, str(os.getpid()), str(folder)],
        os.environ,
        setsid=True,  # Ctrl-C and `timeout` end the suite's group, not its janitor
    )
    os.environ |= {MARK: str(folder), "TMPDIR": str(folder)}
    os.environ.setdefault(DATA, str(folder / "data"))
    tempfile.tempdir = None  # it is read anew
    return folder


def marked(folder: str) -> list[int]:
    """Processes that were started with the mark of this suite."""
    mark = f"{MARK}={folder}".encode()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended, or belongs to somebody else
            if entry.name.isdecimal() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def clean(folder: str) -> None:
    """Kill the suite's processes until none is left, then delete its folder."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (processes := marked(folder)) and time.monotonic() < deadline:
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)  # for the kernel, which has no event for processes of others
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    suite, folder = int(sys.argv[1]), sys.argv[2]
    try:
        end_of_suite = os.pidfd_open(suite)
        if os.getppid() == suite:  # else it ended before, and the number may be another's
            select.select([end_of_suite], [], [])
    except ProcessLookupError:
        pass
    clean(folder)
