"""What it costs to hand on tokens one by one through Ray, in three ways.

    python benchmarks/token_streams.py

One actor writes `STREAMS` replies at once, a token of each in every pass, as an engine does, and
one process takes them. Printed is the processor time of both, a token. `verl/streams.py` does what
is called "one poll" here (decision 37).
"""
# pyright: reportUnknownMemberType=false

import asyncio
import resource
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import ray

STREAMS, TOKENS, PASS_SECONDS = 64, 100, 0.02


def processor_seconds() -> float:
    """Of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Box:
    """Tokens that were not taken yet."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, int]] = []
        self._news = asyncio.Event()

    def put(self, stream: int, token: int) -> None:
        """Add a token."""
        self._pieces.append((stream, token))
        self._news.set()

    async def take(self) -> list[tuple[int, int]]:
        """What came since the last time; waits for something."""
        await self._news.wait()
        self._news.clear()
        taken, self._pieces = self._pieces, []
        return taken


class Engine:
    """Writes replies at the pace of an engine."""

    def __init__(self) -> None:
        self._all = Box()
        self._each = [Box() for _ in range(STREAMS)]

    async def generated(self) -> AsyncGenerator[int]:
        """A reply, token by token."""
        for token in range(TOKENS):
            await asyncio.sleep(PASS_SECONDS)
            yield token

    async def reply(self, stream: int, *, together: bool) -> None:
        """Write a reply into the box of all streams, or of its own."""
        box = self._all if together else self._each[stream]
        for token in range(TOKENS):
            await asyncio.sleep(PASS_SECONDS)
            box.put(stream, token)

    async def take(self) -> list[tuple[int, int]]:
        """New tokens of all streams."""
        return await self._all.take()

    async def take_of(self, stream: int) -> list[tuple[int, int]]:
        """New tokens of one."""
        return await self._each[stream].take()

    async def processor_seconds(self) -> float:
        """Of the actor's process so far."""
        return processor_seconds()


async def by_generators(engine: Any) -> None:  # noqa: ANN401  an actor's handle
    """Ray's own streams."""

    async def one() -> None:
        async for reference in engine.generated.options(num_returns="streaming").remote():
            await reference

    await asyncio.gather(*(one() for _ in range(STREAMS)))


async def by_a_poll_each(engine: Any) -> None:  # noqa: ANN401
    """A request in flight for each stream."""

    async def one(stream: int) -> None:
        reply, num_taken = engine.reply.remote(stream, together=False), 0
        while num_taken < TOKENS:
            num_taken += len(await engine.take_of.remote(stream))
        await reply

    await asyncio.gather(*(one(stream) for stream in range(STREAMS)))


async def by_one_poll(engine: Any) -> None:  # noqa: ANN401
    """One request in flight for all of them."""

    async def take() -> None:
        num_taken = 0
        while num_taken < STREAMS * TOKENS:
            num_taken += len(await engine.take.remote())

    replies = (engine.reply.remote(stream, together=True) for stream in range(STREAMS))
    await asyncio.gather(take(), *replies)


WAYS: dict[str, Callable[[Any], Awaitable[None]]] = {
    "a generator each": by_generators,
    "a poll each": by_a_poll_each,
    "one poll": by_one_poll,
}


async def measure() -> None:
    """Each way once, on an actor of its own."""
    make_actor: Any = ray.remote
    for name, way in WAYS.items():
        engine = make_actor(num_cpus=0, max_concurrency=1000)(Engine).remote()
        there, here = await engine.processor_seconds.remote(), processor_seconds()
        began = time.perf_counter()
        await way(engine)
        seconds = time.perf_counter() - began
        server = await engine.processor_seconds.remote() - there
        client = processor_seconds() - here
        micro = 1e6 / (STREAMS * TOKENS)
        print(f"{name}: {server * micro:.0f} µs + {client * micro:.0f} µs a token, {seconds:.1f} s")


def main() -> None:
    """Measure on a Ray of this machine alone."""
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    asyncio.run(measure())
    ray.shutdown()


if __name__ == "__main__":
    main()
