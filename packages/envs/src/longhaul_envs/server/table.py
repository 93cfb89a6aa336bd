"""The sessions of a server: opened, played in numbered steps, leased, and gone with a cause.

It knows nothing of HTTP: all dialects that the server speaks reach one table. Answers are
the JSON that the worker wrote, passed on as it is; `msgspec.json.decode` reads it as an
`Observation` (reset) or a `StepResult` (step).

A session is one episode: reset once, stepped, closed. The reset is its operation 0, and its steps
count from 1. An operation that is asked for again gets the answer of the first time, or waits for
it: nothing acts twice, however often a request is sent.
"""

import asyncio
import logging
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec

from longhaul_core.clock import now
from longhaul_core.environment import EnvironmentDescription
from longhaul_core.errors import ConfigError
from longhaul_core.types import Observation, Split, Task
from longhaul_envs.server.errors import (
    Cause,
    Conflict,
    Gone,
    NotServed,
    QuotaSpent,
    Unavailable,
)
from longhaul_envs.server.fleet import CallFailed, Fleet, Place
from longhaul_envs.server.hosting import Done, Verb

__all__ = ["Answer", "Owner", "Served", "SessionTable", "TableLimits", "TableObserver"]

logger = logging.getLogger(__name__)

_REAP_SECONDS = 1.0
_LONGEST_WAIT = 60
_LOOK_SECONDS = 0.5
_MAX_REMEMBERED = 10_000
"""Sessions that are gone of which the cause is still known."""


class Owner(msgspec.Struct, frozen=True):
    """Whom a session belongs to."""

    token: str
    """Name of the token that opened it (never the token); empty where none is needed. Only
    requests with the same token reach the session."""
    client: str = ""
    """What the client calls itself; quotas are counted for each pair of token and client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLimits:
    """What sessions may take."""

    lease_seconds: float = 300.0
    """A session that nobody asked anything of for so long is closed; above 0."""
    sessions_per_client: int | None = None
    """Most sessions of one client at once, at least 1; None: as many as there are places."""
    wait_seconds: float = 5.0
    """Where all places are taken, how long a client waits for one before it is refused, at least
    0. Shorter than what a client or a proxy waits for an answer."""

    def __post_init__(self) -> None:
        if not self.lease_seconds > 0:
            raise ConfigError(f"lease_seconds must be above 0, got {self.lease_seconds:g}")
        if not 0 <= self.wait_seconds <= _LONGEST_WAIT:
            raise ConfigError(
                f"wait_seconds must lie in [0, {_LONGEST_WAIT}], got {self.wait_seconds:g}"
            )
        if self.sessions_per_client is not None and self.sessions_per_client < 1:
            raise ConfigError(
                f"sessions_per_client must be at least 1, got {self.sessions_per_client}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """An environment of the server."""

    description: EnvironmentDescription
    options: Mapping[str, object]
    """That it was started with."""
    tasks: Callable[[Split], Sequence[Task]]
    fleet: Fleet


class TableObserver(Protocol):
    """Counts what happens in a table."""

    def called(self, environment_id: str, verb: Verb, seconds: float) -> None:
        """A call came back, or failed, after so long."""
        ...

    def closed(self, environment_id: str, cause: Cause) -> None:
        """A session is gone."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class _Session:
    id: str
    environment_id: str
    owner: Owner
    idempotency_key: str
    place: Place
    used_at: float
    number: int = -1
    """Of the last operation: -1 before the reset, 0 for the reset, then the steps."""
    asked: object = None
    """What the last operation was asked for with."""
    answer: "asyncio.Future[Done] | None" = None
    """Of the last operation."""
    drawing: "asyncio.Future[Done] | None" = None
    """The picture that was asked for last."""
    shown: bytes = b""
    """The last answer that is complete."""
    num_calls: int = 0
    """Calls on their way to the worker."""
    held: bool = False
    """Whether it is kept without a lease."""
    closing: bool = False
    broken: bool = False
    """Whether its environment failed."""


class _Shown(msgspec.Struct, frozen=True):
    """An `Observation`, in which there is no such field, or a `StepResult`."""

    observation: msgspec.Raw = msgspec.Raw()


_SHOWN = msgspec.json.Decoder(_Shown)


class Answer:
    """An answer of a worker that is there or on its way."""

    def __init__(self, future: "asyncio.Future[Done]") -> None:
        self.future = future
        """Do not cancel it."""

    async def content(self) -> bytes:
        """The answer, as soon as it is there.

        Raises:
            Gone: It failed, and the session with it.
        """
        try:
            return (await asyncio.shield(self.future)).content
        except CallFailed as failure:
            raise Gone(str(failure), failure.cause) from failure


