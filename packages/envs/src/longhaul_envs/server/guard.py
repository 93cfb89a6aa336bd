"""What stands before the routes: who is let in, and as whom.

Three checks turn away three attackers: the Host header (a web page whose name was rebound to
127.0.0.1), the Origin header (a web page that calls this server by its true name), and the token
(anyone else on the network), which is read from a header alone: addresses end up in logs. Only
`/health` is answered without a token.
"""

import hmac
from functools import lru_cache

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from longhaul_core.addresses import host_in, is_address
from longhaul_envs.server.protocol import CLIENT_HEADER, Problem
from longhaul_envs.server.settings import ServerSettings
from longhaul_envs.server.table import Owner

__all__ = ["OPEN_PATH", "Guard", "owner_of", "problem_response"]

OPEN_PATH = "/health"
_OWNER = "longhaul.owner"
_CLIENT_HEADER = CLIENT_HEADER.encode()
_MAX_NAME_CHARACTERS = 100
_MAX_HOSTS = 64
"""Host headers whose check is remembered."""


def owner_of(scope: Scope) -> Owner:
    """Whom the guard let in."""
    return scope[_OWNER]


def problem_response(
    status: int, problem: Problem, headers: dict[str, str] | None = None
) -> Response:
    """A refusal as it is sent."""
    return Response(
        msgspec.json.encode(problem), status, headers=headers, media_type="application/json"
    )


class Guard:
    """ASGI middleware that answers 400, 403 or 401 instead of passing a request on."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._allowed_hosts = settings.allowed_hosts
        self._is_ours = lru_cache(_MAX_HOSTS)(self._is_host_of_ours)
        self._tokens = {name: token.encode() for name, token in settings.tokens.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with its owner, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await refusal(scope, receive, send)

    def lets_in(self, scope: Scope) -> bool:
        """Whether a request is let in; its owner is known then."""
        return self._refusal(scope) is None

    def _refusal(self, scope: Scope) -> Response | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        given_host = headers.get(b"host", b"")
        if not self._is_ours(given_host):
            name = host_in(given_host.decode("latin-1"))
            return _refuse(
                400, f"host {name!r} is not a name of this server; see the option --allowed-host"
            )
        origin = headers.get(b"origin")
        if origin is not None:
            return _refuse(403, "web pages may not call this server")
        name = headers.get(_CLIENT_HEADER, b"").decode("latin-1")[:_MAX_NAME_CHARACTERS]
        if not self._tokens:
            scope[_OWNER] = Owner("", name)
            return None
        if scope["path"] == OPEN_PATH:
            return None
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        fitting = ""
        is_known = False
        for token_name, token in self._tokens.items():  # all of them, so that time says nothing
            if hmac.compare_digest(given, token):
                fitting, is_known = token_name, True
        if not is_known or scheme.lower() != b"bearer":  # schemes have no case (RFC 9110, 11.1)
            refusal = _refuse(401, "give the token as the header 'Authorization: Bearer …'")
            refusal.headers["WWW-Authenticate"] = "Bearer"
            return refusal
        scope[_OWNER] = Owner(fitting, name)
        return None

    def _is_host_of_ours(self, header: bytes) -> bool:
        host = host_in(header.decode("latin-1"))
        return host in self._allowed_hosts or is_address(host)


def _refuse(status: int, detail: str) -> Response:
    return problem_response(status, Problem(detail=detail, cause="refused"))
