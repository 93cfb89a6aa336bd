"""The runner: leases episodes of a run, plays each by a command of its own, and reports.

    slot ──▶ next gateway ──▶ lease (waits there) ──▶ Program.run ──▶ result, until it is taken

A runner has as many slots as it plays episodes at once, and each goes round the run's gateways by
itself. One that cannot be reached is asked again later and later. What was lost on the way is sent
again: a lease has a name of the runner's own, and a result counts once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import NoReturn, TypeVar

import aiohttp
import msgspec

from longhaul_core.errors import (
    ConfigError,
    EpisodeError,
    MachineError,
    ProgramLimit,
    ProgramTimeout,
)
from longhaul_core.types import Split, Task
from longhaul_trainer.play.programs.program import Endpoint, Program
from longhaul_trainer.play.runners.wire import (
    LEASES,
    PREFIX,
    Beat,
    Beaten,
    End,
    Granted,
    Hello,
    HelloAnswer,
    LeaseRequest,
    Result,
)

__all__ = ["Runner"]

logger = logging.getLogger(__name__)

_WAIT_SECONDS = 20.0
"""How long a request for an episode waits at the only gateway."""
_WAIT_AMONG_SECONDS = 2.0
"""How long it waits at one of several."""
_HELLO_SECONDS = 30.0
"""Between two questions which gateways there are."""
_MOST_BEAT_SECONDS = 5.0
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 15.0
_GIVE_BACK_SECONDS = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 15.0

T = TypeVar("T")
ProgramOf = Callable[[float], Program]
"""A program with this deadline, in seconds."""


class _Unreachable(Exception):
    """The gateway did not answer, or cannot now."""


class _Over(Exception):
    """The lease is over."""


class _Playing:
    """An episode that is played here."""

    def __init__(self, granted: Granted) -> None:
        self.granted = granted
        self.enough = asyncio.Event()
        self.is_handed_back = False
        self.playing: asyncio.Task[Result] | None = None

    def cancel(self) -> None:
        """End its program."""
        if self.playing is not None:
            self.playing.cancel()


class _Gateway:
    """A gateway of the run, as a runner sees it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.playing: dict[str, _Playing] = {}
        self.beating: asyncio.Task[None] | None = None
        self.unanswered: list[str] = []
        """Leases that were asked for and may have been given: the answer was lost."""
        self.heard_at = time.monotonic()
        """When it answered last."""
        self.said_hello_at: float | None = None
        self.ask_again_at = 0.0
        self.pause = 0.0
        """Above 0 while it does not answer."""

    def answered(self) -> None:
        """It is there."""
        if self.pause:
            logger.info("%s answers", self.address)
        self.heard_at = time.monotonic()
        self.pause = self.ask_again_at = 0.0

    def failed(self, error: Exception) -> None:
        """It is not, and is asked again after a pause that grows."""
        if time.monotonic() < self.ask_again_at:
            return  # another slot has just seen it
        if not self.pause:
            logger.warning("%s does not answer, trying again: %s", self.address, error)
        self.pause = min(_LONGEST_PAUSE, max(_FIRST_PAUSE, 2 * self.pause))
        self.ask_again_at = time.monotonic() + self.pause * random.uniform(0.5, 1.0)
        self.said_hello_at = None


