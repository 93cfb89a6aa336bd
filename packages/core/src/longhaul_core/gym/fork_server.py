"""The process that worker processes are forked from.

It imports once what every worker needs and has a single thread, so that a fork is cheap
and safe; the owner, which may hold an engine and many threads, never forks itself.
Workers are its children alone: it kills their whole process groups, reaps them, and
tells their owner how they died. When the owner is gone, however it went, so is it, and
so are they.

Whatever a worker starts, in a session of its own too, stays below it: worker and server are
subreapers (prctl(2)), so an orphan's next parent is the nearest of them. When a worker dies
its children become the server's, which kills every child that it did not fork itself.
"""

import ctypes
import gc
import json
import logging
import os
import resource
import select
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from longhaul_core.errors import EnvironmentFailure, EpisodeError, attributed_to, message_of
from longhaul_core.gym.channel import Kind, Message, receive, send
from longhaul_core.gym.spec import GymEnvironmentSpec
from longhaul_core.gym.worker import serve

__all__ = ["KILL", "SPAWN", "main"]

SPAWN, KILL = b"spawn", b"kill"
"""First word of a request; the worker's number follows, its socket comes along with spawn."""

_MAX_REQUEST_BYTES = 64
_PARENT_CHECK_SECONDS = 1.0
_FAREWELL_SECONDS = 2.0
_DEATH_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

logger = logging.getLogger(__name__)


def main(control_fd: int, config_fd: int) -> None:
    """Serve the owner at the other end of `control_fd`, told what to load by `config_fd`."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    with socket.socket(fileno=config_fd) as config:
        sys_path, spec_json = json.loads(receive(config).text)
        sys.path[:] = sys_path
        spec = GymEnvironmentSpec.from_json(spec_json)
        try:
            with attributed_to(EnvironmentFailure, "importing the environment", exits=True):
                spec.load()
        except EpisodeError as failure:
            # Each worker will meet the same error at its first reset and answer with it.
            logger.warning("%s", message_of(failure))
        gc.freeze()  # what is loaded by now is never collected, so its pages stay shared
        send(config, Message(Kind.READY, ""))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if soft != hard else soft, hard))
    _ForkServer(socket.socket(fileno=control_fd), lambda own: serve(own, spec)).run()


class _ForkServer:
    def __init__(
        self, control: socket.socket, serve_worker: Callable[[socket.socket], None]
    ) -> None:
        self._control = control
        self._serve_worker = serve_worker
        self._owner_pid = os.getppid()
        self._pids: dict[int, int] = {}
        """By the worker's number."""
        self._workers: dict[int, tuple[int, socket.socket]] = {}
        """Number and socket, by process id. The socket is kept for the obituary."""
        self._imported = _children()
        """Processes that the environment's modules started when they were imported."""
        self._wakeup, self._waker = socket.socketpair()

    def run(self) -> None:
        """Serve until the owner is gone."""
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        signal.signal(signal.SIGCHLD, _wake)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wakeup, selectors.EVENT_READ)
            while os.getppid() == self._owner_pid:
                ready = {key.fileobj for key, _ in selector.select(_PARENT_CHECK_SECONDS)}
                if self._wakeup in ready:
                    with suppress(BlockingIOError):
                        self._wakeup.recv(4096)
                self._reap()
                if self._control in ready and not self._obey():
                    break
        self._say_farewell()

    def _obey(self) -> bool:
        """Do one thing that the owner asked for; False if it has hung up."""
        try:
            request, descriptors, _, _ = socket.recv_fds(self._control, _MAX_REQUEST_BYTES, 1)
        except ConnectionResetError:
            return False
        if not request:
            return False
        word, number = request.split()
        if word == SPAWN:
            self._spawn(int(number), socket.socket(fileno=descriptors[0]))
        else:
            self._kill(int(number))
        return True

    def _spawn(self, number: int, connection: socket.socket) -> None:
        try:
            pid = os.fork()
        except OSError as error:  # out of processes or memory: this worker alone is lost
            self._write_obituary(connection, f"could not be forked: {error}")
            return
        if pid == 0:
            self._become_worker(connection)
        self._pids[number] = pid
        self._workers[pid] = (number, connection)

    def _become_worker(self, connection: socket.socket) -> None:
        """Turn this fork into a worker; never returns."""
        status = 1
        try:
            server_pid = os.getppid()
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
            os.setsid()  # a process group of its own, which its children are killed with
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for inherited in (self._control, self._wakeup, self._waker):
                inherited.close()
            for _, other in self._workers.values():
                other.close()
            if os.getppid() == server_pid:  # else it died before the signal was asked for
                self._serve_worker(connection)
                status = 0
        except SystemExit as exit_asked_for:
            status = exit_asked_for.code if isinstance(exit_asked_for.code, int) else 1
        finally:
            if status and (error := sys.exc_info()[1]) is not None:
                traceback.print_exception(error)
            os._exit(status)

    def _kill(self, number: int) -> None:
        if (pid := self._pids.get(number)) is not None:
            _kill_group(pid)

    def _reap(self) -> None:
        """Bury every child that has died, and kill what it left running."""
        anyone_died = False
        while (pid := _dead_child()) is not None:
            anyone_died = True
            if pid in self._workers:
                _kill_group(pid)  # before it is reaped its number can be no one else's
            _, status = os.waitpid(pid, 0)
            self._imported.discard(pid)
            if pid in self._workers:
                number, connection = self._workers.pop(pid)
                del self._pids[number]
                self._write_obituary(connection, _described(status))
        if anyone_died:
            self._kill_strays()

    def _kill_strays(self) -> None:
        """Kill the children that were not forked here; theirs follow when they are buried."""
        for pid in _children() - self._workers.keys() - self._imported:
            with suppress(PermissionError):  # it plays under another user's name
                os.kill(pid, signal.SIGKILL)

    def _write_obituary(self, connection: socket.socket, text: str) -> None:
        with connection, suppress(OSError):
            connection.setblocking(False)
            send(connection, Message(Kind.OBITUARY, text))

    def _say_farewell(self) -> None:
        """Let idle workers close their environments, then end every process below this one."""
        self._await_deaths(_FAREWELL_SECONDS, lambda: bool(self._workers))
        for pid in self._workers:
            _kill_group(pid)
        self._imported.clear()
        self._kill_strays()
        self._await_deaths(_DEATH_SECONDS, lambda: bool(_children()))

    def _await_deaths(self, seconds: float, any_lives: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        self._reap()
        while any_lives() and (left := deadline - time.monotonic()) > 0:
            select.select([self._wakeup], [], [], left)
            with suppress(BlockingIOError):
                self._wakeup.recv(4096)
            self._reap()


def _wake(number: int, frame: FrameType | None) -> None:
    """Have a handler: without one the signal would not reach the wakeup socket."""


def _children() -> set[int]:
    """Process ids of this process's children, the dead ones that are not reaped included."""
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            # "7 (its name) S 1 …": the parent is the second after the name, which may hold ")"
            if int(stat.rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(entry.name))
    return found


def _dead_child() -> int | None:
    """A child that has died and is not reaped; None if there is no such child."""
    try:
        died = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if died is None else died.si_pid


def _kill_group(pid: int) -> None:
    """Kill a child that is not yet reaped, and its process group."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # it has not come to found its group
        os.kill(pid, signal.SIGKILL)


def _described(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"was ended by signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exited with status {os.waitstatus_to_exitcode(status)}"
