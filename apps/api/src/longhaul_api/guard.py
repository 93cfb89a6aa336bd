"""What stands before the routes: who is let in, and HEAD answered as GET.

Three checks turn away three attackers: the Host header (a web page whose name was rebound to
127.0.0.1), the Origin header (a web page that calls this server by its true name; one of another
port of this machine too, where a request may change something), and the token (anyone else on the
network). The token is read from a header only: an address ends up in logs and browser histories.
Every answer says that no other site may show it in a frame, where a click could be stolen.
"""

import hmac
from urllib.parse import urlsplit

from anyio import CancelScope
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longhaul_api.settings import ApiSettings
from longhaul_core.addresses import host_in

__all__ = ["Guard", "HeadAsGet"]

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
POLICY = "Content-Security-Policy"


class Guard:
    """ASGI middleware that answers 400, 403 or 401 instead of passing a request on."""

    def __init__(self, app: ASGIApp, settings: ApiSettings) -> None:
        self._app = app
        self._allowed_hosts = settings.allowed_hosts
        self._token = settings.token.encode() if settings.token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        asks = scope["type"] in ("http", "websocket")
        refusal = self._refusal(scope) if asks else None
        answer = self._app if refusal is None else refusal

        async def unframed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).setdefault(POLICY, "frame-ancestors 'self'")
            await send(message)

        await answer(scope, receive, unframed)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        host = host_in(headers.get("host", ""))
        if host not in self._allowed_hosts:
            return _refuse(
                400, f"host {host!r} is not a name of this server; see the option --allowed-host"
            )
        origin = headers.get("origin")
        if origin is not None and (
            host_in(origin) not in self._allowed_hosts
            or (_may_change(scope) and _authority(origin) != headers["host"].lower())
        ):
            return _refuse(403, f"pages of {origin!r} may not call this server")
        if self._token is not None:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            same = hmac.compare_digest(given.encode("latin-1"), self._token)
            if not same or scheme.lower() != "bearer":  # schemes have no case (RFC 9110, 11.1)
                refusal = _refuse(401, "give the token as the header 'Authorization: Bearer …'")
                refusal.headers["WWW-Authenticate"] = "Bearer"
                return refusal
        return None


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


def _may_change(scope: Scope) -> bool:
    return scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS


def _authority(origin: str) -> str:
    """Host and port of an origin that `host_in` could read, as a Host header has them."""
    return urlsplit(origin).netloc.lower()


def _refuse(status_code: int, detail: str) -> JSONResponse:
    return JSONResponse({"detail": detail}, status_code=status_code)
