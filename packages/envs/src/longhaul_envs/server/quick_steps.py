"""uvicorn's protocol, which answers a step without a task and with one packet.

A step that is made at once takes this way alone. Whatever else a request may turn out to be, a
refusal, a large body, a client that does not read, goes the ordinary way through the application,
from the beginning: a step has a number, so beginning it twice is beginning it once.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from longhaul_core.http_server import HeadersInTime

__all__ = ["Content", "StepProtocol", "Steps"]

_LARGEST_BYTES = 2**15
"""Of a body; uvicorn stops to read at twice that until somebody asks for it."""

Content = Callable[[bytes | None], None]
"""Takes the JSON of an answer with status 200; None: it is none of these."""


class Steps(Protocol):
    """What an application has as `steps`, to be served by `StepProtocol`."""

    def is_step(self, scope: Scope) -> bool:
        """Whether a request is one of them."""
        ...

    def begin(self, scope: Scope, body: bytes, content: Content) -> None:
        """Make it; `content` is called once, in this call or later."""
        ...


class StepProtocol(HeadersInTime):
    """One connection."""

    _held: RequestResponseCycle | None = None
    """A step whose body is not yet there."""

    def __init__(self, *args: Any, **keywords: Any) -> None:  # noqa: ANN401  uvicorn's
        super().__init__(*args, **keywords)
        untyped = cast("Any", self)  # of types of uvicorn's own
        self._application: Any = untyped.app
        self._steps: Steps = untyped.config.app.steps

    def on_body(self, body: bytes) -> None:
        """See `httptools.HttpRequestParser`."""
        super().on_body(body)
        if self._held is not None and len(self._held.body) > _LARGEST_BYTES:
            held, self._held = self._held, None
            super()._start_asgi_task(held, self._application)

    def on_message_complete(self) -> None:
        """See `httptools.HttpRequestParser`."""
        super().on_message_complete()
        if self._held is not None:
            held, self._held = self._held, None
            scope = cast("Scope", held.scope)
            self._steps.begin(scope, bytes(held.body), partial(self._answer, held))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401
        """Called as soon as a request's headers are there, and the response before it is sent."""
        is_expected = cycle.more_body and not cycle.waiting_for_100_continue
        is_ours = is_expected and app is self._application
        if is_ours and self._steps.is_step(cast("Scope", cycle.scope)):
            self._held = cycle
        else:
            super()._start_asgi_task(cycle, app)

    def _answer(self, cycle: RequestResponseCycle, content: bytes | None) -> None:
        if cycle.disconnected:
            return
        if content is None or self.flow.write_paused or not cycle.keep_alive:
            super()._start_asgi_task(cycle, self._application)
            return
        cycle.response_started = cycle.response_complete = True
        headers = [b"%s: %s\r\n" % header for header in cycle.default_headers]
        self.transport.write(
            b"HTTP/1.1 200 OK\r\n%scontent-length: %d\r\ncontent-type: application/json\r\n\r\n%s"
            % (b"".join(headers), len(content), content)
        )
        self.on_response_complete()
