"""The workers of one environment: places to play in, and a new worker for each that is lost.

There is always the same number of workers. Calls for a worker are gathered while it is busy and
sent together, so that many sessions cost few messages. A worker is killed if a call passes its
deadline, if its processes hold more memory than they may, and if it does not answer while idle;
then every call and every session in it fails with that cause, and another worker takes its place.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from longhaul_core.errors import ConfigError, EnvironmentFailure, attributed_to
from longhaul_envs.server.errors import Cause
from longhaul_envs.server.hosting import (
    PREPARED,
    TICK_SECONDS,
    Call,
    Done,
    Verb,
    decode_answer,
    encode_calls,
)
from longhaul_envs.server.workers import Backend, Worker

__all__ = ["CallFailed", "Fleet", "FleetLimits", "Place"]

logger = logging.getLogger(__name__)

_WATCH_SECONDS = 1.0
_IDLE_SECONDS = 5.0
"""A worker that had nothing to do for so long is asked whether it is there."""
_PING_SECONDS = 5.0
_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS = 0.1, 10.0
"""Before a worker is started again that did not start, or ended at once."""
_MAX_CALLS = 256
"""Of one message, whose texts have at most 1 MiB each by the protocol …"""
_MAX_CHARACTERS = 2**20
"""… and this, all but the last of them together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLimits:
    """What the workers of one environment may take."""

    num_workers: int = 4
    """Workers, at least 1."""
    sessions_per_worker: int = 1
    """Sessions in one worker at once, at least 1."""
    reset_seconds: float = 60.0
    """A reset that takes longer costs the worker; above 0."""
    step_seconds: float = 30.0
    """A step, or a picture, that takes longer costs the worker; above 0."""
    memory_bytes: int = 4 * 2**30
    """Resident memory of a worker's processes together, measured each second; more costs it."""
    num_warm: int = 1
    """Free places of each worker that are ready for a session, from 0 to `sessions_per_worker`:
    their instance is made and, where the class can, has prepared its next episode. Those of a new
    worker are ready before it is used. The others' are made by their first reset."""

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be at least 1, got {value}"
            for name, value in (
                ("num_workers", self.num_workers),
                ("sessions_per_worker", self.sessions_per_worker),
                ("memory_bytes", self.memory_bytes),
            )
            if value < 1
        ]
        problems += [
            f"{name} must be above 0, got {value:g}"
            for name, value in (
                ("reset_seconds", self.reset_seconds),
                ("step_seconds", self.step_seconds),
            )
            if not value > 0
        ]
        if not 0 <= self.num_warm <= self.sessions_per_worker:
            problems.append(
                f"num_warm must be from 0 to sessions_per_worker = {self.sessions_per_worker}, got "
                f"{self.num_warm}"
            )
        if problems:
            raise ConfigError("; ".join(problems))

    def seconds_for(self, verb: Verb) -> float:
        """Deadline of a call."""
        if verb is Verb.PING:
            return _PING_SECONDS
        return self.step_seconds if verb in (Verb.STEP, Verb.RENDER) else self.reset_seconds


class CallFailed(Exception):
    """A call has no result, and its place is no good any more."""

    def __init__(self, message: str, cause: Cause) -> None:
        super().__init__(message)
        self.cause = cause


class Place:
    """Room for one session in a worker, until it is released."""

    def __init__(self, desk: "_Desk", number: int) -> None:
        self._desk = desk
        self.number = number
        """Of the place in its worker."""
        self.on_lost: Callable[[CallFailed], None] | None = None
        """Called if the worker is lost while the place is held."""

    def call(self, verb: Verb, *, text: str = "", seed: int = 0) -> "asyncio.Future[Done]":
        """What is asked of the place's instance, as soon as the worker has done it.

        The future raises `CallFailed`. Do not cancel it.
        """
        return self._desk.put(Call(verb, self.number, text, seed))

    def release(self, *, broken: bool = False) -> None:
        """Give the place back; no call of it may be on its way.

        Args:
            broken: Whether its environment failed. Then a worker that holds no other session is
                replaced.
        """
        self._desk.take_back(self, broken=broken)


class _Pending(NamedTuple):
    call: Call
    result: "asyncio.Future[Done]"


