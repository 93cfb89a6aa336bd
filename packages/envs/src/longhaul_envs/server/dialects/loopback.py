"""What stands before a dialect's routes: programs of this machine are let in, web pages are not."""

from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["LoopbackOnly"]


class LoopbackOnly:
    """ASGI middleware that refuses other host names (400) and web pages (403).

    A page of any site can send requests to this machine and open WebSockets to it, and a dialect
    asks for no token. Browsers name the page in the header `Origin`; the dialects' clients send
    none.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._checked = TrustedHostMiddleware(app, allowed_hosts=["127.0.0.1", "localhost"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] in ("http", "websocket") and b"origin" in dict(scope["headers"]):
            refusal = PlainTextResponse("web pages may not play here", 403)
            await refusal(scope, receive, send)
            return
        await self._checked(scope, receive, send)
