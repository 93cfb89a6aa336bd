"""Environments in worker processes: the safe way to play one that is not trusted.

Each episode borrows a place in a worker process. A process has one place, or as many as the
environment's class declares (`episodes_per_process`). A place whose episode got an answer to
everything it asked is used again. After anything else its process starts no further episode and
is killed once the others that it plays have ended; a new one costs some milliseconds. Nothing
here waits in a thread.
"""

import asyncio
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from longhaul_core.environment import StepResult
from longhaul_core.errors import ConfigError
from longhaul_core.gym.spec import GymEnvironmentSpec
from longhaul_core.gym.supervised import ForkServer, WorkerProcess
from longhaul_core.gym.worker import (
    EXPERT_ACTION,
    OBSERVATION,
    RESET_REQUEST,
    STEP_RESULT,
    Call,
    ResetRequest,
    prepare,
)
from longhaul_core.types import Observation, Task

__all__ = ["ProcessEnvironment", "ProcessPool"]


@dataclass(eq=False, slots=True)
class _Host:
    """A worker process and its places."""

    process: WorkerProcess
    free: list[int]
    taken: set[int] = field(default_factory=set[int])
    retired: bool = False
    """Whether it starts no further episode."""


@dataclass(frozen=True, slots=True)
class _Place:
    host: _Host
    number: int


class ProcessEnvironment:
    """One episode, played in a worker process. Made by `ProcessPool`.

    Where several episodes share the process their calls are made one after the other. An episode
    whose process is broken by another one fails, and its message reports that.
    """

    def __init__(self, pool: "ProcessPool") -> None:
        self._pool = pool
        self._place: _Place | None = None
        self._whole = True

    async def open(self) -> None:
        """Wait for a place in a worker process."""
        self._place = await self._pool.acquire()

    async def reset(self, task: Task) -> Observation:
        """See `Environment.reset`."""
        request = ResetRequest(task_id=task.task_id, seed=task.seed)
        return OBSERVATION.validate_json(
            await self._ask(Call.RESET, RESET_REQUEST.dump_json(request))
        )

    async def step(self, action: str) -> StepResult:
        """See `Environment.step`."""
        return STEP_RESULT.validate_json(await self._ask(Call.STEP, action.encode()))

    async def expert_action(self) -> str | None:
        """See `Advised.expert_action`."""
        return EXPERT_ACTION.validate_json(await self._ask(Call.EXPERT, b""))

    async def close(self) -> None:
        """Give the place back. A call that was cancelled costs the process."""
        place, self._place = self._place, None
        if place is not None:
            self._pool.release(place, reusable=self._whole)

    async def _ask(self, call: bytes, content: bytes) -> bytes:
        if self._place is None:
            raise RuntimeError("the environment is not open")
        self._whole = False  # until the answer is here in full
        header = Call.HEADER.pack(call, self._place.number)
        answer = await self._place.host.process.ask(header, content)
        self._whole = True
        return answer


class ProcessPool:
    """Makes environments that run in worker processes. An `EnvironmentFactory`.

    Processes start as episodes ask for them. Belongs to one event loop; `close` it there, or use
    it as an asynchronous context manager.
    """

    def __init__(
        self, spec: GymEnvironmentSpec, *, num_workers: int, most_in_one: int | None = None
    ) -> None:
        """Describe a pool; nothing is started yet.

        Args:
            spec: The environment that every worker plays.
            num_workers: Most episodes at once, at least 1. Further ones wait in
                `Environment.open`, under no deadline. An environment that is played by one
                episode a process has as many processes.
            most_in_one: Episodes that may share a process, at least 1; None for as many as the
                environment's class declares, which it cannot exceed.

        Raises:
            ConfigError: If `num_workers` is out of range.
        """
        if num_workers < 1:
            raise ConfigError(f"num_workers must be at least 1, got {num_workers}")
        self._spec = spec
        self._most_in_one = most_in_one
        self._num_free = asyncio.Semaphore(num_workers)
        self._finding = asyncio.Lock()
        self._server: ForkServer | None = None
        self._hosts: set[_Host] = set()

    @property
    def num_processes(self) -> int:
        """Worker processes that play or wait for episodes."""
        return len(self._hosts)

    def __call__(self, task: Task) -> ProcessEnvironment:
        """See `EnvironmentFactory`."""
        return ProcessEnvironment(self)

    async def acquire(self) -> _Place:
        """A place for one episode, as soon as there is one.

        Raises:
            EnvironmentFailure: If no worker process can be started.
        """
        await self._num_free.acquire()
        try:
            async with self._finding:
                host = self._least_busy() or await self._new_host()
        except BaseException:
            self._num_free.release()
            raise
        place = _Place(host, host.free.pop())
        host.taken.add(place.number)
        return place

    def release(self, place: _Place, *, reusable: bool) -> None:
        """Take a place back; the process of one that is not reusable starts no more episodes."""
        host = place.host
        if host not in self._hosts:  # the pool was closed in between
            return
        host.taken.remove(place.number)
        host.free.append(place.number)
        host.retired |= not reusable
        self._num_free.release()
        if host.retired and not host.taken:
            self._drop(host)

    async def close(self) -> None:
        """End every process. The pool can be used again; it then starts new ones."""
        hosts, self._hosts = self._hosts, set()
        for host in hosts:
            if host.taken:
                host.process.kill("was killed, since its pool was closed,")
                for _ in host.taken:
                    self._num_free.release()
            else:
                host.process.shutdown()
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
        for host in hosts:
            host.process.kill()

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

    def _drop(self, host: _Host) -> None:
        self._hosts.remove(host)
        host.process.kill()

    def _least_busy(self) -> _Host | None:
        for host in [host for host in self._hosts if not (host.taken or host.process.alive)]:
            self._drop(host)  # it died while nobody played in it
        open_ones = [
            host for host in self._hosts if host.free and host.process.alive and not host.retired
        ]
        return min(open_ones, key=lambda host: len(host.taken), default=None)

    async def _new_host(self) -> _Host:
        if self._server is not None and not self._server.running():
            await self._server.stop()
            self._server = None
        if self._server is None:
            self._server = await ForkServer.start(
                f"{prepare.__module__}:{prepare.__name__}", self._spec.to_json()
            )
        process = await self._server.spawn()
        declared = int(await process.greeting())
        num_places = declared if self._most_in_one is None else min(declared, self._most_in_one)
        host = _Host(process, free=list(range(num_places)))
        self._hosts.add(host)
        return host