class Fleet:
    """Keeps the workers of one environment running. Belongs to one event loop."""

    def __init__(
        self,
        backend: Backend,
        *,
        limits: FleetLimits,
        on_replaced: Callable[[Cause], None] = lambda cause: None,
    ) -> None:
        """Describe it; nothing is started yet.

        Args:
            backend: Starts workers.
            limits: How many, and what they may take.
            on_replaced: Called for each worker that is lost.
        """
        self._backend = backend
        self._limits = limits
        self._on_replaced = on_replaced
        self._desks: list[_Desk] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._all_started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def ready(self) -> bool:
        """Whether every worker has been there once."""
        return self._all_started.done()

    @property
    def num_places(self) -> int:
        """Most sessions at once."""
        return self._limits.num_workers * self._limits.sessions_per_worker

    @property
    def num_workers(self) -> int:
        """Workers that are there now."""
        return len(self._desks)

    @property
    def num_taken(self) -> int:
        """Places that are taken now."""
        return sum(desk.num_taken for desk in self._desks)

    def start(self) -> None:
        """Begin to start the workers, and keep them."""
        self._keepers = [asyncio.create_task(self._keep()) for _ in range(self._limits.num_workers)]

    async def started(self) -> None:
        """Wait until every worker has been there once.

        Raises:
            EnvironmentFailure: A worker did not start, or could not make an instance.
        """
        await asyncio.shield(self._all_started)

    def take(self) -> Place | None:
        """A place in the worker with the fewest sessions; None if all are taken."""
        free = [desk for desk in self._desks if desk.free]
        return min(free, key=lambda desk: desk.num_taken).take() if free else None

    async def close(self) -> None:
        """End every worker; sessions that are left fail."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for desk in self._desks:
            desk.kill(Cause.DRAINED, "was ended, since the server stops,")
        self._desks.clear()
        await self._backend.close()

    async def _keep(self) -> None:
        """Have one worker, again and again."""
        delay = _FIRST_DELAY_SECONDS
        while True:
            try:
                with attributed_to(EnvironmentFailure, "start_worker"):
                    worker = await self._backend.start_worker()
            except EnvironmentFailure as failure:
                logger.error("a worker did not start; again in %.1f s: %s", delay, failure)
                self._settle_start(failure)
                await asyncio.sleep(delay)
                delay = min(2 * delay, _LONGEST_DELAY_SECONDS)
                continue
            desk = _Desk(worker, limits=self._limits)
            began = asyncio.get_running_loop().time()
            try:
                lost = await self._serve(desk)
            except asyncio.CancelledError:
                desk.kill(Cause.DRAINED, "was ended, since the server stops,")
                raise
            logger.warning("a worker is replaced: %s", lost)
            self._on_replaced(lost.cause)
            lived = asyncio.get_running_loop().time() - began
            delay = _FIRST_DELAY_SECONDS if lived > _LONGEST_DELAY_SECONDS else delay
            if lived < delay:
                await asyncio.sleep(delay)
                delay = min(2 * delay, _LONGEST_DELAY_SECONDS)

    def _settle_start(self, failure: Exception | None) -> None:
        if self._all_started.done():
            return
        if failure is None:
            self._all_started.set_result(None)
        else:
            self._all_started.set_exception(EnvironmentFailure(str(failure)))

    async def _serve(self, desk: "_Desk") -> CallFailed:
        """Use a worker until it is lost; returns how it was."""
        watching = asyncio.create_task(desk.watch())
        try:
            await desk.warm()
            self._desks.append(desk)
            if len(self._desks) == self._limits.num_workers:
                self._settle_start(None)
            return await asyncio.shield(desk.lost)
        except CallFailed as failure:  # while it was warmed
            self._settle_start(failure)
            desk.kill(failure.cause, "was ended, since it could not be made warm,")
            return failure
        finally:
            if desk in self._desks:
                self._desks.remove(desk)
            watching.cancel()
            await asyncio.wait([watching])


class _Desk:
    """A worker, its places, and the calls that wait for it."""

    def __init__(self, worker: Worker, *, limits: FleetLimits) -> None:
        self._worker = worker
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self.free = list(range(limits.sessions_per_worker))
        self._warm: set[int] = set()
        """Of the free places."""
        self._prepares = False
        """Whether an instance must be told when its episode is over, to be ready for the next."""
        self._held: set[Place] = set()
        self._pending: deque[_Pending] = deque()
        self._running: list[_Pending] = []
        self._is_scheduled = False
        self._deadline: asyncio.TimerHandle | None = None
        self._idle_since = self._loop.time()
        self._cause = Cause.WORKER_LOST
        self._killed = False
        self.lost: asyncio.Future[CallFailed] = self._loop.create_future()
        """How the worker was lost, as soon as it is."""
        worker.ended.add_done_callback(self._on_ended)

    @property
    def num_taken(self) -> int:
        return len(self._held)

    def take(self) -> Place:
        number = next((free for free in reversed(self.free) if free in self._warm), self.free[-1])
        self.free.remove(number)
        self._warm.discard(number)
        place = Place(self, number)
        self._held.add(place)
        return place

    def take_back(self, place: Place, *, broken: bool) -> None:
        if place not in self._held:
            return
        self._held.remove(place)
        if self._killed or self.lost.done():
            return
        number = place.number
        self.free.append(number)
        if broken and self._limits.sessions_per_worker == 1:
            self.kill(Cause.ENVIRONMENT_ERROR, "was replaced, since its environment failed,")
        elif len(self._warm) < self._limits.num_warm:
            self._warm.add(number)
            if self._prepares or broken:
                self.put(Call(Verb.MAKE, number))

    def put(self, call: Call) -> "asyncio.Future[Done]":
        result: asyncio.Future[Done] = self._loop.create_future()
        if self.lost.done():
            _fail(_Pending(call, result), self.lost.result())
        else:
            self._pending.append(_Pending(call, result))
            self._schedule()
        return result

    def kill(self, cause: Cause, words: str) -> None:
        if not self.lost.done():
            self._killed = True
            self.free.clear()  # on a node far away it may take a moment to end
            self._cause = cause
            self._worker.kill(words)

    async def warm(self) -> None:
        """Make instances beforehand."""
        for number in self.free[-self._limits.num_warm :] if self._limits.num_warm else ():
            made = await self.put(Call(Verb.MAKE, number))
            self._prepares = made.content == PREPARED
            self._warm.add(number)

    def _schedule(self) -> None:
        """Send what waits, once everyone who is about to ask has done so."""
        if self._pending and not self._running and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._send)

    def _next_batch(self, seconds: float) -> list[_Pending]:
        """The next calls that wait, up to one of another deadline than `seconds`."""
        batch: list[_Pending] = []
        num_characters = 0
        while (
            self._pending
            and self._limits.seconds_for(self._pending[0].call.verb) == seconds
            and len(batch) < _MAX_CALLS
            and num_characters < _MAX_CHARACTERS
        ):
            batch.append(self._pending.popleft())
            num_characters += len(batch[-1].call.text)
        return batch

    def _send(self) -> None:
        self._is_scheduled = False
        if self.lost.done():
            return
        seconds = self._limits.seconds_for(self._pending[0].call.verb)
        batch = self._running = self._next_batch(seconds)
        self._deadline = self._loop.call_later(
            seconds + TICK_SECONDS,
            self.kill,
            Cause.TIMEOUT,
            f"was killed, since a call did not return within {seconds:g} s,",
        )
        message = encode_calls([pending.call for pending in batch])
        self._worker.ask(message).add_done_callback(self._take_answer)

    def _take_answer(self, answer: "asyncio.Future[bytes]") -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        batch = self._running
        try:
            answers = decode_answer(answer.result())
            if not 1 <= len(answers) <= len(batch):
                raise ValueError(f"{len(answers)} answers to {len(batch)} calls")
        except EnvironmentFailure:
            return  # `_on_ended` fails the calls
        except ValueError as error:  # msgspec's errors are such
            self.kill(Cause.WORKER_LOST, f"was killed, since it sent no answer: {error},")
            return
        self._running = []
        for pending, done in zip(batch, answers, strict=False):
            if done.failed:
                _fail(pending, CallFailed(done.content.decode(), Cause.ENVIRONMENT_ERROR))
            else:
                pending.result.set_result(done)
        self._pending.extendleft(reversed(batch[len(answers) :]))
        self._idle_since = self._loop.time()
        self._schedule()

    async def watch(self) -> None:
        """Kill the worker if it holds too much, or does not answer while it has nothing to do."""
        limit = self._limits.memory_bytes
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            try:
                with attributed_to(EnvironmentFailure, "resident_bytes"):
                    held = await self._worker.resident_bytes()
            except EnvironmentFailure as failure:  # such as too many open files
                logger.warning("the memory of a worker could not be measured: %s", failure)
                continue
            if held > limit:
                self.kill(
                    Cause.MEMORY,
                    f"was killed, since its processes held {held >> 20} MiB; the limit is "
                    f"{limit >> 20} MiB,",
                )
            elif not self._running and self._loop.time() - self._idle_since > _IDLE_SECONDS:
                self.put(Call(Verb.PING, 0))

    def _on_ended(self, ended: "asyncio.Future[str]") -> None:
        """Fail what was going on, what waited, and every session of the worker."""
        words = ended.result()
        lost = CallFailed(words, self._cause)
        self.lost.set_result(lost)
        self.free.clear()
        together = f"; it did {len(self._running)} calls at once, this among them"
        for pending in self._running:
            shared = together if len(self._running) > 1 else ""
            _fail(pending, CallFailed(f"{words}{shared}", self._cause))
        for pending in self._pending:
            _fail(pending, CallFailed(f"{words} before this call", self._cause))
        self._running, self._pending = [], deque()
        for place in list(self._held):
            if place.on_lost is not None:  # after the calls above: a session of one has its cause
                failure = CallFailed(f"{words} while this session waited", self._cause)
                self._loop.call_soon(place.on_lost, failure)


def _fail(pending: _Pending, failure: CallFailed) -> None:
    if not pending.result.done():
        pending.result.set_exception(failure)
        pending.result.exception()  # who gave up waiting is owed no warning
