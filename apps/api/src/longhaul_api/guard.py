"""What stands before the routes: who is let in, and HEAD answered as GET.

Every answer says that no other site may show it in a frame, where a click could be stolen.
"""

from anyio import CancelScope
from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longhaul_core import serving
from longhaul_core.serving import NotAdmitted, ServerSettings

__all__ = ["Guard", "HeadAsGet"]

POLICY = "Content-Security-Policy"


class Guard:
    """ASGI middleware that answers 400, 403 or 401 instead of passing a request on."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._guard = serving.Guard(settings.allowed_hosts, pages="own", tokens=settings.tokens)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        answer = self._app
        if scope["type"] in ("http", "websocket"):
            try:
                self._guard.admit(scope)
            except NotAdmitted as refused:
                answer = JSONResponse(
                    {"detail": str(refused)}, refused.status, headers=refused.headers
                )

        async def unframed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).setdefault(POLICY, "frame-ancestors 'self'")
            await send(message)

        await answer(scope, receive, unframed)


class HeadAsGet:
    """ASGI middleware that answers HEAD with what GET would answer, less the body.

    An answer that GET sends in pieces is over once it has begun: a live run's events have no end.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on as a GET."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        with CancelScope() as answering:

            async def without_body(message: Message) -> None:
                if message["type"] != "http.response.body":
                    await send(message)
                elif not answering.cancel_called:
                    await send({"type": "http.response.body", "body": b""})
                    if message.get("more_body", False):
                        answering.cancel()

            await self._app({**scope, "method": "GET"}, receive, without_body)
