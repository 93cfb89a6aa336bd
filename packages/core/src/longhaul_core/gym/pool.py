"""A pool of worker processes that episodes borrow, one each.

A worker that answered everything it was asked goes back and plays on; any other one is
killed and replaced, which costs some milliseconds. Nothing here waits in a thread, so
an environment that hangs costs its own process and nothing else.
"""

import asyncio
from types import TracebackType
from typing import Self

from longhaul_core.errors import ConfigError
from longhaul_core.gym.fork_client import ForkClient, ForkedWorker
from longhaul_core.gym.process import ProcessEnvironment
from longhaul_core.gym.spec import GymEnvironmentSpec
from longhaul_core.types import Task

__all__ = ["ProcessPool"]


class ProcessPool:
    """Makes environments that run in worker processes. An `EnvironmentFactory`.

    Processes start when the first episode asks for one. Belongs to one event loop;
    `close` it there, or use it as an asynchronous context manager.
    """

    def __init__(self, spec: GymEnvironmentSpec, *, num_workers: int) -> None:
        """Describe a pool; nothing is started yet.

        Args:
            spec: The environment that every worker plays.
            num_workers: Most processes at once, at least 1. Further episodes wait in
                `Environment.open`, under no deadline.

        Raises:
            ConfigError: If `num_workers` is out of range.
        """
        if num_workers < 1:
            raise ConfigError(f"num_workers must be at least 1, got {num_workers}")
        self._spec = spec
        self._places = asyncio.Semaphore(num_workers)
        self._starting = asyncio.Lock()
        self._client: ForkClient | None = None
        self._idle: list[ForkedWorker] = []
        self._busy: set[ForkedWorker] = set()

    def __call__(self, task: Task) -> ProcessEnvironment:
        """See `EnvironmentFactory`."""
        return ProcessEnvironment(self)

    async def acquire(self) -> ForkedWorker:
        """A worker for one episode, as soon as there is a place.

        Raises:
            EnvironmentFailure: If no worker process can be started.
        """
        await self._places.acquire()
        try:
            worker = await self._take()
        except BaseException:
            self._places.release()
            raise
        self._busy.add(worker)
        return worker

    def release(self, worker: ForkedWorker, *, reusable: bool) -> None:
        """Give a worker back; one that is not reusable is killed."""
        if worker not in self._busy:  # the pool was closed in between
            return
        self._busy.remove(worker)
        if reusable:
            self._idle.append(worker)
        else:
            worker.kill()
        self._places.release()

    async def close(self) -> None:
        """End every process. The pool can be used again; it then starts new ones."""
        for worker in self._idle:
            worker.hang_up()
        for worker in self._busy:
            worker.kill()
            self._places.release()
        self._idle.clear()
        self._busy.clear()
        client, self._client = self._client, None
        if client is not None:
            await client.stop()

    async def __aenter__(self) -> Self:
        """The pool itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the pool."""
        await self.close()

    async def _take(self) -> ForkedWorker:
        while self._idle:
            worker = self._idle.pop()
            if worker.alive():
                return worker
            worker.kill()
        return await (await self._running_client()).spawn()

    async def _running_client(self) -> ForkClient:
        async with self._starting:
            if self._client is not None and not self._client.running():
                await self._client.stop()
                self._client = None
            if self._client is None:
                self._client = await ForkClient.start(self._spec)
            return self._client
