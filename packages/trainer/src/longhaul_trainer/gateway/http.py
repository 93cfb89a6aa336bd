"""HTTP around a dialect: a bounded body in, a whole answer or a stream of events out.

    Incoming.read ──▶ json_object ──▶ respond: Dialect.read ──▶ answer ──▶ Dialect.whole
                          Stream ◀── pending ◀── on_delta ◀───────┘

It knows nothing of episodes or keys: who asks, and for which episode, is decided before.
"""

import asyncio
import secrets
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self, cast

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from longhaul_core.policy import ReplyPart
from longhaul_core.types import FinishReason
from longhaul_trainer.gateway.dialects.credit import credit_of
from longhaul_trainer.gateway.exchange import (
    ApiError,
    ChatReply,
    ChatRequest,
    Delta,
    Dialect,
    Stream,
)

__all__ = ["Answer", "Incoming", "error_response", "json_object", "respond"]

_READ_AT_ONCE = 256 * 1024
"""Bytes of a body; a longer one is unpacked, parsed and read in a thread, since 10 MB of small
objects take a second, in which no other stream would go on."""
_LEVELS_IN_PARTS = 4
"""Of a large body: itself, its messages, one of these, and the parts of its content."""

Answer = Callable[[ChatRequest, Callable[[Delta], None] | None], Awaitable[ChatReply]]
"""Answers a request; the function that it gets, where the client reads a stream, is to be called on
the event loop with each piece of the reply as it is written, and never blocks."""

_MAX_DEPTH = 100
_STALLED_SECONDS = 300.0
"""How long a client may read nothing of a stream before it counts as gone."""
_CLIENT_GONE = 499
_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_REPEATABLE = frozenset({"overloaded", "rate_limited", "upstream"})


