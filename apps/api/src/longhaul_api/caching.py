"""An answer that did not change is not sent again: an ETag on whatever has none of its own."""

import hashlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["ETags"]


class ETags:
    """ASGI middleware that names answers by their content, and answers 304 to who has it.

    What is sent in several pieces, an export or events, is passed on as it is. Weak, because the
    bytes that go out may be compressed. The answer is computed all the same; a route that can tell
    sooner whether it changed gives an ETag of its own (`replay.answers`).
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and hold the answer's beginning back until its body is there."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        asked = Headers(scope=scope).get("if-none-match", "")
        start: Message | None = None

        async def named(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and message["status"] == 200:
                if "etag" not in Headers(raw=message["headers"]):
                    start = message
                    return
            elif start is not None and message["type"] == "http.response.body":
                begun, start = start, None
                if not message.get("more_body", False):
                    headers = MutableHeaders(raw=begun["headers"])
                    digest = hashlib.blake2b(message.get("body", b""), digest_size=12).hexdigest()
                    headers["ETag"] = f'W/"{digest}"'
                    headers.setdefault("Cache-Control", "private, no-cache")
                    if digest in asked:
                        kept = {name: headers[name] for name in ("ETag", "Cache-Control")}
                        await Response(status_code=304, headers=kept)(scope, receive, send)
                        return
                await send(begun)
            await send(message)

        await self._app(scope, receive, named)
