"""What stands before the routes: who is let in, and as whom. Only `/health` needs no token."""

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from longhaul_core import serving
from longhaul_core.serving import NotAdmitted
from longhaul_envs.server.protocol import CLIENT_HEADER, Problem
from longhaul_envs.server.settings import ServerSettings
from longhaul_envs.server.table import Owner

__all__ = ["OPEN_PATH", "Guard", "owner_of", "problem_response"]

OPEN_PATH = "/health"
_OWNER = "longhaul.owner"
_CLIENT_HEADER = CLIENT_HEADER.encode()
_MAX_NAME_CHARACTERS = 100


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
        self._guard = serving.Guard(
            settings.allowed_hosts, pages="none", tokens=settings.tokens, open_path=OPEN_PATH
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with its owner, or refuse it."""
        answer = self._app
        if scope["type"] == "http":
            try:
                self.admit(scope)
            except NotAdmitted as refused:
                problem = Problem(detail=str(refused), cause="refused")
                answer = problem_response(refused.status, problem, refused.headers)
        await answer(scope, receive, send)

    def admit(self, scope: Scope) -> None:
        """Let a request in; its owner is known then.

        Raises:
            NotAdmitted: See `longhaul_core.serving.Guard.admit`.
        """
        token = self._guard.admit(scope)
        name = next((value for key, value in scope["headers"] if key == _CLIENT_HEADER), b"")
        scope[_OWNER] = Owner(token, name.decode("latin-1")[:_MAX_NAME_CHARACTERS])
