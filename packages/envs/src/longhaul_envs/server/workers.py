"""What the server plays in: workers, which one of several back ends starts.

A worker hosts several instances of one environment and answers messages one after the other, each
by `hosting.Hosted.answer`: bytes to bytes, never a pickle. How it is started, killed and measured
is the back end's; places, deadlines and replacement are `fleet`'s, and the same for all.
"""

import asyncio
import socket
from typing import Protocol

from longhaul_core.gym.supervised import ForkServer, WorkerProcess
from longhaul_core.processes import descendants, resident_bytes
from longhaul_envs.server import hosting

__all__ = ["Backend", "ProcessBackend", "ProcessWorker", "Worker"]


class Worker(Protocol):
    """A running worker. Bound to the event loop that it was started in."""

    @property
    def ended(self) -> "asyncio.Future[str]":
        """How it ended, in words, as soon as that is known; pending while it lives."""
        ...

    def ask(self, message: bytes) -> "asyncio.Future[bytes]":
        """The answer to a message; one at a time, and never cancelled by the caller.

        The future raises `EnvironmentFailure` if the worker ends first.
        """
        ...

    def kill(self, cause: str) -> None:
        """End it at once, with everything that it started; `ended` has `cause` in it."""
        ...

    async def resident_bytes(self) -> int:
        """Resident memory of its processes, those that it started included.

        Answers while the worker is busy or hangs; 0 if it is gone.
        """
        ...


class Backend(Protocol):
    """Starts the workers of one environment."""

    async def start_worker(self) -> Worker:
        """A new worker that has imported the environment.

        Raises:
            EnvironmentFailure: If it cannot be started.
        """
        ...

    async def close(self) -> None:
        """End every worker."""
        ...


class ProcessBackend:
    """Workers are processes of this machine, forked from one that has imported the environment."""

    def __init__(self, spec_json: str, *, apart: bool = False) -> None:
        """Describe it; nothing is started yet.

        Args:
            spec_json: A `GymEnvironmentSpec` as text.
            apart: Whether a worker answers on a connection that it is handed, and not when asked.
        """
        self._spec_json = spec_json
        self._program = hosting.prepare_apart if apart else hosting.prepare
        self._server: ForkServer | None = None
        self._starting = asyncio.Lock()

    async def start_worker(self) -> "ProcessWorker":
        """See `Backend.start_worker`."""
        async with self._starting:
            if self._server is not None and not self._server.running():
                await self._server.stop()
                self._server = None
            if self._server is None:
                self._server = await ForkServer.start(
                    f"{hosting.__name__}:{self._program.__name__}", self._spec_json
                )
        process = await self._server.spawn()
        return ProcessWorker(process, pid=int(await process.greeting()))

    async def close(self) -> None:
        """See `Backend.close`."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()


class ProcessWorker:
    """See `Worker`."""

    def __init__(self, process: WorkerProcess, *, pid: int) -> None:
        self._process = process
        self._pid = pid

    @property
    def ended(self) -> "asyncio.Future[str]":
        """See `Worker.ended`."""
        return self._process.ended

    def ask(self, message: bytes) -> "asyncio.Future[bytes]":
        """See `Worker.ask`."""
        return self._process.begin(message)

    def hand_over(self, line: socket.socket) -> None:
        """The connection on which a worker apart answers, once; it may be closed here afterwards.

        Raises:
            OSError: If the worker has ended.
        """
        self._process.hand_over(line)

    def kill(self, cause: str) -> None:
        """See `Worker.kill`."""
        self._process.kill(cause)

    async def resident_bytes(self) -> int:
        """See `Worker.resident_bytes`."""
        return resident_bytes((self._pid, *descendants(self._pid)))
