"""The supervisor of one command: starts it, reads what it prints, bounds it, and ends it whole.

Each episode's supervisor is a worker of a fork server (`longhaul_core.gym.supervised`), and so a
subreaper: whatever the command starts, in a session of its own too, stays below it. If the
supervisor is killed the fork server ends what was below; if the owner is killed the fork server
ends all supervisors. Nothing that a command does can stop the owner's event loop, or grow its
memory: it gets one report when the command has ended.
"""

import atexit
import ctypes
import os
import resource
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter

from longhaul_core.gym.supervised import Channel, Kind, framed
from longhaul_core.open_files import users_open_files
from longhaul_core.processes import descendants, resident_bytes

__all__ = ["GRACE_SECONDS", "PRINTED_BYTES", "End", "Order", "Report", "prepare", "remove"]

GRACE_SECONDS = 1.0
"""Between the signal that asks a command to end and the one that it cannot refuse."""
PRINTED_BYTES = 2**16
"""How much of the end of standard output is kept, for the result."""
OUTPUT_BYTES = 4_096
"""How much of the end of both outputs is kept, for people."""

_WATCH_SECONDS = 0.25
_CHUNK_BYTES = 2**16
_PR_SET_PDEATHSIG = 1


class End(StrEnum):
    """Why a command ended."""

    ITSELF = "itself"
    NOT_STARTED = "not_started"
    DEADLINE = "deadline"
    MEMORY = "memory"
    PROCESSES = "processes"
    OUTPUT = "output"
    OWNER = "owner"
    """The owner asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a supervisor is asked for."""

    command: tuple[str, ...]
    environ: dict[str, str]
    task: str
    """JSON."""
    working_directory: str | None
    """None for a temporary folder."""
    deadline_seconds: float
    max_memory_bytes: int | None
    max_processes: int | None
    max_output_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of it."""

    end: End
    message: str = ""
    """The error of a command that was not started; what was measured of one beyond a limit."""
    exit_code: int | None = None
    """None unless it ended by itself; below 0 the signal that ended it."""
    printed: str = ""
    """The last 64 KiB of standard output."""
    output: str = ""
    """The last 4 kB of both outputs, as they came."""
    num_output_bytes: int = 0
    folder: str = ""
    """Where it worked."""
    own_folder: str = ""
    """All that was made for it; whoever has the report removes it."""


ORDER = TypeAdapter(Order)
REPORT = TypeAdapter(Report)


def prepare(folder: str) -> Callable[[Channel], None]:
    """What each supervisor does; called once, in the fork server.

    Args:
        folder: For the folders of episodes; removed when the fork server ends.
    """
    atexit.register(remove, folder)

    def keep(channel: Channel) -> None:
        channel.send(framed(Kind.ANSWER, b""))
        request = channel.receive()
        if request is None:
            return
        own = tempfile.mkdtemp(prefix="episode-", dir=folder)
        report = _play(ORDER.validate_json(request), Path(own), channel=channel)
        report = replace(report, own_folder=own)
        channel.send(framed(Kind.ANSWER, REPORT.dump_json(report)))

    return keep


def _play(order: Order, folder: Path, *, channel: Channel) -> Report:
    """Start the command, and wait until it has ended with all that it started."""
    work, temporary, task = folder / "work", folder / "tmp", folder / "task.json"
    work.mkdir()
    temporary.mkdir()
    task.write_text(order.task, encoding="utf-8")
    where = order.working_directory or str(work)

    def limit() -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_NOFILE, users_open_files())
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    try:
        with task.open("rb") as stdin:
            process = subprocess.Popen(
                order.command,
                cwd=where,
                env=order.environ | {"LONGHAUL_TASK_FILE": str(task), "TMPDIR": str(temporary)},
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=limit,  # this process has one thread
            )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Report(end=End.NOT_STARTED, message=str(error), folder=where)
    running = _Running(process, order=order)
    report = running.to_the_end(channel)
    return replace(report, folder=where)


class _Running:
    """A command that was started."""

    def __init__(self, process: subprocess.Popen[bytes], *, order: Order) -> None:
        self._process = process
        self._order = order
        self._printed = bytearray()
        self._output = bytearray()
        self._num_output_bytes = 0
        self._selector = selectors.DefaultSelector()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe.fileno(), selectors.EVENT_READ, self._read)
        self._exit = os.pidfd_open(process.pid)
        self._selector.register(self._exit, selectors.EVENT_READ)

    def to_the_end(self, channel: Channel) -> Report:
        """Wait for it, within its limits."""
        self._selector.register(channel.fileno(), selectors.EVENT_READ)
        end, message = self._wait(channel, deadline=time.monotonic() + self._order.deadline_seconds)
        exit_code = self._process.wait() if end is End.ITSELF else None
        if end is not End.ITSELF:
            self._selector.unregister(channel.fileno())
            self._ask_to_end()
        _end_all()
        if exit_code is None:
            self._process.returncode = -signal.SIGKILL  # `_end_all` has reaped it
        self._drain()
        return Report(
            end=end,
            message=message,
            exit_code=exit_code,
            printed=self._printed.decode(errors="replace"),
            output=self._output.decode(errors="replace"),
            num_output_bytes=self._num_output_bytes,
        )

    def _wait(self, channel: Channel, *, deadline: float) -> tuple[End, str]:
        """Until it ends, is to end, or goes beyond a limit."""
        order = self._order
        watch_at = 0.0
        while True:
            now = time.monotonic()
            if now >= deadline:
                return End.DEADLINE, ""
            if now >= watch_at:
                watch_at = now + _WATCH_SECONDS
                if (beyond := self._watch()) is not None:
                    return beyond
            ready = self._select(min(deadline, watch_at) - now)
            if self._num_output_bytes > order.max_output_bytes:
                return End.OUTPUT, f"{self._num_output_bytes:,} bytes"
            if self._exit in ready:
                return End.ITSELF, ""
            if channel.fileno() in ready:
                return End.OWNER, ""

    def _watch(self) -> tuple[End, str] | None:
        """What it takes beyond a limit, and how much."""
        order = self._order
        pids = descendants(os.getpid())
        for pid in pids:
            if pid != self._process.pid:
                _reap(pid, os.WNOHANG)  # an orphan that has ended
        if order.max_processes is not None and len(pids) > order.max_processes:
            return End.PROCESSES, f"{len(pids):,} processes"
        held = resident_bytes(pids)
        if order.max_memory_bytes is not None and held > order.max_memory_bytes:
            return End.MEMORY, f"{held:,} bytes"
        return None

    def _ask_to_end(self) -> None:
        """Give it a moment to end by itself; what it prints until then is read."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        until = time.monotonic() + GRACE_SECONDS
        while (left := until - time.monotonic()) > 0:
            if self._exit in self._select(left):
                return

    def _select(self, seconds: float) -> set[int]:
        """Read what was printed; the descriptors at which something else happened."""
        ready: set[int] = set()
        for key, _ in self._selector.select(max(0.0, seconds)):
            if key.data is None:
                ready.add(key.fd)
            elif not self._read(key.fd):
                self._selector.unregister(key.fd)
        return ready

    def _read(self, descriptor: int) -> int:
        """Take a piece of output; how many bytes, 0 where no more can come."""
        chunk = os.read(descriptor, _CHUNK_BYTES)
        self._num_output_bytes += len(chunk)
        if self._process.stdout is not None and descriptor == self._process.stdout.fileno():
            _keep_end(self._printed, chunk, PRINTED_BYTES)
        _keep_end(self._output, chunk, OUTPUT_BYTES)
        return len(chunk)

    def _drain(self) -> None:
        """Read what lies in the pipes when nobody writes any more."""
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(BlockingIOError):  # somebody outside of the tree holds the pipe
                    while self._read(pipe.fileno()):
                        pass


def _keep_end(kept: bytearray, chunk: bytes, limit: int) -> None:
    kept += chunk
    del kept[: max(0, len(kept) - limit)]


def _end_all() -> None:
    """Kill everything below this process, and reap it."""
    while pids := descendants(os.getpid()):
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):  # another user's: see the guide
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            _reap(pid, 0)


def _reap(pid: int, options: int) -> None:
    with suppress(ChildProcessError):  # not a child of this process, or not yet
        os.waitpid(pid, options)


def remove(folder: str) -> None:
    """Remove a folder of somebody who may have taken every right away from its parts."""
    with suppress(OSError):
        Path(folder).chmod(0o700)
        for path, names, _ in os.walk(folder):
            for inner in (Path(path, name) for name in names):
                if not inner.is_symlink():
                    inner.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