class SessionTable:
    """Every session of a server. Belongs to one event loop."""

    def __init__(
        self,
        served: Iterable[Served],
        *,
        limits: TableLimits,
        observer: TableObserver | None = None,
    ) -> None:
        """A table without sessions.

        Args:
            served: The environments; nothing else can be opened.
            limits: Of the sessions.
            observer: Is told of what happens, for metrics.
        """
        self.served = {one.description.id: one for one in served}
        self.limits = limits
        self._observer = observer
        self._sessions: dict[str, _Session] = {}
        self._by_request: dict[tuple[Owner, str], _Session] = {}
        self._of_client: Counter[Owner] = Counter()
        self._gone: OrderedDict[str, tuple[Owner, Gone]] = OrderedDict()
        self._draining = False
        self._empty = asyncio.Event()
        self._empty.set()
        self._freed = asyncio.Event()
        """Set when a place is given back."""
        self._turn = {name: asyncio.Lock() for name in self.served}
        """Of whoever waits first for a place of an environment."""

    @property
    def num_sessions(self) -> int:
        """Sessions that are open."""
        return len(self._sessions)

    @property
    def status(self) -> str:
        """`ready`, `starting` or `draining`.

        An environment all of whose workers are lost, until the first of others is there, is
        starting again.
        """
        if self._draining:
            return "draining"
        fleets = [one.fleet for one in self.served.values()]
        ready = all(fleet.ready and fleet.num_workers > 0 for fleet in fleets)
        return "ready" if ready else "starting"

    def environment(self, environment_id: str) -> Served:
        """An environment of the server.

        Raises:
            NotServed: It has no such environment.
        """
        if environment_id not in self.served:
            raise NotServed(
                f"no environment {environment_id!r} is served here; there are "
                f"{', '.join(self.served)}"
            )
        return self.served[environment_id]

    async def create_soon(
        self, environment_id: str, *, owner: Owner, idempotency_key: str = ""
    ) -> str:
        """`create`, after waiting for a place where all are taken, in the order of asking.

        Raises:
            NotServed, QuotaSpent, Unavailable: See `create`; full means full for `wait_seconds`.
        """
        again = self._opened(environment_id, owner=owner, idempotency_key=idempotency_key)
        if again is not None:
            return again
        create = partial(self.create, environment_id, owner=owner, idempotency_key=idempotency_key)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.wait_seconds), self._turn[environment_id]:
                while True:
                    try:
                        return create()
                    except Unavailable as refused:
                        if refused.cause != "full":
                            raise
                    self._freed.clear()
                    with suppress(TimeoutError):  # a place of a new worker frees none
                        await asyncio.wait_for(self._freed.wait(), _LOOK_SECONDS)
        return create()

    def create(self, environment_id: str, *, owner: Owner, idempotency_key: str = "") -> str:
        """Open a session; returns its id, which cannot be guessed.

        Args:
            environment_id: What to play.
            owner: Whom the session belongs to.
            idempotency_key: Of the owner's choice: while its session is open, asking again gives
                the same session. Empty: a new session each time.

        Raises:
            NotServed: There is no such environment.
            QuotaSpent: The client has its share of sessions.
            Unavailable: The server is starting, full, or draining.
        """
        again = self._opened(environment_id, owner=owner, idempotency_key=idempotency_key)
        if again is not None:
            return again
        served = self.served[environment_id]
        place = served.fleet.take()
        if place is None:
            taken, places = served.fleet.num_taken, served.fleet.num_places
            if taken < places:
                words = f"{taken} of {places} places of {environment_id} are taken, and the workers"
                raise Unavailable(f"{words} of the others are being started", "full")
            raise Unavailable(f"all {places} places of {environment_id} are taken", "full")
        session = _Session(
            id=secrets.token_urlsafe(18),
            environment_id=environment_id,
            owner=owner,
            idempotency_key=idempotency_key,
            place=place,
            used_at=now(),
        )
        place.on_lost = lambda failure: self._fail(session, failure)
        self._sessions[session.id] = session
        self._empty.clear()
        self._of_client[owner] += 1
        if idempotency_key:
            self._by_request[owner, idempotency_key] = session
        return session.id

    def _opened(self, environment_id: str, *, owner: Owner, idempotency_key: str) -> str | None:
        """The session that this request opened before; None where it may open one.

        Raises:
            NotServed, QuotaSpent, Unavailable: See `create`; never for being full.
        """
        served = self.environment(environment_id)
        again = self._by_request.get((owner, idempotency_key)) if idempotency_key else None
        if again is not None:
            if again.environment_id != environment_id:
                raise Conflict(
                    f"request {idempotency_key!r} opened a session of another environment"
                )
            self._renew(again)
            return again.id
        if self._draining:
            raise Unavailable("the server is being stopped", "draining")
        if not served.fleet.ready:
            raise Unavailable(f"{environment_id} is starting", "starting")
        quota = self.limits.sessions_per_client
        if quota is not None and self._of_client[owner] >= quota:
            raise QuotaSpent(f"the client {owner.client!r} has {quota} sessions, its share")
        return None

    async def reset(self, session_id: str, *, owner: Owner, task_id: str, seed: int) -> bytes:
        """Start the session's episode; returns the first `Observation` as JSON.

        Raises:
            Gone: The session is no more; if the reset failed, this is how.
            Conflict: It was reset to another task, or has stepped already.
        """
        beginning = self.begin_reset(session_id, owner=owner, task_id=task_id, seed=seed)
        return await beginning.content()

    def begin_reset(self, session_id: str, *, owner: Owner, task_id: str, seed: int) -> "Answer":
        """As `reset`, in two parts: what this returns waits for the answer."""
        session = self._find(session_id, owner)
        if session.number > 0:
            raise Conflict(f"the session has made {session.number} steps, and is reset once")
        return self._operation(session, 0, (task_id, seed), Verb.RESET, text=task_id, seed=seed)

    async def step(self, session_id: str, *, owner: Owner, number: int, action: str) -> bytes:
        """Make one step; returns its `StepResult` as JSON.

        Args:
            session_id: Of the session.
            owner: Whom it belongs to.
            number: 1 for the first step. The last step's number again, with the same action, gives
                its answer again; any other number is refused.
            action: What to do.

        Raises:
            Gone: The session is no more; if the step failed, this is how.
            Conflict: The number, or the action of a step that is repeated, does not fit.
        """
        beginning = self.begin_step(session_id, owner=owner, number=number, action=action)
        return await beginning.content()

    def begin_step(self, session_id: str, *, owner: Owner, number: int, action: str) -> "Answer":
        """As `step`, in two parts: what this returns waits for the answer."""
        session = self._find(session_id, owner)
        if session.number < 0:
            raise Conflict("the session is not reset yet")
        return self._operation(session, number, action, Verb.STEP, text=action)

    def observation(self, session_id: str, *, owner: Owner) -> bytes:
        """The last `Observation` as JSON.

        Raises:
            Gone: The session is no more.
            Conflict: It has none yet.
        """
        session = self._find(session_id, owner)
        if not session.shown:
            raise Conflict("the session has no observation yet: reset it first")
        return bytes(_SHOWN.decode(session.shown).observation) or session.shown

    def admissible_actions(self, session_id: str, *, owner: Owner) -> tuple[str, ...] | None:
        """What the environment accepts now; None if it does not say. Raises as `observation`."""
        raw = self.observation(session_id, owner=owner)
        return msgspec.json.decode(raw, type=Observation).admissible_actions

    async def render(self, session_id: str, *, owner: Owner) -> bytes:
        """A picture of the state, as a PNG file; one at a time, which all who ask meanwhile get.

        Raises:
            Gone: The session is no more.
            NotServed: The environment does not draw its state.
            Conflict: The session is not reset yet.
        """
        session = self._find(session_id, owner)
        if not session.shown:
            raise Conflict("the session has nothing to draw yet: reset it first")
        if session.drawing is None or session.drawing.done():
            session.drawing = self._call(session, Verb.RENDER)
        drawn = await Answer(session.drawing).content()
        if not drawn:
            raise NotServed(f"{session.environment_id} does not draw its state")
        return drawn

    def close(self, session_id: str, *, owner: Owner) -> None:
        """Close a session; one that its client has closed stays closed.

        Raises:
            Gone: The session is no more, for another cause.
        """
        known = self._gone.get(session_id)
        if known is not None and known[0].token == owner.token and known[1].cause == Cause.CLOSED:
            return
        self._end(self._find(session_id, owner), Gone("the client closed it", Cause.CLOSED))

    def hold(self, session_id: str, *, owner: Owner) -> None:
        """Keep a session without a lease: who opened it notices by itself that its player has gone.

        Raises:
            Gone: The session is no more.
        """
        self._find(session_id, owner).held = True

    def heartbeat(self, session_ids: Iterable[str], *, owner: Owner) -> dict[str, Gone]:
        """Renew leases; returns those that are no more, and why."""
        gone: dict[str, Gone] = {}
        for session_id in session_ids:
            try:
                self._find(session_id, owner)
            except Gone as error:
                gone[session_id] = error
        return gone

    async def reap(self) -> None:
        """Close sessions whose lease has run out, for ever."""
        while True:
            await asyncio.sleep(min(_REAP_SECONDS, self.limits.lease_seconds / 4))
            too_old = now() - self.limits.lease_seconds
            for session in [s for s in self._sessions.values() if s.used_at < too_old]:
                if not (session.num_calls or session.held):
                    words = f"nobody used it for {self.limits.lease_seconds:g} s, its lease"
                    self._end(session, Gone(words, Cause.LEASE))

    async def drain(self, *, seconds: float) -> None:
        """Open no more sessions, and wait until those that are open have been closed.

        Args:
            seconds: After which those that are left are closed.
        """
        self._draining = True
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            for session in list(self._sessions.values()):
                self._end(session, Gone("the server was stopped", Cause.DRAINED))

    def _find(self, session_id: str, owner: Owner) -> _Session:
        session = self._sessions.get(session_id)
        if session is not None and session.owner.token == owner.token:
            self._renew(session)
            return session
        of, error = self._gone.get(session_id, (None, None))
        if of is not None and error is not None and of.token == owner.token:
            raise Gone(str(error), Cause(error.cause))
        raise Gone(
            "there is no such session; its id is wrong, it is long gone, or the server was "
            "restarted"
        )

    def _renew(self, session: _Session) -> None:
        session.used_at = now()

    def _operation(
        self, session: _Session, number: int, asked: object, verb: Verb, *, text: str, seed: int = 0
    ) -> "Answer":
        if session.answer is not None and number == session.number:
            if asked != session.asked:
                what = "another task" if verb is Verb.RESET else f"another action at step {number}"
                raise Conflict(f"the session was asked for {what} before")
            return Answer(session.answer)
        if number != session.number + 1:
            raise Conflict(
                f"step {number} was asked for; the next one is {session.number + 1}, and the last "
                "one may be repeated"
            )
        if session.answer is not None:
            if not session.answer.done():
                raise Conflict("the operation before is still going on")
            if session.answer.result().ends:
                raise Conflict("the episode has ended")
        session.number, session.asked = number, asked
        session.answer = self._call(session, verb, text=text, seed=seed)
        return Answer(session.answer)

    def _call(
        self, session: _Session, verb: Verb, *, text: str = "", seed: int = 0
    ) -> "asyncio.Future[Done]":
        began = time.perf_counter()  # the loop's own time may be of whole milliseconds
        future = session.place.call(verb, text=text, seed=seed)
        session.num_calls += 1

        def settled(future: "asyncio.Future[Done]") -> None:
            session.num_calls -= 1
            session.used_at = now()
            if self._observer is not None:
                seconds = time.perf_counter() - began
                self._observer.called(session.environment_id, verb, seconds)
            failure = future.exception()
            if isinstance(failure, CallFailed):
                session.broken = failure.cause is Cause.ENVIRONMENT_ERROR
                self._fail(session, failure)
            elif verb is not Verb.RENDER:
                session.shown = future.result().content
            if session.closing:
                self._release(session)

        future.add_done_callback(settled)
        return future

    def _fail(self, session: _Session, failure: CallFailed) -> None:
        self._end(session, Gone(str(failure), failure.cause))

    def _end(self, session: _Session, error: Gone) -> None:
        if self._sessions.pop(session.id, None) is None:
            return
        self._by_request.pop((session.owner, session.idempotency_key), None)
        self._of_client[session.owner] -= 1
        if not self._of_client[session.owner]:
            del self._of_client[session.owner]
        self._gone[session.id] = (session.owner, error)
        if len(self._gone) > _MAX_REMEMBERED:
            self._gone.popitem(last=False)
        if error.cause not in (Cause.CLOSED, Cause.DRAINED):
            logger.info("a session of %s is gone: %s", session.environment_id, error)
        session.closing = True
        if self._observer is not None:
            self._observer.closed(session.environment_id, Cause(error.cause))
        self._release(session)
        if not self._sessions:
            self._empty.set()

    def _release(self, session: _Session) -> None:
        """Give the place back, once no call of the session is on its way."""
        if not session.num_calls:
            session.place.on_lost = None
            session.place.release(broken=session.broken)
            self._freed.set()
