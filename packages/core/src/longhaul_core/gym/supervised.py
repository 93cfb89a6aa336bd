"""Worker processes under supervision: forked fast, asked one thing at a time, never left behind.

The owner, which may hold an engine and many threads, never forks itself. It starts one *fork
server*: a process with a single thread that imports once what every worker needs and forks the
workers. A connection leads from the owner straight to each worker:

- a request that is asked is answered with bytes, or fails with a cause: what the worker reported,
  or its *exit notice*, how the process ended, which the server writes in its place;
- when the owner closes the connection the server kills the worker with its process group; when
  the owner closes its sending half alone the worker may close what it holds and end by itself;
- when the owner is gone, however it went, so are server and workers.

A worker's temporary files go into a folder of its own, which is removed when it has ended.
Whatever a worker starts, in a session of its own too, stays below it: worker and server are
subreapers (prctl(2)), so an orphan's next parent is the nearest of them. When a worker dies
its children become the server's, which kills every child that it did not fork itself.

On the owner's side everything is a callback of its event loop: no thread, no signal handler and
no child watcher, so it works in any event loop, a Ray actor's included. The standard library's
fork server holds less than this; docs/decisions/0012 has what was tried.
"""

import asyncio
import ctypes
import gc
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import cast

from longhaul_core.errors import EnvironmentFailure
from longhaul_core.open_files import raise_open_files

__all__ = ["Channel", "ForkServer", "Kind", "WorkerProcess", "framed"]

_LENGTH = struct.Struct("!I")
_MAX_BYTES = 16 * 2**20

_START_SECONDS = 120.0
"""For the imports of the server, and for the start of a worker."""
_SHUTDOWN_SECONDS = 2.0
"""For workers that were asked to end, before they are killed."""
_DEATH_SECONDS = 1.0
_STOP_SECONDS = _SHUTDOWN_SECONDS + _DEATH_SECONDS + 2.0
_OWNER_CHECK_SECONDS = 1.0
_ABANDONED_SECONDS = 1.0
"""How long a request may run for which nobody waits any more, before its process is killed."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Kind(bytes, Enum):
    """First byte of what a worker's connection brings."""

    ANSWER = b"A"
    ERROR = b"E"
    """The text of an error: the request failed, the process goes on."""
    EXIT_NOTICE = b"X"
    """From the fork server: how the process ended."""


def framed(*parts: bytes) -> bytes:
    """A message as it is sent: its length in 4 bytes, then its parts one after the other.

    Raises:
        ValueError: If it has more than 16 MiB.
    """
    num_bytes = sum(map(len, parts))
    if num_bytes > _MAX_BYTES:
        raise ValueError(f"message of {num_bytes} bytes exceeds the limit of {_MAX_BYTES}")
    return b"".join((_LENGTH.pack(num_bytes), *parts))