class Incoming:
    """A request: what was sent of it, each part read once.

    Starlette's `Request` looks a header up in a list, decoding as it goes; a call asks for a dozen.
    """

    __slots__ = ("_receive", "headers", "is_gone", "is_long", "path", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        """A request whose body has not been read."""
        self.scope = scope
        self.path: str = scope["path"]
        sent: list[tuple[bytes, bytes]] = scope["headers"]
        self.headers: Mapping[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(sent)
        }
        """By names in lower case; of one that was sent twice, the first."""
        self.is_gone = False
        """Whether the client was seen to go away."""
        self.is_long = "content-encoding" in self.headers
        """Whether its body takes long to read, as far as it was received; a packed one may."""
        self._receive = receive

    async def read(self, *, max_bytes: int) -> bytes:
        """The body as it was sent.

        Raises:
            ApiError: `too_large`.
            ClientDisconnect: The client went away before it had sent all.
        """
        pieces: list[bytes] = []
        length = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.is_gone = True
                raise ClientDisconnect
            piece: bytes = message.get("body", b"")
            pieces.append(piece)
            length += len(piece)
            if length > max_bytes:
                raise _too_large(max_bytes)
            self.is_long |= length > _READ_AT_ONCE
            if not message.get("more_body", False):
                return b"".join(pieces)

    async def until_gone(self) -> None:
        """Return when the client has gone away; its body has been read."""
        await _disconnected(self._receive)
        self.is_gone = True


async def json_object(body: bytes, *, encoding: str, max_bytes: int) -> dict[str, object]:
    """The JSON object that a body holds, gzip undone, in a thread where that takes long.

    Args:
        body: As it was sent.
        encoding: Its `Content-Encoding`.
        max_bytes: Longest body as unpacked.

    Raises:
        ApiError: `too_large`; or `invalid_request` where it is no JSON object, or one nested too
            deep.
    """
    encoding = encoding.strip().lower()
    if encoding == "gzip":
        body = await _unzipped(body, max_bytes)
    elif encoding != "identity":
        raise ApiError(
            "invalid_request",
            f"content-encoding is {encoding!r}; understood are 'identity' and 'gzip'",
            parameter="content-encoding",
        )
    if len(body) > _READ_AT_ONCE:
        return await asyncio.to_thread(_parsed, body)
    return _parsed(body)


def _decoded(text: bytes | msgspec.Raw, *, levels: int) -> object:
    """The value of a JSON text, large objects and lists in parts.

    msgspec lets no other thread run until it is done: half a second for a million messages.
    """
    if levels == 0 or memoryview(text).nbytes <= _READ_AT_ONCE:
        return msgspec.json.decode(text)
    try:
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        return {name: _decoded(one, levels=levels - 1) for name, one in members.items()}
    except msgspec.ValidationError:  # no object
        pass
    try:
        items = msgspec.json.decode(text, type=list[msgspec.Raw])
        return [_decoded(one, levels=levels - 1) for one in items]
    except msgspec.ValidationError:  # neither
        pass
    return msgspec.json.decode(text)


def _parsed(body: bytes) -> dict[str, object]:
    """The JSON object that a body is."""
    try:
        value = _decoded(body, levels=_LEVELS_IN_PARTS)
    except (ValueError, RecursionError) as error:  # msgspec's errors are of ValueError
        raise ApiError("invalid_request", f"the body is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ApiError("invalid_request", "the body is JSON, but no object")
    found = cast("dict[str, object]", value)
    if _is_deeper(found, _MAX_DEPTH):
        raise ApiError("invalid_request", f"the body is nested deeper than {_MAX_DEPTH} levels")
    return found


async def respond(  # noqa: PLR0913  what an answer takes
    request: Incoming,
    dialect: Dialect,
    body: Mapping[str, object],
    *,
    path: Mapping[str, str],
    answer: Answer,
    reply_id: str | None = None,
    keep_alive_seconds: float = 10.0,
    on_unread: Callable[[], None] = lambda: None,
) -> Response:
    """Answer a request in its dialect, whole or as a stream.

    `answer` is cancelled, and waited for, where the client goes away before it is done. What it
    raises as `ApiError` is the answer: with its status where nothing was sent yet, as an event in
    the midst of a stream. Anything else that it raises is raised on, after such an answer if a
    stream has begun.

    Args:
        request: Its body has been read. Headers of credit and `Idempotency-Key` are read here.
        dialect: Reads the body and writes the answer.
        body: Of `json_object`.
        path: Parts of the address, see `Dialect.read`.
        answer: What gives the reply.
        reply_id: Id of a stream's events, which begin before there is a reply: equal to the `id`
            of the reply that `answer` will return. None for an unguessable one.
        keep_alive_seconds: How long a stream is silent before an event that means nothing.
        on_unread: Called where a stream ends before all of it was sent; `answer` has ended then.
    """
    read = partial(dialect.read, body, path=path)
    try:
        asked = replace(
            await asyncio.to_thread(read) if request.is_long else read(),
            credit=credit_of(request.headers, body),
            idempotency_key=request.headers.get("idempotency-key"),
            headers=request.headers,
        )
    except ApiError as error:
        return error_response(dialect, error)
    if asked.stream:
        return _EventStream(
            dialect,
            asked,
            answer,
            reply_id=reply_id or secrets.token_hex(16),
            keep_alive_seconds=keep_alive_seconds,
            on_unread=on_unread,
        )
    task = asyncio.ensure_future(answer(asked, None))
    gone = asyncio.create_task(request.until_gone())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _ended(gone)
        await _ended(task)
    if task.cancelled() and gone.done() and not gone.cancelled():
        return Response(status_code=_CLIENT_GONE)
    try:
        reply = _outcome(task)
    except ApiError as error:
        return error_response(dialect, error)
    return _json_response(dialect.whole(reply, asked), request_id=reply.id)


def error_response(dialect: Dialect, error: ApiError) -> Response:
    """An error as a dialect's clients read it; it says whether a repetition could help."""
    response = _json_response(dialect.error(error), status=error.status)
    response.headers["x-should-retry"] = "true" if error.kind in _REPEATABLE else "false"
    if error.kind == "authentication":
        response.headers["www-authenticate"] = "Bearer"
    return response


class _Pending:
    """Pieces that are written and not yet sent.

    While a client is slow, neighbouring pieces of a choice become one: what waits is never longer
    than the reply, whatever the number of its pieces.
    """

    def __init__(self) -> None:
        self._runs: list[list[Delta]] = []
        self._last: dict[int, list[Delta]] = {}
        self.changed = asyncio.Event()
        self.num_added = 0

    def add(self, delta: Delta) -> None:
        """One more piece, in order; never waits."""
        run = self._last.get(delta.choice)
        if run is None or _kind(run[0].part) != _kind(delta.part):
            run = self._last[delta.choice] = []
            self._runs.append(run)
        run.append(delta)
        self.num_added += 1
        self.changed.set()

    def taken(self) -> list[Delta]:
        """All of them, neighbours joined; nothing waits any more."""
        runs, self._runs, self._last = self._runs, [], {}
        self.changed.clear()
        return [run[0] if len(run) == 1 else _joined(run) for run in runs]


class _EventStream(Response):
    """A stream of server-sent events; an error before the first one is an answer of its own."""

    def __init__(
        self,
        dialect: Dialect,
        request: ChatRequest,
        answer: Answer,
        *,
        reply_id: str,
        keep_alive_seconds: float,
        on_unread: Callable[[], None],
    ) -> None:
        self.status_code = 200
        self.raw_headers = [*_STREAM_HEADERS, *_names(reply_id)]
        self._dialect = dialect
        self._request = request
        self._answer = answer
        self._reply_id = reply_id
        self._keep_alive_seconds = keep_alive_seconds
        self._on_unread = on_unread

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; nothing of it is left when this returns."""
        pending = _Pending()
        task = asyncio.ensure_future(self._answer(self._request, pending.add))
        task.add_done_callback(lambda _: pending.changed.set())
        gone = asyncio.create_task(_disconnected(receive))
        is_sent = False
        try:
            async with _StreamTimer(pending, keep_alive_seconds=self._keep_alive_seconds) as timer:
                gone.add_done_callback(timer.lose)
                is_sent = await self._write(task, pending, timer, scope, receive, send)
                is_sent &= not gone.done()  # a server drops what is sent to nobody
        finally:
            await _ended(gone)
            await _ended(task)
            if not is_sent:
                self._on_unread()

    async def _write(
        self,
        task: "asyncio.Future[ChatReply]",
        pending: _Pending,
        timer: "_StreamTimer",
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> bool:
        """Send what is written as it is written; whether all of it was sent.

        Raises:
            Exception: What the answer raised, other than an `ApiError`.
        """
        await pending.changed.wait()
        if task.done() and not pending.num_added and (error := _error_of(task)) is not None:
            if isinstance(error, ApiError):
                await error_response(self._dialect, error)(scope, receive, send)
                return True
            raise error
        stream = self._dialect.stream(self._request)
        try:
            await timer.send(send, _start(self))
            written = stream.begin(id=self._reply_id, created=int(time.time()))
            while not task.done():
                deltas = pending.taken()
                written += b"".join([stream.delta(delta) for delta in deltas])
                if not deltas:
                    written += stream.keep_alive()
                if written:
                    await timer.send(send, _body(written, more=True))
                written = b""
                await pending.changed.wait()
            await timer.send(send, _body(written + self._last(task, pending, stream)))
        except OSError:  # the client is gone
            return False
        error = _error_of(task)
        if error is not None and not isinstance(error, ApiError):
            raise error
        return True

    def _last(self, task: "asyncio.Future[ChatReply]", pending: _Pending, stream: Stream) -> bytes:
        """The events that end the stream."""
        written = b"".join([stream.delta(delta) for delta in pending.taken()])
        error = _error_of(task)
        if isinstance(error, ApiError):
            return written + stream.error(error)
        if error is not None:
            return written + stream.error(
                ApiError("internal", "the gateway failed; its log says why")
            )
        reply = replace(task.result(), id=self._reply_id)
        if not pending.num_added:
            written += b"".join(stream.delta(delta) for delta in _deltas_of(reply))
        return written + stream.end(reply)


class _StreamTimer:
    """How long a stream waits for its two sides, with one timer for all of it.

    Where the engine is silent for `keep_alive_seconds`, the writer is woken with nothing to write.
    Where the client is gone, or reads nothing for long, the block ends.
    """

    def __init__(self, pending: _Pending, *, keep_alive_seconds: float) -> None:
        self._pending = pending
        self._keep_alive_seconds = keep_alive_seconds
        self._loop = asyncio.get_running_loop()
        self._block = asyncio.timeout(None)
        self._is_over = False
        self._sends = False
        self._since = self._loop.time()
        self._timer = self._loop.call_later(self._longest_sleep, self._look)

    @property
    def _longest_sleep(self) -> float:
        return min(self._keep_alive_seconds, _STALLED_SECONDS)

    async def __aenter__(self) -> Self:
        await self._block.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._is_over = True
        self._timer.cancel()
        try:
            await self._block.__aexit__(kind, error, trace)
        except TimeoutError:
            return True
        return False

    def lose(self, _: object = None) -> None:
        """End the block: nobody reads the stream."""
        if not self._is_over:
            self._is_over = True
            self._block.reschedule(self._loop.time())

    async def send(self, send: Send, message: dict[str, object]) -> None:
        """Send, and take note of the time."""
        self._since, self._sends = self._loop.time(), True
        await send(message)
        self._since, self._sends = self._loop.time(), False

    def _look(self) -> None:
        limit = _STALLED_SECONDS if self._sends else self._keep_alive_seconds
        seconds = self._since + limit - self._loop.time()
        if seconds <= 0:
            if self._sends:
                self.lose()
                return
            self._pending.changed.set()
            seconds = limit
        self._timer = self._loop.call_later(min(seconds, self._longest_sleep), self._look)


def _outcome(task: "asyncio.Future[ChatReply]") -> ChatReply:
    error = _error_of(task)
    if error is not None:
        raise error
    return task.result()


def _error_of(task: "asyncio.Future[ChatReply]") -> BaseException | None:
    """What went wrong with an answer that is done."""
    if task.cancelled():
        return ApiError("gone", "the call was cancelled: the episode has ended")
    error = task.exception()
    if error is not None:
        return error
    if any(choice.finish_reason is FinishReason.ABORTED for choice in task.result().choices):
        return ApiError("overloaded", "the engine stopped in the midst of the reply; ask again")
    return None


async def _ended(task: "asyncio.Future[Any]") -> None:
    """Cancel, and wait until it has ended; what it raised is left to whoever asks for it."""
    task.cancel()
    await asyncio.wait({task})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _start(response: Response) -> dict[str, object]:
    return {
        "type": "http.response.start",
        "status": response.status_code,
        "headers": response.raw_headers,
    }


def _body(data: bytes, *, more: bool = False) -> dict[str, object]:
    return {"type": "http.response.body", "body": data, "more_body": more}


def _kind(part: ReplyPart) -> tuple[bool, bool, int | None]:
    """What pieces have in common that can be one."""
    return bool(part.reasoning), bool(part.text), part.tool_place


def _joined(run: list[Delta]) -> Delta:
    first = run[0].part
    part = ReplyPart(
        text="".join(delta.part.text for delta in run),
        reasoning="".join(delta.part.reasoning for delta in run),
        tool_place=first.tool_place,
        tool_id=first.tool_id,
        tool_name=first.tool_name,
        tool_arguments="".join(delta.part.tool_arguments for delta in run),
    )
    return Delta(choice=run[0].choice, part=part)


def _deltas_of(reply: ChatReply) -> Iterator[Delta]:
    """A reply that nobody handed on while it was written, such as a repeated one."""
    for place, choice in enumerate(reply.choices):
        if choice.reasoning:
            yield Delta(choice=place, part=ReplyPart(reasoning=choice.reasoning))
        if choice.text:
            yield Delta(choice=place, part=ReplyPart(text=choice.text))
        for tool_place, call in enumerate(choice.tool_calls):
            part = ReplyPart(
                tool_place=tool_place,
                tool_id=call.id,
                tool_name=call.name,
                tool_arguments=call.arguments,
            )
            yield Delta(choice=place, part=part)


def _json_response(
    body: Mapping[str, object], *, status: int = 200, request_id: str | None = None
) -> Response:
    response = Response(
        msgspec.json.encode(body), status_code=status, media_type="application/json"
    )
    response.raw_headers += _names(request_id or secrets.token_hex(16))
    return response


def _names(request_id: str) -> list[tuple[bytes, bytes]]:
    """The id of an answer, where OpenAI's and Anthropic's clients look for it."""
    name = f"req_{request_id}".encode()
    return [(b"x-request-id", name), (b"request-id", name)]


def _too_large(max_bytes: int) -> ApiError:
    return ApiError("too_large", f"the body is longer than {max_bytes:,} bytes, which is the limit")


async def _unzipped(packed: bytes, max_bytes: int) -> bytes:
    """An unpacked body, never much more of it than the limit."""
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        body = unpacker.decompress(packed, min(max_bytes, _READ_AT_ONCE) + 1)
        if unpacker.unconsumed_tail and len(body) <= max_bytes:
            body += await asyncio.to_thread(
                unpacker.decompress, unpacker.unconsumed_tail, max_bytes + 1 - len(body)
            )
    except zlib.error as error:
        raise ApiError("invalid_request", f"the body is no gzip: {error}") from error
    if len(body) > max_bytes:
        raise _too_large(max_bytes)
    if not unpacker.eof or unpacker.unused_data:
        raise ApiError("invalid_request", "the body is gzip that ends too soon, or too late")
    return body


def _is_deeper(value: object, depth: int) -> bool:
    """Whether lists and objects lie in each other deeper than that; it takes no stack itself."""
    level: list[object] = [value]
    for _ in range(depth):
        inner: list[object] = []
        for held in level:
            if isinstance(held, dict):
                inner.extend(cast("dict[str, object]", held).values())
            elif isinstance(held, list):
                inner.extend(cast("list[object]", held))
        level = [held for held in inner if isinstance(held, dict | list)]
        if not level:
            return False
    return True
