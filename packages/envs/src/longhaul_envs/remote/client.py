"""Connections to one environment server, and the rules for asking again.

Every request may be sent twice: a session is asked for by an id of ours, a step has its number. So
whatever says that the *server* was not reached, or cannot answer now, is tried again; an answer
about the *environment* never is. Steps that are asked for at the same time travel together where
the environment is quick.
"""

import asyncio
import logging
import random
from collections import deque
from typing import NamedTuple

import aiohttp
import msgspec

from longhaul_core.environment import StepResult
from longhaul_core.errors import EnvironmentFailure, EnvironmentTimeout
from longhaul_core.types import Observation, Task
from longhaul_envs.server.errors import Cause
from longhaul_envs.server.protocol import (
    CLIENT_HEADER,
    LARGEST_BATCH,
    MAX_BODY_BYTES,
    PROTOCOL,
    BatchAnswer,
    BatchStep,
    CreateRequest,
    HeartbeatRequest,
    Problem,
    ResetRequest,
    SessionAnswer,
    StepRequest,
)

__all__ = ["ServerClient"]

logger = logging.getLogger(__name__)

_V = f"/v{PROTOCOL}"
_UNREACHABLE_SECONDS = 60.0
"""How long a server that cannot be reached is tried again; a restart takes less."""
_CONNECT_SECONDS = 10.0
_READ_SECONDS = 30.0
"""After which an answer that does not come is asked for again: it may have been lost."""
_CLOSE_SECONDS = 5.0
_CONNECTIONS = 256
_OPENINGS = 64
"""Of those connections, that wait for a place at once; closes and steps need the others."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_BATCHES_AT_ONCE = 4
"""Batches on their way; steps that come meanwhile gather for the next. The server answers a batch
within a second, whatever its steps do, so none holds up the others for longer."""
_NOT_NOW = frozenset({429, 502, 503, 504})
_HEADER_BYTES = 64
_UNREAD_HEADERS = ("Accept", "Accept-Encoding", "User-Agent")
"""Of aiohttp's, which the server would parse at every step and never look at."""

_decode_session = msgspec.json.Decoder(SessionAnswer).decode
_decode_observation = msgspec.json.Decoder(Observation).decode
_decode_result = msgspec.json.Decoder(StepResult).decode
_decode_batch = msgspec.json.Decoder(BatchAnswer).decode
_encode = msgspec.json.Encoder().encode


class _Answer(NamedTuple):
    status: int
    content: bytes


class _Waiting(NamedTuple):
    step: BatchStep
    encoded: bytes
    result: "asyncio.Future[StepResult | None]"
    """None: ask for it alone."""


