"""The owner's side of the fork server: start it, have workers forked and killed, stop it.

Everything is a plain socket and a `Popen`: no signal handler, no child watcher of
asyncio and no thread, so it works in any event loop, a Ray actor's included.
"""

import asyncio
import itertools
import json
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from longhaul_core.errors import EnvironmentFailure
from longhaul_core.gym.channel import ChannelClosed, Kind, Message, receive_async, send_async
from longhaul_core.gym.fork_server import KILL, SPAWN
from longhaul_core.gym.spec import GymEnvironmentSpec

__all__ = ["ForkClient", "ForkedWorker"]

_START_SECONDS = 120.0
"""For the imports of the environment and the first breath of a worker."""
_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.005


class ForkedWorker:
    """One worker process, as its owner holds it."""

    def __init__(self, connection: socket.socket, *, kill: Callable[[], None]) -> None:
        self._connection = connection
        self._kill = kill

    async def ready(self) -> None:
        """Return once the process has begun.

        Raises:
            EnvironmentFailure: If it died first.
        """
        await self._expect(Kind.READY)

    async def ask(self, request: Message) -> str:
        """The answer to one request, as JSON. If this is cancelled the worker is lost.

        Raises:
            EnvironmentFailure: What the environment raised, or how the process died.
        """
        with suppress(BrokenPipeError, ConnectionResetError):  # the reason is there to be read
            await send_async(self._connection, request)
        return await self._expect(Kind.ANSWER)

    def alive(self) -> bool:
        """Whether an idle worker still waits; a dead one has left word or hung up."""
        try:
            self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def hang_up(self) -> None:
        """Let it close its environment and end by itself."""
        self._connection.close()

    def kill(self) -> None:
        """End it at once, with all processes of its group."""
        self._connection.close()
        self._kill()

    async def _expect(self, kind: Kind) -> str:
        try:
            answer = await receive_async(self._connection)
        except ConnectionError as error:
            raise EnvironmentFailure(f"the worker process is gone: {error}") from error
        if answer.kind is Kind.ERROR:
            raise EnvironmentFailure(answer.text)
        if answer.kind is Kind.OBITUARY:
            raise EnvironmentFailure(f"the worker process {answer.text}")
        if answer.kind is not kind:
            raise EnvironmentFailure(f"the worker process sent {answer.kind!r}, not {kind!r}")
        return answer.text


class ForkClient:
    """A running fork server. Bound to the event loop it was started in."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._numbers = itertools.count()
        self._outbox: deque[tuple[bytes, socket.socket | None]] = deque()
        self._loop = asyncio.get_running_loop()
        self._waiting_to_write = False

    @classmethod
    async def start(cls, spec: GymEnvironmentSpec) -> "ForkClient":
        """Start a fork server and wait until it has imported the environment.

        Raises:
            EnvironmentFailure: If it does not come up.
        """
        control, control_child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        config, config_child = socket.socketpair()
        control.setblocking(False)
        config.setblocking(False)
        descriptors = (control_child.fileno(), config_child.fileno())
        with config, control_child, config_child:
            process = subprocess.Popen(  # noqa: ASYNC220 asyncio's own needs a child watcher
                [
                    sys.executable,
                    "-c",
                    "import sys; from longhaul_core.gym.fork_server import main; "
                    "main(*map(int, sys.argv[1:]))",
                    *map(str, descriptors),
                ],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what an environment prints is for the log
                pass_fds=descriptors,
                start_new_session=True,  # the owner decides what Ctrl-C means
            )
            control_child.close()
            config_child.close()
            client = cls(process, control)
            try:
                async with asyncio.timeout(_START_SECONDS):
                    told = json.dumps([sys.path, spec.to_json()])
                    await send_async(config, Message(Kind.CONFIG, told))
                    await receive_async(config)
            except (ChannelClosed, ConnectionError, TimeoutError) as error:
                await client.stop()
                raise EnvironmentFailure(
                    f"the fork server of {spec.environment_id!r} did not start: {error!r}"
                ) from error
            except asyncio.CancelledError:
                client.abandon()
                raise
        return client

    def running(self) -> bool:
        """Whether the server process is there."""
        return self._process.poll() is None

    async def spawn(self) -> ForkedWorker:
        """A new worker that has begun.

        Raises:
            EnvironmentFailure: If it could not be forked.
        """
        number = next(self._numbers)
        connection, child = socket.socketpair()
        connection.setblocking(False)
        self._post(b"%s %d" % (SPAWN, number), child)
        worker = ForkedWorker(connection, kill=lambda: self._post(b"%s %d" % (KILL, number), None))
        try:
            async with asyncio.timeout(_START_SECONDS):
                await worker.ready()
        except TimeoutError as error:
            worker.kill()
            raise EnvironmentFailure(
                f"a worker process did not begin within {_START_SECONDS:g} s"
            ) from error
        except (asyncio.CancelledError, EnvironmentFailure):
            worker.kill()
            raise
        return worker

    async def stop(self) -> None:
        """End the server and with it every worker."""
        self._hang_up()
        for _ in range(int(_STOP_SECONDS / _POLL_SECONDS)):
            if not self.running():
                return
            await asyncio.sleep(_POLL_SECONDS)
        self._process.kill()
        self._process.wait()

    def abandon(self) -> None:
        """End the server at once, without a wait for idle workers."""
        self._hang_up()
        self._process.kill()
        self._process.wait()

    def _hang_up(self) -> None:
        if self._waiting_to_write:
            self._loop.remove_writer(self._control)
            self._waiting_to_write = False
        self._control.close()
        for _, connection in self._outbox:
            if connection is not None:
                connection.close()
        self._outbox.clear()

    def _post(self, request: bytes, connection: socket.socket | None) -> None:
        """Send to the server without waiting, in order; a server that is gone needs nothing."""
        if self._control.fileno() < 0:
            if connection is not None:
                connection.close()
            return
        self._outbox.append((request, connection))
        if not self._waiting_to_write:
            self._flush()

    def _flush(self) -> None:
        while self._outbox:
            request, connection = self._outbox[0]
            try:
                with suppress(BrokenPipeError, ConnectionResetError):
                    descriptors = [] if connection is None else [connection.fileno()]
                    socket.send_fds(self._control, [request], descriptors)
            except BlockingIOError:
                if not self._waiting_to_write:
                    self._loop.add_writer(self._control, self._flush)
                    self._waiting_to_write = True
                return
            if connection is not None:
                connection.close()
            self._outbox.popleft()
        if self._waiting_to_write:
            self._loop.remove_writer(self._control)
            self._waiting_to_write = False
