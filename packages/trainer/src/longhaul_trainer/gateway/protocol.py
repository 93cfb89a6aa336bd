"""uvicorn's protocol with a time limit on the headers of a request.

uvicorn bounds the time between two requests of a connection, and none within one: a client that
sent half a header, or nothing, would hold its connection for ever.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["with_header_limit"]

_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def with_header_limit(seconds: float) -> type[HttpToolsProtocol]:
    """A protocol that closes a connection whose request has no whole header after so long.

    The time begins with the connection, and with the first byte of each further request.
    """

    class HeadersInTime(HttpToolsProtocol):
        _limit: asyncio.TimerHandle | None = None
        _has_request = False

        def connection_made(self, transport: Any) -> None:  # noqa: ANN401  uvicorn's
            super().connection_made(transport)
            self._expect_headers()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if self._limit is None:
                self._expect_headers()

        def on_headers_complete(self) -> None:
            self._expect_nothing()
            super().on_headers_complete()
            self._has_request = True

        def connection_lost(self, exc: Exception | None) -> None:
            self._expect_nothing()
            super().connection_lost(exc)

        def _expect_headers(self) -> None:
            self._limit = self.loop.call_later(seconds, self._refuse)

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

    return HeadersInTime