class Runner:
    """Plays episodes of a run until it is told to stop."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        program_of: ProgramOf,
        name: str,
        token: str = "",
        concurrency: int = 1,
        drain_seconds: float = 30.0,
        unreachable_seconds: float | None = None,
    ) -> None:
        """Describe it; nothing is asked yet.

        Args:
            addresses: Of the run's gateways, `http://HOST:PORT`; one is enough.
            program_of: What plays.
            name: What the run calls it.
            token: Of the run; empty if it needs none.
            concurrency: Episodes at once, at least 1.
            drain_seconds: How long episodes may go on once it is to stop, before they are handed
                back.
            unreachable_seconds: It ends when no gateway answered for so long; None for never.
        """
        self._gateways = {address: _Gateway(address) for address in addresses}
        self._program_of = program_of
        self._programs: dict[float, Program] = {}
        self._name = name
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._concurrency = concurrency
        self._drain_seconds = drain_seconds
        self._unreachable_seconds = unreachable_seconds
        self._stop = asyncio.Event()
        self._http: aiohttp.ClientSession | None = None
        self.num_played = 0
        """Episodes whose result was taken."""

    async def run(self, *, stop: asyncio.Event, at_once: asyncio.Event) -> None:
        """Play, until `stop` is set and what was begun has ended or was handed back.

        Args:
            stop: Once it is set no further episode is leased.
            at_once: Once it is set episodes are handed back without waiting for their end.

        Raises:
            ConfigError: A gateway refuses the token, or is none.
            MachineError: None could be reached for `unreachable_seconds`.
        """
        self._stop = stop
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
        async with aiohttp.ClientSession(
            timeout=timeout, connector=aiohttp.TCPConnector(limit=0), headers=self._headers
        ) as http:
            self._http = http
            slots = [asyncio.create_task(self._slot(place)) for place in range(self._concurrency)]
            watch = asyncio.create_task(self._watch())
            stopping = asyncio.create_task(stop.wait())
            tasks = {*slots, watch, stopping}
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if stop.is_set():
                    await self._drain(slots, at_once)
            finally:
                beating = {one.beating for one in self._gateways.values() if one.beating}
                for task in tasks | beating:
                    task.cancel()
                await asyncio.wait(tasks | beating)
                for program in self._programs.values():
                    await program.close()
        for task in (*slots, watch):
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _drain(self, slots: Sequence[asyncio.Task[None]], at_once: asyncio.Event) -> None:
        """Let episodes end, then hand back those that did not."""
        playing = self._now_playing()
        if playing:
            logger.info("stopping; %d episodes may take %g s", len(playing), self._drain_seconds)
        hurried = asyncio.create_task(at_once.wait())
        ended = asyncio.create_task(_all_ended(slots))
        await asyncio.wait(
            {hurried, ended}, timeout=self._drain_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        hurried.cancel()
        for one in self._now_playing():
            one.is_handed_back = True
            one.cancel()
        await ended

    def _now_playing(self) -> list[_Playing]:
        return [one for gateway in self._gateways.values() for one in gateway.playing.values()]

    async def _slot(self, place: int) -> None:
        """Play one episode after the other, from all gateways in turn."""
        turn = place
        while not self._stop.is_set():
            gateway = self._next(turn)
            turn += 1
            if gateway is None:
                await self._rest()
                continue
            try:
                await self._hello(gateway)
                await self._lease_and_play(gateway)
            except _Unreachable as error:
                gateway.failed(error)
        for gateway in self._gateways.values():
            while gateway.unanswered:
                await self._give_back(gateway, gateway.unanswered.pop())

    def _next(self, turn: int) -> _Gateway | None:
        """The next gateway that is to be asked now."""
        gateways = list(self._gateways.values())
        now = time.monotonic()
        of_turn = (gateways[(turn + n) % len(gateways)] for n in range(len(gateways)))
        return next((one for one in of_turn if one.ask_again_at <= now), None)

    async def _rest(self) -> None:
        until = min(gateway.ask_again_at for gateway in self._gateways.values())
        await self._unless_stopped(asyncio.sleep(max(0.0, until - time.monotonic())))

    async def _unless_stopped(self, action: Coroutine[None, None, T]) -> T | None:
        """What an action returns; None where the runner is to stop, and the action is cancelled."""
        acting = asyncio.ensure_future(action)
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({acting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            acting.cancel()
            await asyncio.wait({acting})
        return None if acting.cancelled() else acting.result()

    async def _hello(self, gateway: _Gateway) -> None:
        """Ask which gateways there are, now and then."""
        said = gateway.said_hello_at
        if said is not None and time.monotonic() < said + _HELLO_SECONDS:
            return
        hello = Hello(runner=self._name, address=gateway.address)
        answer = await self._post(gateway, f"{PREFIX}/hello", hello, kind=HelloAnswer)
        gateway.said_hello_at = time.monotonic()
        for address in () if answer is None else answer.gateways:
            if address not in self._gateways:
                logger.info("found another gateway of the run: %s", address)
                self._gateways[address] = _Gateway(address)

    async def _lease_and_play(self, gateway: _Gateway) -> None:
        lease_id = (gateway.unanswered or [secrets.token_urlsafe(24)]).pop()
        granted = await self._unless_stopped(self._granted(gateway, lease_id))
        if granted is not None:
            await self._play(gateway, lease_id, granted)
        elif self._stop.is_set():  # the answer may have been on its way
            await self._give_back(gateway, lease_id)

    async def _granted(self, gateway: _Gateway, lease_id: str) -> Granted | None:
        """An episode; None if the gateway has none now."""
        waits = _WAIT_SECONDS if len(self._gateways) == 1 else _WAIT_AMONG_SECONDS
        wanted = LeaseRequest(runner=self._name, address=gateway.address, wait_seconds=waits)
        path = f"{LEASES}/{lease_id}"
        try:
            return await self._post(gateway, path, wanted, kind=Granted, waits=waits)
        except _Over:
            return None
        except _Unreachable:
            gateway.unanswered.append(lease_id)
            raise

    async def _play(self, gateway: _Gateway, lease_id: str, granted: Granted) -> None:
        one = _Playing(granted)
        gateway.playing[lease_id] = one
        one.playing = asyncio.create_task(self._played(one))
        if gateway.beating is None or gateway.beating.done():
            gateway.beating = asyncio.create_task(self._beat(gateway, granted.lost_seconds))
        try:
            await asyncio.wait({one.playing})
            if not one.playing.cancelled():
                await self._report(gateway, lease_id, one.playing.result(), one)
            elif one.is_handed_back:
                await self._give_back(gateway, lease_id)
        finally:
            one.playing.cancel()
            await asyncio.wait({one.playing})
            del gateway.playing[lease_id]

    async def _played(self, one: _Playing) -> Result:
        """What the program of an episode leaves here."""
        seconds = one.granted.deadline_seconds
        if seconds not in self._programs:
            self._programs[seconds] = self._program_of(seconds)
        endpoint = Endpoint(environ=one.granted.environ, report=_here, report_reward=_here)
        running = self._programs[seconds].run(
            _task_of(one.granted), endpoint=endpoint, enough=one.enough
        )
        try:
            async with running as left:
                return Result(
                    end=End.LEFT,
                    printed=left.printed,
                    output=left.output,
                    exit_code=left.exit_code,
                )
        except ProgramTimeout as error:
            return Result(end=End.TIMEOUT, message=str(error))
        except ProgramLimit as error:
            return Result(end=End.LIMIT, message=str(error))
        except EpisodeError as error:
            return Result(end=End.FAILED, message=str(error))

    async def _report(
        self, gateway: _Gateway, lease_id: str, result: Result, one: _Playing
    ) -> None:
        """Say what came of an episode until it is taken, or can count no more."""
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._post(gateway, f"{LEASES}/{lease_id}/result", result, kind=dict)
            except _Over as over:
                logger.warning("a result came too late: %s", over)
                return
            except _Unreachable:
                if time.monotonic() > gateway.heard_at + one.granted.lost_seconds:
                    logger.warning("a result could not be reported: %s is gone", gateway.address)
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, 2.0)
            else:
                self.num_played += 1
                return

    async def _give_back(self, gateway: _Gateway, lease_id: str) -> None:
        """End a lease without a result; if nobody hears of it, its time ends it."""
        try:
            path, given = f"{LEASES}/{lease_id}/result", Result(end=End.HANDED_BACK)
            await self._post(gateway, path, given, kind=dict, seconds=_GIVE_BACK_SECONDS)
        except (_Over, _Unreachable):
            pass

    async def _beat(self, gateway: _Gateway, lost_seconds: float) -> None:
        """Say what is played, as long as something is."""
        pause = min(_MOST_BEAT_SECONDS, lost_seconds / 4)
        while gateway.playing:
            await asyncio.sleep(pause)
            beat = Beat(runner=self._name, leases=tuple(gateway.playing))
            try:
                answer = await self._post(
                    gateway, f"{PREFIX}/heartbeat", beat, kind=Beaten, seconds=lost_seconds / 2
                )
            except (_Unreachable, _Over) as error:
                if time.monotonic() < gateway.heard_at + lost_seconds:
                    continue
                answer = Beaten(over=dict.fromkeys(beat.leases, str(error)), enough=())
            for lease_id, cause in () if answer is None else answer.over.items():
                if (one := gateway.playing.get(lease_id)) is not None:
                    logger.warning("an episode is given up: %s", cause)
                    one.cancel()
            for lease_id in () if answer is None else answer.enough:
                if (one := gateway.playing.get(lease_id)) is not None:
                    one.enough.set()

    async def _watch(self) -> None:
        """End the runner when nobody answers for too long."""
        if self._unreachable_seconds is None:
            await asyncio.Event().wait()
            return
        while True:
            newest = max(gateway.heard_at for gateway in self._gateways.values())
            left = newest + self._unreachable_seconds - time.monotonic()
            if left <= 0 and all(gateway.pause for gateway in self._gateways.values()):
                raise MachineError(
                    f"no gateway answered for {self._unreachable_seconds:g} s: "
                    f"{', '.join(self._gateways)}; the run has ended, or is not there"
                )
            await asyncio.sleep(max(0.2, left))

    async def _post(
        self,
        gateway: _Gateway,
        path: str,
        body: object,
        *,
        kind: type[T],
        waits: float = 0.0,
        seconds: float = _ANSWER_SECONDS,
    ) -> T | None:
        """What a gateway answers; None if that is nothing.

        Args:
            gateway: The gateway.
            path: Of its address.
            body: As `wire` has it.
            kind: Of the answer.
            waits: How long the gateway may wait before it answers.
            seconds: How long the answer may take beside that.

        Raises:
            ConfigError: The gateway refuses the runner, or is none.
            _Unreachable: It did not answer, or cannot now.
            _Over: The lease is over.
        """
        assert self._http is not None
        url = f"{gateway.address}{path}"
        try:
            async with (
                asyncio.timeout(waits + seconds),
                self._http.post(
                    url, data=msgspec.json.encode(body), allow_redirects=False
                ) as answer,
            ):
                status, content = answer.status, await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _Unreachable(str(error) or type(error).__name__) from error
        if status >= 500 or status == 429:
            raise _Unreachable(f"it answered with {status}")
        gateway.answered()
        match status:
            case 200:
                try:
                    return msgspec.json.decode(content, type=kind)
                except ValueError as error:
                    raise _no_gateway(url, f"{status}, {error}") from error
            case 204:
                return None
            case 410:
                raise _Over(_text_of(content))
            case _:
                raise _no_gateway(url, f"{status}: {_text_of(content)}")


def _no_gateway(url: str, answer: str) -> ConfigError:
    return ConfigError(
        f"{url} answered with {answer}. --connect must name a gateway of a run with "
        'agent.kind = "remote", and the token must be that run\'s'
    )


def _text_of(content: bytes) -> str:
    return content[:2_000].decode(errors="replace")


async def _all_ended(slots: Sequence[asyncio.Task[None]]) -> None:
    await asyncio.wait(slots)


def _task_of(granted: Granted) -> Task:
    """What the program is given; the rest of the task stays with the run."""
    return Task(
        environment="remote",
        version="1",
        data_hash="",
        task_id="",
        seed=0,
        split=Split.TRAIN,
        data=granted.task,
    )


def _here(*_: object) -> NoReturn:
    """A function's reports would go past HTTP, and a runner plays commands."""
    raise TypeError("a runner's program reports to the gateway by HTTP")