class Channel:
    """A worker's end of its connection; every call waits as long as it takes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file = connection.makefile("rb")

    def fileno(self) -> int:
        """For a selector: readable while a request is answered once the owner sends no more."""
        return self._connection.fileno()

    def receive(self) -> bytes | None:
        """The next request; None once the owner sends no more, or cannot be reached."""
        with suppress(OSError):  # on TCP a network that is gone is no ConnectionError
            header = self._file.read(_LENGTH.size)
            if len(header) == _LENGTH.size:
                (length,) = _LENGTH.unpack(header)
                message = self._file.read(length)
                return message if len(message) == length else None
        return None

    def receive_line(self) -> "Channel | None":
        """The connection that `WorkerProcess.hand_over` gave; None once the owner sends no more.

        To be called before anything is received.
        """
        with suppress(ConnectionError):
            _, line = _received_socket(self._connection, 1)
            if line is not None:
                line.setblocking(True)
                return Channel(line)
        return None

    def send(self, frame: bytes) -> None:
        """Send what `framed` made; an owner that is gone needs nothing."""
        with suppress(OSError):
            self._connection.sendall(frame)


def _received_socket(
    connection: socket.socket, num_bytes: int
) -> tuple[bytes, socket.socket | None]:
    """What was sent, and the socket that came with it, which programs started here do not have."""
    message, descriptors, _, _ = socket.recv_fds(connection, num_bytes, 1)
    if not descriptors:
        return message, None
    os.set_inheritable(descriptors[0], False)
    return message, socket.socket(fileno=descriptors[0])


# The owner's side


@dataclass(slots=True)
class _Request:
    frame: bytes
    answer: asyncio.Future[bytes]
    sent_at: float = field(default=0.0)


class WorkerProcess(asyncio.Protocol):
    """One worker process, as its owner holds it. Made by `ForkServer.spawn`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._waiting: deque[_Request] = deque()
        # What a worker sends first, unasked, is its greeting.
        self._running: _Request | None = _Request(b"", self._loop.create_future())
        self._greeting = self._running.answer
        self._overdue: asyncio.TimerHandle | None = None
        self._failure = ""
        """Why no request can be answered any more."""
        self.ended: asyncio.Future[str] = self._loop.create_future()
        """How the process ended, as soon as the event loop has seen it. Do not cancel it."""

    @property
    def alive(self) -> bool:
        """Whether it can be asked; False as soon as the event loop has seen its exit notice."""
        return not self._failure

    async def greeting(self) -> bytes:
        """What the worker sends first, once it has started.

        Raises:
            EnvironmentFailure: If it died first.
        """
        return await self._greeting

    async def ask(self, *parts: bytes) -> bytes:
        """The answer to one request, when those asked before it have theirs.

        If this is cancelled before the request is sent, nothing has happened. Afterwards the
        process goes on with it; if it then does not answer within 1 s of the sending, it is
        killed, and the requests behind it fail.

        Raises:
            EnvironmentFailure: What the worker reported, how the process ended, or that it ended
                while it was busy with another request.
            ValueError: If the request has more than 16 MiB.
        """
        request = self._begin(*parts)
        try:
            return await request.answer
        except asyncio.CancelledError:
            if request is self._running:
                left = request.sent_at + _ABANDONED_SECONDS - self._loop.time()
                if left <= 0:
                    self._kill_overdue()
                else:
                    self._overdue = self._loop.call_later(left, self._kill_overdue)
            raise

    def begin(self, *parts: bytes) -> "asyncio.Future[bytes]":
        """As `ask`, for who does not wait: what comes of one request. Do not cancel it."""
        return self._begin(*parts).answer

    def hand_over(self, line: socket.socket) -> None:
        """Give it a connection, for `Channel.receive_line`; instead of any request.

        Raises:
            OSError: If it has ended.
        """
        if self._transport is None or not self.alive:
            raise ConnectionError("the worker process has ended")
        own = self._transport.get_extra_info("socket")
        with socket.socket(fileno=os.dup(own.fileno())) as copy:
            socket.send_fds(copy, [b"L"], [line.fileno()])

    def shutdown(self) -> None:
        """Let it close what it holds and end by itself."""
        if self._transport is not None and self.alive:
            self._transport.write_eof()

    def kill(self, cause: str = "was killed") -> None:
        """End it at once, with everything that it started."""
        if self.alive:
            own = self._failure = f"the worker process {cause}"
            self.ended.set_result(own)
            running, self._running = self._running, None
            if running is not None:
                self._failure = (
                    f"a neighbour broke the worker process: it {cause} during a request of another "
                    "episode"
                )
                _fail(running, own)
            for request in self._waiting:
                _fail(request, self._failure)
            self._waiting.clear()
            self._cancel_overdue()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._buffer += data
        while self.alive and len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if not 1 <= length <= _MAX_BYTES:
                self.kill(f"sent a message of {length} bytes; the limit is {_MAX_BYTES}")
                return
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            message = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            self._receive(message[:1], message[1:])

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self.kill("is gone" if exc is None else f"is gone: {exc}")

    def _begin(self, *parts: bytes) -> _Request:
        request = _Request(framed(*parts), self._loop.create_future())
        if self._failure:
            _fail(request, self._failure)
        else:
            self._waiting.append(request)
            self._send_next()
        return request

    def _send_next(self) -> None:
        while self._running is None and self._waiting:
            request = self._waiting.popleft()
            if not request.answer.done() and self._transport is not None:
                self._running, request.sent_at = request, self._loop.time()
                self._transport.write(request.frame)

    def _receive(self, kind: bytes, content: bytes) -> None:
        if kind == Kind.EXIT_NOTICE:
            self.kill(content.decode(errors="replace"))
            return
        if self._running is None or kind not in (Kind.ANSWER, Kind.ERROR):
            self.kill(f"sent an unrequested message: {kind + content[:40]!r}")
            return
        request, self._running = self._running, None
        self._cancel_overdue()
        if kind == Kind.ERROR:
            _fail(request, content.decode(errors="replace"))
        elif not request.answer.done():
            request.answer.set_result(content)
        self._send_next()

    def _kill_overdue(self) -> None:
        self.kill("was killed, since it did not return,")

    def _cancel_overdue(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None


def _fail(request: _Request, message: str) -> None:
    if not request.answer.done():
        request.answer.set_exception(EnvironmentFailure(message))


class ForkServer:
    """A running fork server, as its owner holds it. Bound to the event loop it was started in."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._turn = asyncio.Lock()

    @classmethod
    async def start(cls, target: str, argument: str) -> "ForkServer":
        """Start a fork server and wait until it can fork workers.

        Args:
            target: `"module:function"`. The server calls the function once, with `argument`; what
                it returns is called in each worker with its `Channel`, and ends the worker by
                returning. It sends a greeting first.
            argument: Text for the function.

        Raises:
            EnvironmentFailure: If the server does not come up.
        """
        try:
            process, control = _started(target, argument)
        except OSError as error:  # out of processes, memory, descriptors or disk
            raise EnvironmentFailure(f"the fork server could not be started: {error}") from error
        server = cls(process, control)
        try:
            async with asyncio.timeout(_START_SECONDS):
                ready = await asyncio.get_running_loop().sock_recv(control, 1)
        except (OSError, TimeoutError) as error:
            server.kill()
            raise EnvironmentFailure(f"the fork server did not start: {error!r}") from error
        except asyncio.CancelledError:
            server.kill()
            raise
        if not ready:
            server.kill()
            raise EnvironmentFailure("the fork server ended while it started; its log says why")
        return server

    def running(self) -> bool:
        """Whether the server process is there."""
        return self._process.poll() is None

    async def spawn(self) -> WorkerProcess:
        """A new worker that has started.

        Raises:
            EnvironmentFailure: If it could not be forked, or has ended already.
        """
        loop = asyncio.get_running_loop()
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:  # out of descriptors
            raise EnvironmentFailure(f"a worker process could not be started: {error}") from error
        ours.setblocking(False)
        with theirs:
            _, worker = await loop.create_unix_connection(WorkerProcess, sock=ours)
            try:
                async with self._turn, asyncio.timeout(_START_SECONDS):
                    # One at a time, so that the socket has room. Where the server is gone the
                    # other end is closed here, and `worker` fails as one that is gone.
                    with suppress(OSError):
                        socket.send_fds(self._control, [b"spawn"], [theirs.fileno()])
                    theirs.close()
                    await worker.greeting()
            except TimeoutError as error:
                worker.kill()
                raise EnvironmentFailure(
                    f"a worker process did not start within {_START_SECONDS:g} s"
                ) from error
            except BaseException:
                worker.kill()
                raise
        return worker

    async def stop(self) -> None:
        """End the server and with it every worker; those that were asked to end get 2 s for it."""
        with suppress(OSError, TimeoutError):
            await asyncio.sleep(0)  # connections that were just closed are closed by now
            self._control.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(_STOP_SECONDS):
                await asyncio.get_running_loop().sock_recv(self._control, 1)
        self.kill()

    def kill(self) -> None:
        """End the server at once, and with it every worker."""
        self._control.close()
        self._process.kill()
        self._process.wait()


def _started(target: str, argument: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A fork server's process, and the owner's end of its connection."""
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        control.setblocking(False)
        with theirs, tempfile.TemporaryFile() as stdin:
            stdin.write(json.dumps([sys.path, target, argument]).encode())
            stdin.seek(0)
            process = subprocess.Popen(  # asyncio's own needs a child watcher
                [sys.executable, "-c", f"from {__name__} import main; main({theirs.fileno()})"],
                stdin=stdin,
                stdout=2,  # what an environment prints is for the log
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # the owner decides what Ctrl-C means
            )
    except BaseException:
        control.close()
        raise
    return process, control


# The fork server's side


def main(control_fd: int) -> None:
    """Fork workers for the owner at the other end of `control_fd`; stdin describes them."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    owner_pid = os.getppid()
    sys_path, target, argument = json.load(sys.stdin)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    sys.path[:] = sys_path
    module, _, name = target.partition(":")
    serve = getattr(import_module(module), name)(argument)
    gc.freeze()  # what is loaded by now is never collected, so its pages stay shared
    raise_open_files()
    control = socket.socket(fileno=control_fd)
    control.send(b"ready")
    _Server(control, serve, owner_pid=owner_pid).run()


class _Server:
    def __init__(
        self, control: socket.socket, serve: Callable[[Channel], None], *, owner_pid: int
    ) -> None:
        self._control = control
        self._serve = serve
        self._owner_pid = owner_pid
        self._workers: dict[int, socket.socket] = {}
        """The server's copy of each worker's connection, by process id."""
        self._folders: dict[int, str] = {}
        """Where each worker's temporary files are."""
        self._left: list[str] = []
        """Folders of workers that have died, until all that they started has."""
        self._imported = _children()
        """Processes that the environment's modules started when they were imported."""
        self._wakeup, self._waker = socket.socketpair()
        self._epoll = select.epoll()

    def run(self) -> None:
        """Serve until the owner is gone, then end every process below this one."""
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        signal.signal(signal.SIGCHLD, _wake)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        self._epoll.register(self._wakeup, select.EPOLLIN)
        self._epoll.register(self._control, select.EPOLLIN)
        while self._wait(_OWNER_CHECK_SECONDS) and os.getppid() == self._owner_pid:
            pass
        self._epoll.unregister(self._control)
        self._wait_while(lambda: bool(self._workers), _SHUTDOWN_SECONDS)
        for pid in self._workers:
            _kill_group(pid)
        self._imported.clear()
        self._kill_strays()
        self._wait_while(lambda: bool(_children()), _DEATH_SECONDS)
        self._remove_left()

    def _wait(self, seconds: float) -> bool:
        """Handle what happens next; False if that is the owner's end."""
        owner_is_there = True
        by_fd = {connection.fileno(): pid for pid, connection in self._workers.items()}
        for descriptor, _ in self._epoll.poll(seconds):
            if descriptor == self._wakeup.fileno():
                with suppress(BlockingIOError):
                    self._wakeup.recv(4096)
            elif descriptor == self._control.fileno():
                owner_is_there = self._spawn()
            else:  # the owner has closed a worker's connection
                self._epoll.unregister(descriptor)
                _kill_group(by_fd[descriptor])
        self._reap()
        return owner_is_there

    def _wait_while(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while condition() and (left := deadline - time.monotonic()) > 0:
            self._wait(left)

    def _spawn(self) -> bool:
        """Fork one worker for the owner; False if it has gone."""
        with suppress(ConnectionError):
            request, connection = _received_socket(self._control, 16)
            if request and connection is not None:
                self._fork(connection)
            return bool(request)
        return False

    def _fork(self, connection: socket.socket) -> None:
        folder = ""
        try:
            folder = tempfile.mkdtemp(prefix="longhaul-worker-")
            pid = os.fork()
        except OSError as error:  # out of processes, memory or disk: this worker alone is lost
            shutil.rmtree(folder, ignore_errors=True)
            _send_exit_notice(connection, f"could not be forked: {error}")
            return
        if pid == 0:
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            self._become_worker(connection)
        self._workers[pid] = connection
        self._folders[pid] = folder
        self._epoll.register(connection, 0)  # closing is reported unasked

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
            self._epoll.close()
            for inherited in (self._control, self._wakeup, self._waker, *self._workers.values()):
                inherited.close()
            if os.getppid() == server_pid:  # else it died before the signal was requested
                self._serve(Channel(connection))
                status = 0
        except SystemExit as exit_asked_for:
            status = exit_asked_for.code if isinstance(exit_asked_for.code, int) else 1
        finally:
            if status and (error := sys.exc_info()[1]) is not None:
                traceback.print_exception(error)
            os._exit(status)

    def _reap(self) -> None:
        """Reap every child that has died, and kill what it left running."""
        anyone_died = False
        while (pid := _dead_child()) is not None:
            anyone_died = True
            if pid in self._workers:
                _kill_group(pid)  # before it is reaped its number can be no one else's
            _, status = os.waitpid(pid, 0)
            self._imported.discard(pid)
            if (folder := self._folders.pop(pid, None)) is not None:
                self._left.append(folder)
            if (connection := self._workers.pop(pid, None)) is not None:
                with suppress(FileNotFoundError):  # the owner had closed it
                    self._epoll.unregister(connection)
                _send_exit_notice(connection, _described(status))
        if anyone_died and not self._kill_strays():
            self._remove_left()

    def _remove_left(self) -> None:
        for folder in self._left:
            shutil.rmtree(folder, ignore_errors=True)
        self._left.clear()

    def _kill_strays(self) -> bool:
        """Kill the children that were not forked here; theirs follow when they are reaped.

        Returns:
            Whether there were any.
        """
        strays = _children() - self._workers.keys() - self._imported
        for pid in strays:
            with suppress(PermissionError):  # it plays under another user's name
                os.kill(pid, signal.SIGKILL)
        return bool(strays)


def _send_exit_notice(connection: socket.socket, text: str) -> None:
    with connection, suppress(OSError):
        connection.setblocking(False)
        connection.sendall(framed(Kind.EXIT_NOTICE, text.encode()))


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
    except ProcessLookupError:  # it has not yet created its process group
        os.kill(pid, signal.SIGKILL)


def _described(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"was ended by signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exited with status {os.waitstatus_to_exitcode(status)}"
