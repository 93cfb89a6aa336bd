"""The process that imports once and forks: the owner runs this module as a program.

It has one thread of Python and does nothing but wait, so that its forks are clean. Ends,
with everything it forked, when its owner is gone.
"""

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import logging
import multiprocessing
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import threading
import types
from dataclasses import dataclass
from types import FrameType

from longhaul_trainer.verl.cpu.zygote.stand_in import NUMBER_BYTES

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
_PEER_CREDENTIALS = struct.Struct("3i")
_WITH_VALUE = ("-X", "-W")
"""Options of the interpreter that a value follows."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What a stand-in was started with."""

    arguments: list[str]
    """Of the interpreter."""
    environment: dict[str, str]
    folder: str
    descriptors: dict[int, int]
    """Number that the program knows a file by → number that it was received under."""


def main(owner: int, listener_fd: int, stand_in: str, modules: list[str]) -> Command | None:
    """Import, then fork for each stand-in.

    Args:
        owner: Process whose end is the end of this one; 0 where this is a fork already, which
            ends with what it was forked of.
        listener_fd: A listening socket.
        stand_in: File that programs start further interpreters by.
        modules: What programs find imported.

    Returns:
        In a fork the command that it is to run, in the process itself None at its end.
    """
    if owner:
        die_with(owner)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError as error:
            logger.warning("%s is not imported ahead: %s", name, error)
    with contextlib.suppress(ImportError):
        # It must find its place before a fork's environment moves; vLLM names its engine by it.
        importlib.import_module("setproctitle").getproctitle()
    with contextlib.suppress(ImportError):
        # A lock of its own would be a semaphore in each fork, which stays where one is killed.
        importlib.import_module("tqdm").tqdm.set_lock(threading.RLock())
    multiprocessing.set_executable(stand_in)
    gc.collect()
    gc.freeze()  # what is loaded by now is never collected, so its pages stay shared
    return _Server(socket.socket(fileno=listener_fd)).serve()


def run(command: Command) -> None:
    """Be the program, in a process that has just been forked."""
    os.environ.clear()
    os.environ.update(command.environment)
    os.chdir(command.folder)
    if "numpy" in sys.modules:  # Python's own generator does this after each fork
        sys.modules["numpy"].random.seed()
    for entry in reversed(command.environment.get("PYTHONPATH", "").split(os.pathsep)):
        if entry and entry not in sys.path:
            sys.path.insert(0, entry)
    kind, program, arguments = parsed(command.arguments)
    if kind == "-c":
        sys.argv = ["-c", *arguments]
        sys.path.insert(0, "")
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        exec(compile(program, "<string>", "exec"), module.__dict__)
    elif kind == "-m":
        sys.argv = [program, *arguments]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [program, *arguments]
        sys.path.insert(0, os.path.dirname(program))
        runpy.run_path(program, run_name="__main__")


def parsed(arguments: list[str]) -> tuple[str, str, list[str]]:
    """Kind of program (`-c`, `-m` or a file), the program, and its arguments.

    Options of the interpreter itself are passed over: this one has begun already.

    Raises:
        ValueError: There is no program.
    """
    rest = list(arguments)
    while rest:
        first = rest.pop(0)
        if first in {"-c", "-m"} and rest:
            return first, rest[0], rest[1:]
        if not first.startswith("-"):
            return "file", first, rest
        if first in _WITH_VALUE and rest:
            rest.pop(0)
    raise ValueError(f"no program in the arguments {arguments}")


class _Server:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._stand_ins: dict[int, socket.socket] = {}
        """By the process that was forked for it."""
        self._wakeup, self._waker = socket.socketpair()

    def serve(self) -> Command | None:
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        signal.signal(signal.SIGCHLD, _wake)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        selector = selectors.DefaultSelector()
        selector.register(self._listener, selectors.EVENT_READ)
        selector.register(self._wakeup, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is self._listener:
                    command = self._fork(selector)
                    if command is not None:
                        return command
                elif key.fileobj is self._wakeup:
                    with contextlib.suppress(BlockingIOError):
                        self._wakeup.recv(4096)
                    self._bury(selector)
                elif key.data in self._stand_ins:  # the stand-in was killed
                    selector.unregister(key.fileobj)
                    kill_with_its_group(key.data)

    def _fork(self, selector: selectors.BaseSelector) -> Command | None:
        """Start what the next stand-in stands for; in the fork, return it."""
        connection, _ = self._listener.accept()
        command = received(connection)
        if command is None:
            connection.close()
            return None
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            die_with(server)
            selector.close()
            self._leave(connection, command)
            return command
        for descriptor in command.descriptors.values():
            os.close(descriptor)
        self._stand_ins[pid] = connection
        with contextlib.suppress(OSError):
            connection.sendall(pid.to_bytes(NUMBER_BYTES, "big"))
        selector.register(connection, selectors.EVENT_READ, data=pid)
        return None

    def _bury(self, selector: selectors.BaseSelector) -> None:
        """Tell the stand-in of each program that has ended how it did."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            connection = self._stand_ins.pop(pid, None)
            if connection is not None:
                with contextlib.suppress(KeyError):
                    selector.unregister(connection)
                with connection, contextlib.suppress(OSError):
                    connection.sendall(status.to_bytes(NUMBER_BYTES, "big"))

    def _leave(self, connection: socket.socket, command: Command) -> None:
        """Drop in a fork what was the server's, and take what is the program's."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for own in (self._listener, self._wakeup, self._waker, connection):
            own.close()
        for other in self._stand_ins.values():
            other.close()
        take(command.descriptors)


def received(connection: socket.socket) -> Command | None:
    """The command of a stand-in, or None if it is not ours or has gone."""
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size
    )
    _, user, _ = _PEER_CREDENTIALS.unpack(credentials)
    if user != os.getuid():
        return None
    connection.settimeout(5.0)
    descriptors: list[int] = []
    try:
        length, descriptors, _, _ = socket.recv_fds(connection, NUMBER_BYTES, 253)
        body = b""
        while len(body) < int.from_bytes(length, "big"):
            piece = connection.recv(1 << 16)
            if not piece:
                raise ConnectionResetError("the stand-in left in the middle of its command")
            body += piece
        connection.settimeout(None)
        command = json.loads(body)
        return Command(
            arguments=command["arguments"],
            environment=command["environment"],
            folder=command["folder"],
            descriptors=dict(zip(command["descriptors"], descriptors, strict=True)),
        )
    except (OSError, ValueError) as error:
        logger.warning("a command was not understood: %s", error)
        for descriptor in descriptors:
            os.close(descriptor)
        return None


def take(descriptors: dict[int, int]) -> None:
    """Put received files under the numbers that the program knows them by."""
    first_free = max((*descriptors, *descriptors.values())) + 1
    high = {
        number: fcntl.fcntl(found, fcntl.F_DUPFD, first_free)
        for number, found in descriptors.items()
    }
    for found in descriptors.values():
        os.close(found)
    for number, found in high.items():
        os.dup2(found, number)
        os.close(found)


def kill_with_its_group(pid: int) -> None:
    """Kill a fork and what it started: a plain program has both in the group of its stand-in."""
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # it had not begun to lead a group of its own
        os.killpg(pid, signal.SIGKILL)


def die_with(parent: int) -> None:
    """Be killed when the process that started this one ends, however it does."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the signal was requested
        os._exit(1)


def _wake(number: int, frame: FrameType | None) -> None:
    """Have a handler: without one the signal would not reach the wakeup socket."""


if __name__ == "__main__":
    _command = main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
    if _command is not None:
        run(_command)
