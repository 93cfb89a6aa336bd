"""A time limit on the headers of a request, for every HTTP server of this project.

uvicorn bounds the time between two requests of a connection, and none within one: a client that
sent half a header, or nothing, would hold its connection for ever.
"""

import asyncio
from typing import Any, ClassVar, Self, cast

__all__ = ["HeadersInTime"]

_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class HeadersInTime(asyncio.Protocol):
    """Closes a connection whose request has no whole header in time.

    It comes before uvicorn's `HttpToolsProtocol` among the bases of a protocol. The time begins
    with the connection, and with the first byte of each further request.
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
        super().connection_made(transport)
        self._expect_headers()

    def on_message_begin(self) -> None:
        """See `httptools.HttpRequestParser`."""
        cast("Any", super()).on_message_begin()
        if self._limit is None:
            self._expect_headers()

    def on_headers_complete(self) -> None:
        """See `httptools.HttpRequestParser`."""
        self._expect_nothing()
        cast("Any", super()).on_headers_complete()
        self._has_request = True

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._expect_nothing()
        super().connection_lost(exc)

    def _expect_headers(self) -> None:
        loop: asyncio.AbstractEventLoop = cast("Any", self).loop
        self._limit = loop.call_later(self.header_seconds, self._refuse)

    def _expect_nothing(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _refuse(self) -> None:
        of_uvicorn = cast("Any", self)
        if self._has_request and not of_uvicorn.cycle.response_complete:
            self._expect_headers()  # the request before it is being answered
            return
        self._limit = None
        of_uvicorn.transport.write(_TOO_LATE)
        of_uvicorn.transport.close()
