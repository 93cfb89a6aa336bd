"""Workers of the environment server without a process each: quick, and held back on demand."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import ParamSpec

from longhaul_core.errors import EnvironmentFailure
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_envs.server.hosting import Hosted

Arguments = ParamSpec("Arguments")


def in_event_loop(
    test: Callable[Arguments, Coroutine[None, None, None]],
) -> Callable[Arguments, None]:
    """The test, run in an event loop of its own."""

    @functools.wraps(test)
    def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> None:
        asyncio.run(test(*arguments, **named))

    return run


async def until(holds: Callable[[], object], *, seconds: float = 60) -> None:
    """Wait until something holds that happens elsewhere, in a file or a process."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.02)


class LocalWorker:
    """A worker that answers in this process."""

    def __init__(self, spec: GymEnvironmentSpec, may_answer: asyncio.Event) -> None:
        self.hosted = Hosted(spec)
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.num_asked = 0
        self.held_bytes = 0
        self._may_answer = may_answer

    def ask(self, message: bytes) -> "asyncio.Future[bytes]":
        return asyncio.ensure_future(self._ask(message))

    async def _ask(self, message: bytes) -> bytes:
        self.num_asked += 1
        answering = asyncio.ensure_future(self._may_answer.wait())
        await asyncio.wait({answering, self.ended}, return_when=asyncio.FIRST_COMPLETED)
        answering.cancel()
        if self.ended.done():
            raise EnvironmentFailure(self.ended.result())
        return self.hosted.answer(message)

    def kill(self, cause: str) -> None:
        if not self.ended.done():
            self.hosted.close()
            self.ended.set_result(f"the worker {cause}")

    async def resident_bytes(self) -> int:
        return self.held_bytes


class LocalBackend:
    """Starts such workers."""

    def __init__(
        self, spec: GymEnvironmentSpec, *, worker: type[LocalWorker] = LocalWorker
    ) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.workers: list[LocalWorker] = []
        self._spec = spec
        self._worker = worker

    async def start_worker(self) -> LocalWorker:
        self.workers.append(self._worker(self._spec, self.may_answer))
        return self.workers[-1]

    async def close(self) -> None:
        for worker in self.workers:
            worker.kill("was closed")
