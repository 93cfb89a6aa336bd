"""The one server behind every HTTP address of this project: uvicorn, on a socket that listens.

An address that cannot be listened on is told by `serving.bound_socket`, before there is a server.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any, ClassVar, Literal, Self, TypedDict, Unpack, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HeadersInTime", "HttpServer"]

_KEEP_ALIVE_SECONDS = 75
"""Until an idle connection is closed. Clients give theirs up sooner (httpx after 5 s): where the
server is first, a request that is on its way meets a reset."""

_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class HeadersInTime(HttpToolsProtocol):
    """Closes a connection whose request has no whole header in time.

    uvicorn bounds the time between two requests of a connection, and none within one: a client that
    sent half a header, or nothing, would hold its connection for ever. The time begins with the
    connection, and with the first byte of each further request.
    """

    header_seconds: ClassVar[float] = 30.0
    _limit: asyncio.TimerHandle | None = None
    _has_request = False

    @classmethod
    def within(cls, seconds: float) -> type[Self]:
        """The same protocol with another limit."""
        return cast("type[Self]", type(cls.__name__, (cls,), {"header_seconds": seconds}))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        super().connection_made(cast("asyncio.Transport", transport))
        self._expect_headers()

    def on_message_begin(self) -> None:
        """See `httptools.HttpRequestParser`."""
        super().on_message_begin()
        if self._limit is None:
            self._expect_headers()

    def on_headers_complete(self) -> None:
        """See `httptools.HttpRequestParser`."""
        self._expect_nothing()
        super().on_headers_complete()
        self._has_request = True

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._expect_nothing()
        super().connection_lost(exc)

    def _expect_headers(self) -> None:
        self._limit = self.loop.call_later(self.header_seconds, self._refuse)

    def _expect_nothing(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _refuse(self) -> None:
        if self._has_request and not self.cycle.response_complete:
            self._expect_headers()  # the request before it is being answered
            return
        self._limit = None
        self.transport.write(_TOO_LATE)
        self.transport.close()


class _Options(TypedDict, total=False):
    """See `uvicorn.Config`."""

    lifespan: Literal["auto", "on", "off"]
    ws: Literal["auto", "none"]
    proxy_headers: bool
    date_header: bool


class HttpServer(uvicorn.Server):
    """Serves one application on one socket, from `start` to `stop` or until a signal ends `run`.

    Started in its owner's event loop, it leaves signals to the owner, or tells it of them; `run`
    has a loop of its own, ends at SIGINT and SIGTERM, and then raises the signal again, for which
    the process may have a handler.
    """

    def __init__(
        self,
        app: object,
        listener: socket.socket,
        *,
        header_seconds: float,
        stop_seconds: float,
        protocol: type[HeadersInTime] = HeadersInTime,
        on_signal: Callable[[], None] | None = None,
        **options: Unpack[_Options],
    ) -> None:
        """A server that is not started.

        Args:
            app: ASGI.
            listener: Of `bound_socket`; closed as the server stops.
            header_seconds: How long a client may take for the headers of a request.
            stop_seconds: Given to answers that are being sent when it stops; at least 1.
            protocol: Of a connection.
            on_signal: Called in the event loop at the first SIGINT or SIGTERM of a server that is
                started; a second one stops it at once, and neither is raised again. None leaves
                signals to the owner.
            options: In which servers differ, by uvicorn's names.
        """
        super().__init__(
            uvicorn.Config(
                cast("Any", app),  # uvicorn has types of its own
                http=protocol.within(header_seconds),
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=max(1, round(stop_seconds)),
                **options,
            )
        )
        self._listener = listener
        self._on_signal = on_signal
        self._owners_loop: asyncio.AbstractEventLoop | None = None
        self._serving: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Answer, within the event loop that runs; the task is done once the server has stopped."""
        self._owners_loop = asyncio.get_running_loop()
        self._serving = asyncio.create_task(self.serve([self._listener]))
        return self._serving

    async def stop(self) -> None:
        """Stop listening, and wait for what is being answered."""
        self.should_exit = True
        if self._serving is not None:
            await self._serving

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer until a signal, in an event loop of its own."""
        super().run(sockets or [self._listener])

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """See `uvicorn.Server.capture_signals`."""
        if self._owners_loop is not None and self._on_signal is None:
            yield
            return
        with super().capture_signals():
            yield
            if self._on_signal is not None:
                self._captured_signals.clear()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """See `uvicorn.Server.handle_exit`; called as a signal handler."""
        if self._on_signal is None or self._owners_loop is None:
            super().handle_exit(sig, frame)
            return
        self._captured_signals.append(sig)
        if len(self._captured_signals) > 1:
            self.should_exit = True
        else:
            self._owners_loop.call_soon_threadsafe(self._on_signal)