class ServerClient:
    """Connections of one event loop to one server. They are there while somebody has entered."""

    def __init__(self, address: str, *, token: str, name: str, batches: bool) -> None:
        """Describe them; nothing is opened yet.

        Args:
            address: Of the server, without a slash at its end.
            token: Of the server; empty if it needs none.
            name: What the server counts quotas by.
            batches: Whether steps that are asked for at once travel together.
        """
        self._address = address
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        if name:
            self._headers[CLIENT_HEADER] = name
        self._batches = batches
        self._num_entered = 0
        self._http: aiohttp.ClientSession | None = None
        self._sessions: set[str] = set()
        self._beating: asyncio.Task[None] | None = None
        self._waiting: deque[_Waiting] = deque()
        self._openings = asyncio.Semaphore(_OPENINGS)
        self._sending: set[asyncio.Task[None]] = set()
        self._is_scheduled = False
        self._lone: _Waiting | None = None
        """A step that nothing else was asked with: it needs no batch, and holds up none."""
        self._jitter = random.Random()  # of its own, so that nobody else's draws change
        self.closed = False
        """Whether it is of no use any more."""

    def enter(self) -> None:
        """Use the connections, until `leave`."""
        self._num_entered += 1

    async def leave(self) -> None:
        """Use them no more; the last one closes them."""
        self._num_entered -= 1
        if self._num_entered:
            return
        self.closed = True
        left = {*self._sending, *([] if self._beating is None else [self._beating])}
        for task in left:  # a batch that nobody waits for is not asked for again
            task.cancel()
        if left:
            await asyncio.wait(left)
        if self._http is not None:
            await self._http.close()

    async def create(self, environment_id: str, *, idempotency_key: str) -> str:
        """The id of a new session, as soon as the server has a place.

        Raises:
            EnvironmentFailure: If the server cannot be reached, or refuses.
        """
        body = _encode(CreateRequest(environment=environment_id, idempotency_key=idempotency_key))
        async with self._openings:
            answer = await self._request("POST", f"{_V}/sessions", body, waits=True)
        session = _decode_session(answer.content)
        self._sessions.add(session.session_id)
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat(session.lease_seconds))
        return session.session_id

    async def reset(self, session_id: str, task: Task) -> Observation:
        """Start the session's episode.

        Raises:
            EnvironmentFailure: If it failed, or the server cannot be reached.
        """
        body = _encode(ResetRequest(task_id=task.task_id, seed=task.seed))
        answer = await self._request("POST", f"{_V}/sessions/{session_id}/reset", body)
        return _decode_observation(answer.content)

    async def step(self, session_id: str, *, number: int, action: str) -> StepResult:
        """Make a step, once.

        Raises:
            EnvironmentFailure: If it failed, or the server cannot be reached.
        """
        if self._batches:
            step = BatchStep(session_id=session_id, number=number, action=action)
            waiting = _Waiting(step, _encode(step), asyncio.get_running_loop().create_future())
            self._waiting.append(waiting)
            self._schedule()
            try:
                result = await waiting.result
                if result is not None:
                    return result
                return await self._step_alone(session_id, number, action)
            finally:
                if waiting is self._lone:
                    self._lone = None
        return await self._step_alone(session_id, number, action)

    async def close_session(
        self, session_id: str, environment_id: str, *, idempotency_key: str
    ) -> None:
        """Give a session back; the server's lease ends what it does not hear of.

        Args:
            session_id: Of the session; empty if its opening was given up.
            environment_id: What was to be opened.
            idempotency_key: That it was asked for with.
        """
        self._sessions.discard(session_id)
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                if not session_id:  # it may be open: asking again says which it is
                    body = _encode(
                        CreateRequest(environment=environment_id, idempotency_key=idempotency_key)
                    )
                    created = await self._send("POST", f"{_V}/sessions", body)
                    if created.status != 201:
                        return
                    session_id = _decode_session(created.content).session_id
                await self._send("DELETE", f"{_V}/sessions/{session_id}", None)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            logger.warning("%s: a session is left to its lease: %r", self._address, error)

    async def _step_alone(self, session_id: str, number: int, action: str) -> StepResult:
        body = _encode(StepRequest(number=number, action=action))
        answer = await self._request("POST", f"{_V}/sessions/{session_id}/step", body)
        return _decode_result(answer.content)

    # Batches

    def _schedule(self) -> None:
        """Send what waits, once everyone who is about to step has said so."""
        if self._waiting and not self._is_scheduled and len(self._sending) < _BATCHES_AT_ONCE:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        batch: list[_Waiting] = []
        room = MAX_BODY_BYTES - _HEADER_BYTES
        while self._waiting and len(batch) < LARGEST_BATCH:
            room -= len(self._waiting[0].encoded) + 1
            if room < 0 and batch:
                break
            waiting = self._waiting.popleft()
            if not waiting.result.done():
                batch.append(waiting)
        if len(batch) == 1 and not self._sending and self._lone is None:
            self._lone = batch[0]
            _settle(batch[0], None)
        elif batch:
            task = asyncio.create_task(self._send_batch(batch))
            self._sending.add(task)
            task.add_done_callback(self._sent)
        self._schedule()

    def _sent(self, task: "asyncio.Task[None]") -> None:
        self._sending.discard(task)
        self._schedule()

    async def _send_batch(self, batch: list[_Waiting]) -> None:
        body = b'{"steps":[' + b",".join([one.encoded for one in batch]) + b"]}"
        try:
            answer = await self._request("POST", f"{_V}/steps", body)
            results = _decode_batch(answer.content).results
            if len(results) != len(batch):
                raise ValueError(
                    f"{self._address} gave {len(results)} results for {len(batch)} steps"
                )
        except (EnvironmentFailure, ValueError) as error:  # msgspec's errors are such
            for one in batch:
                _settle(one, EnvironmentFailure(str(error)))
            return
        for one, result in zip(batch, results, strict=True):
            if isinstance(result.result, StepResult):
                _settle(one, result.result)
            elif isinstance(result.problem, Problem) and result.status != 202:
                _settle(one, self._failure(result.status, result.problem))
            else:
                _settle(one, None)

    # Requests

    async def _request(
        self, method: str, path: str, body: bytes | None, *, waits: bool = False
    ) -> _Answer:
        """The answer to a request that may be sent again, if it is none of an error.

        Args:
            method: Of HTTP.
            path: With the version.
            body: JSON.
            waits: Whether a server that is full is waited for, as long as it takes.

        Raises:
            EnvironmentFailure: What the server answered, or that it cannot be reached.
        """
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE
        failing_since: float | None = None
        while True:
            try:
                answer = await self._send(method, path, body)
            except TimeoutError as error:
                if not isinstance(error, aiohttp.ConnectionTimeoutError):
                    # The answer is late or lost; who waits has a deadline for it.
                    logger.warning("%s: no answer to %s; asking again", self._address, path)
                    continue
                problem = repr(error)
            except aiohttp.ClientError as error:
                problem = repr(error)
            else:
                if answer.status not in _NOT_NOW:
                    if answer.status < 300:
                        return answer
                    raise self._failure(answer.status, _problem_of(answer))
                refusal = _problem_of(answer)
                if waits and refusal.cause in ("full", "quota", "starting"):
                    failing_since = None
                    await asyncio.sleep(pause * self._jitter.uniform(0.5, 1.5))
                    pause = min(2 * pause, _LONGEST_PAUSE)
                    continue
                problem = f"{answer.status} {refusal.detail}"
            failing_since = loop.time() if failing_since is None else failing_since
            if loop.time() - failing_since > _UNREACHABLE_SECONDS:
                raise EnvironmentFailure(
                    f"the environment server {self._address} could not be reached for "
                    f"{_UNREACHABLE_SECONDS:g} s: {problem}"
                )
            await asyncio.sleep(pause * self._jitter.uniform(0.5, 1.5))
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _send(self, method: str, path: str, body: bytes | None) -> _Answer:
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS, keepalive_timeout=30),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS
                ),
                headers=self._headers,
                skip_auto_headers=_UNREAD_HEADERS,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        async with self._http.request(
            method, f"{self._address}{path}", data=body, allow_redirects=False
        ) as answer:
            return _Answer(answer.status, await answer.read())

    def _failure(self, status: int, problem: Problem) -> EnvironmentFailure:
        kind = EnvironmentTimeout if problem.cause == Cause.TIMEOUT else EnvironmentFailure
        return kind(f"{self._address}: {status}, {problem.cause or 'refused'}: {problem.detail}")

    async def _beat(self, lease_seconds: float) -> None:
        """Keep the sessions that wait for their agent."""
        while True:
            await asyncio.sleep(lease_seconds / 4)
            ids = tuple(self._sessions)
            for start in range(0, len(ids), LARGEST_BATCH):
                body = _encode(HeartbeatRequest(session_ids=ids[start : start + LARGEST_BATCH]))
                try:
                    await self._send("POST", f"{_V}/heartbeat", body)
                except (aiohttp.ClientError, OSError) as error:
                    logger.warning("%s: no heartbeat: %r", self._address, error)


def _settle(waiting: _Waiting, outcome: StepResult | EnvironmentFailure | None) -> None:
    if waiting.result.done():  # who waited has gone
        return
    if isinstance(outcome, EnvironmentFailure):
        waiting.result.set_exception(outcome)
    else:
        waiting.result.set_result(outcome)


def _problem_of(answer: _Answer) -> Problem:
    try:
        return msgspec.json.decode(answer.content, type=Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Problem(
            detail=f"{answer.content[:200]!r}", cause="no answer of an environment server"
        )
