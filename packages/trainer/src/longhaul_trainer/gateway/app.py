"""The gateway's routes: below the address of an episode, who has its key may call models.

    /e/{episode}/v1/chat/completions          OpenAI, Anthropic and Google, each with its own paths
    /e/{episode}/longhaul/step                what a program says of its step
    /proxy/rollout/{episode}/attempt/…        agent-lightning's addresses
    /rollout/{episode}/attempt/…

Nothing else of the run can be reached: no route leads to an engine.
"""

import hmac
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send
from xxhash import xxh3_128

from longhaul_core.serving import Guard, NotAdmitted
from longhaul_trainer.gateway.authentication import EpisodeKeys
from longhaul_trainer.gateway.dialects.anthropic_messages import AnthropicMessages
from longhaul_trainer.gateway.dialects.credit import credit_report
from longhaul_trainer.gateway.dialects.fields import Fields
from longhaul_trainer.gateway.dialects.google_generate import GoogleGenerate
from longhaul_trainer.gateway.dialects.models import find_model, list_models
from longhaul_trainer.gateway.dialects.openai_chat import OpenAIChat
from longhaul_trainer.gateway.dialects.openai_completions import OpenAICompletions
from longhaul_trainer.gateway.dialects.openai_responses import OpenAIResponses, ResponseHistory
from longhaul_trainer.gateway.episode import AUTO, OpenEpisode
from longhaul_trainer.gateway.exchange import ApiError, ChatReply, ChatRequest, Delta, Dialect
from longhaul_trainer.gateway.http import Incoming, error_response, json_object, respond
from longhaul_trainer.gateway.idempotency import Sent
from longhaul_trainer.gateway.operations import EPISODE, OPERATIONS, document
from longhaul_trainer.gateway.settings import GatewaySettings
from longhaul_trainer.gateway.task_data import task_data

__all__ = ["OVERRIDDEN_HEADER", "Lobby", "create_app", "holds_key"]

OVERRIDDEN_HEADER = "Longhaul-Overridden"
"""Of a reply: what the client named of its sampling and the run decides, with what is in force."""
_OURS = "openai_chat"
"""Whose errors our own routes have."""

_ANTHROPIC, _GOOGLE = AnthropicMessages(), GoogleGenerate()
_DIALECTS: Mapping[str, Dialect] = {
    "openai_chat": OpenAIChat(),
    "openai_completions": OpenAICompletions(),
    "openai_responses": OpenAIResponses(),
    "anthropic": _ANTHROPIC,
    "google": _GOOGLE,
}
"""By their names in `operations`. An episode has its own where a dialect remembers its answers."""
_COUNTING: Mapping[str, AnthropicMessages | GoogleGenerate] = {
    "anthropic": _ANTHROPIC,
    "google": _GOOGLE,
}

_WITH_TOKENS = frozenset({"openai_chat", "openai_completions"})
"""Dialects whose answers may have token ids, which agent-lightning asks for on its own."""

Handler = Callable[[Incoming], Awaitable[Response]]


class Lobby:
    """The episodes of a gateway, and who may enter which."""

    def __init__(self) -> None:
        """There is none."""
        self.keys = EpisodeKeys()
        self._episodes: dict[str, _Guest] = {}

    def __len__(self) -> int:
        """How many are open."""
        return len(self._episodes)

    @property
    def episodes(self) -> list[OpenEpisode]:
        """Those that are open."""
        return [guest.episode for guest in self._episodes.values()]

    def add(self, episode: OpenEpisode) -> None:
        """Let programs in, until the episode is closed."""
        self.keys.add(episode.access)
        self._episodes[episode.access.id] = _Guest(episode)
        episode.on_close(partial(self._remove, episode))

    def _remove(self, episode: OpenEpisode, cause: str) -> None:
        self.keys.close(episode.access, cause=cause)
        self._episodes.pop(episode.access.id, None)

    def enter(self, request: Incoming) -> "_Guest":
        """The episode of a request's address.

        Raises:
            ApiError: See `EpisodeKeys.require`.
        """
        episode_id = _part(request, "episode")
        self.keys.require(episode_id, keys=_keys(request.headers))
        return self._episodes[episode_id]


class _Guest:
    """An episode, with the dialects that keep something of it."""

    def __init__(self, episode: OpenEpisode) -> None:
        self.episode = episode
        responses = OpenAIResponses(ResponseHistory())
        self.dialects = {**_DIALECTS, "openai_responses": responses}
        self.opened_at = int(time.time())


def create_app(
    lobby: Lobby, settings: GatewaySettings, *, routes: Sequence[BaseRoute] = ()
) -> ASGIApp:
    """Assemble the application; nothing is started.

    Args:
        lobby: The episodes.
        settings: Whom to answer, and how much to read.
        routes: Of whoever serves the gateway, beside those below an episode's address; each guards
            itself.
    """
    answers = _Routes(lobby, settings)
    found: list[BaseRoute] = [
        *routes,
        Route("/health", answers.health, methods=["GET"]),
        Route("/openapi.json", answers.document, methods=["GET"]),
    ]
    direct: dict[tuple[str, str], ASGIApp] = {}
    for operation in OPERATIONS:
        handler: Callable[..., Awaitable[Response]] = getattr(answers, operation.name)
        dialect = operation.dialect or _OURS
        endpoint = _Endpoint(partial(handler, dialect), _DIALECTS[dialect])
        for path in operation.paths:
            found.append(Route(path, endpoint, methods=[operation.method], name=operation.name))
            below = path.removeprefix(f"{EPISODE}/")
            if below != path and "{" not in below:
                direct[operation.method, below] = endpoint
    rest = Starlette(routes=found, exception_handlers={HTTPException: _answer_http})
    return _Guard(_Direct(direct, rest), settings)


class _Direct:
    """ASGI middleware that finds an operation below an episode's address by a look-up.

    Starlette tries one pattern after the other, behind three layers; a call comes several times a
    second from each program.
    """

    def __init__(self, endpoints: Mapping[tuple[str, str], ASGIApp], rest: ASGIApp) -> None:
        """Endpoints by method and by path below the episode's; `rest` answers all others."""
        self._endpoints = endpoints
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http" and scope["path"].startswith("/e/"):
            episode, _, below = scope["path"][3:].partition("/")
            endpoint = self._endpoints.get((scope["method"], below))
            if endpoint is not None and episode:
                scope["path_params"] = {"episode": episode}
                await endpoint(scope, receive, send)
                return
        await self._rest(scope, receive, send)


class _Endpoint:
    """An operation as an ASGI application, with its refusals as answers of its dialect."""

    def __init__(self, handler: Handler, dialect: Dialect) -> None:
        self._handler = handler
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        try:
            response = await self._handler(Incoming(scope, receive))
        except ApiError as error:
            response = error_response(self._dialect, error)
        except ClientDisconnect:
            response = Response(status_code=400)  # nobody is there to read it
        await response(scope, receive, send)


class _Guard:
    """ASGI middleware that refuses a Host header which is no name of this server.

    A web page whose name was rebound to 127.0.0.1 would else be let ask for keys it knows.
    """

    def __init__(self, app: ASGIApp, settings: GatewaySettings) -> None:
        """Guard an application."""
        self._app = app
        names = (name.lower() for name in settings.allowed_hosts)
        self._guard = Guard({"localhost", *names}, pages="any")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        answer = self._app
        if scope["type"] == "http":
            try:
                self._guard.admit(scope)
            except NotAdmitted as refused:
                refusal = ApiError("invalid_request", str(refused))
                answer = error_response(_DIALECTS[_OURS], refusal)
        await answer(scope, receive, send)


def _keys(headers: Mapping[str, str]) -> list[bytes]:
    """The keys that a request carries, in each vendor's header."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    given = [bearer.strip() if scheme.lower() == "bearer" else ""]
    given += [headers.get(name, "") for name in ("x-api-key", "x-goog-api-key", "api-key")]
    return [key.encode("latin-1") for key in given if key]


def holds_key(headers: Mapping[str, str], key: str) -> bool:
    """Whether a request carries a key, in any vendor's header; compared in constant time."""
    fitting = [hmac.compare_digest(given, key.encode()) for given in _keys(headers)]
    return any(fitting)


def _part(request: Incoming, name: str) -> str:
    """A part of a request's address that its route names."""
    return request.scope["path_params"][name]


async def _answer_http(request: Request, error: Exception) -> Response:
    """What no route answers: an unknown path, or a method that it does not have."""
    assert isinstance(error, HTTPException)
    known = ", ".join(sorted({operation.path for operation in OPERATIONS}))
    refusal = ApiError(
        "not_found",
        f"{request.method} {request.url.path}: {error.detail}. Below an episode's address there "
        f"are {known}",
    )
    response = error_response(_DIALECTS[_OURS], refusal)
    response.status_code = error.status_code
    return response


class _Routes:
    """One method for each name in `OPERATIONS`."""

    def __init__(self, lobby: Lobby, settings: GatewaySettings) -> None:
        self._lobby = lobby
        self._settings = settings

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ready", "episodes": len(self._lobby)})

    async def document(self, request: Request) -> Response:
        return JSONResponse(document())

    async def call(
        self, name: str, request: Incoming, *, path: Mapping[str, str] | None = None
    ) -> Response:
        guest = self._lobby.enter(request)
        episode, dialect = guest.episode, guest.dialects[name]
        sent, body = await self._read(request)
        if name == "openai_chat" and "model" in request.scope["path_params"]:  # a deployment
            body = {"model": _part(request, "model"), **body}
        if name in _WITH_TOKENS and not request.path.startswith("/e/"):
            body = _of_lightning(body, episode)
        asked = episode.requests.request_of(
            Sent(
                fingerprint=_fingerprint(request, sent),
                idempotency_key=request.headers.get("idempotency-key"),
                num_retries=_num_retries(request.headers),
            )
        )
        overridden: dict[str, str] = {}
        begun: list[Response] = []

        async def answer(chat: ChatRequest, on_delta: Callable[[Delta], None] | None) -> ChatReply:
            overridden.update(episode.overridden(chat))
            for stream in begun:
                _say_overridden(stream, overridden)
            return await episode.answer(chat, on_delta, asked=asked)

        response = await respond(
            request,
            dialect,
            body,
            path=path or {},
            answer=answer,
            reply_id=asked.reply_id,
            on_unread=asked.unread,
        )
        if response.status_code >= 400:
            await asked.drop_unread()
        if request.is_gone:
            asked.unread()
        begun.append(response)  # a stream asks for its reply when it is sent
        _say_overridden(response, overridden)
        return response

    async def google(self, name: str, request: Incoming) -> Response:
        path = {key: _part(request, key) for key in ("model", "method")}
        query = parse_qs(request.scope["query_string"].decode("latin-1"))
        path["alt"] = query.get("alt", [""])[-1]
        match path["method"]:
            case "countTokens":
                return await self.count_tokens(name, request, path=path)
            case "generateContent" | "streamGenerateContent":
                return await self.call(name, request, path=path)
            case method:
                raise ApiError(
                    "not_found",
                    f"models have no method {method!r} here; they have generateContent, "
                    "streamGenerateContent and countTokens",
                )

    async def count_tokens(
        self, name: str, request: Incoming, *, path: Mapping[str, str] | None = None
    ) -> Response:
        episode, body = await self._told(request)
        dialect = _COUNTING[name]
        chat = dialect.read_count(body, path=path or {})
        return JSONResponse(dialect.count(await episode.count_tokens(chat)))

    async def models(self, name: str, request: Incoming) -> Response:
        guest = self._lobby.enter(request)
        return JSONResponse(list_models(guest.episode.model_names, created=guest.opened_at))

    async def model(self, name: str, request: Incoming) -> Response:
        guest = self._lobby.enter(request)
        names, asked = guest.episode.model_names, _part(request, "model")
        if guest.episode.has_model(asked):  # by a pattern
            names = (*names, asked)
        return JSONResponse(find_model(asked, names, created=guest.opened_at))

    async def step(self, name: str, request: Incoming) -> Response:
        episode, body = await self._told(request)
        episode.report(credit_report(body), idempotency_key=request.headers.get("idempotency-key"))
        return JSONResponse({"num_calls": episode.num_calls})

    async def reward(self, name: str, request: Incoming) -> Response:
        episode, body = await self._told(request)
        fields = Fields(body)
        fields.known(("reward", "value", "success"))
        value = fields.number("value", at_least=-1e30, at_most=1e30)
        printed = fields.number("reward", at_least=-1e30, at_most=1e30)
        if value is not None and printed is not None and value != printed:
            raise ApiError(
                "invalid_request",
                f"value is {value:g} and reward, another name of it, is {printed:g}; send one",
                parameter="reward",
            )
        value = printed if value is None else value
        episode.report_reward(value, success=fields.flag("success"))
        return JSONResponse({"value": episode.reported.reward, "success": episode.reported.success})

    async def event(self, name: str, request: Incoming) -> Response:
        episode, body = await self._told(request)
        fields = Fields(body)
        kind = fields.needed_text("event_type")
        data = fields.inner("data") or Fields({}, place="data")
        if kind == "reward":
            value = data.number("value", at_least=-1e30, at_most=1e30)
            if value is None:
                raise ApiError(
                    "invalid_request",
                    "data.value is missing; an event of type 'reward' has it, a number",
                    parameter="data.value",
                )
            episode.report_reward(value)
        return JSONResponse(
            {
                "event_type": kind,
                "rollout_id": episode.access.id,
                "attempt_id": _part(request, "attempt"),
                "timestamp": time.time(),
                "data": dict(data.values),
            }
        )

    async def task(self, name: str, request: Incoming) -> Response:
        return JSONResponse(task_data(self._lobby.enter(request).episode.task))

    async def _told(self, request: Incoming) -> tuple[OpenEpisode, dict[str, object]]:
        episode = self._lobby.enter(request).episode
        return episode, (await self._read(request))[1]

    async def _read(self, request: Incoming) -> tuple[bytes, dict[str, object]]:
        """The body as it was sent, and what it says."""
        most = self._settings.max_body_bytes
        sent = await request.read(max_bytes=most)
        encoding = request.headers.get("content-encoding", "identity")
        return sent, await json_object(sent, encoding=encoding, max_bytes=most)


def _of_lightning(body: Mapping[str, object], episode: OpenEpisode) -> dict[str, object]:
    """A request as agent-lightning's proxy passes it on: whatever the model, with token ids."""
    model = body.get("model")
    is_known = isinstance(model, str) and episode.has_model(model)
    return {"return_token_ids": True, **body, "model": model if is_known else AUTO}


def _say_overridden(response: Response, overridden: Mapping[str, str]) -> None:
    if overridden:
        said = ", ".join(f"{setting}={value}" for setting, value in overridden.items())
        response.headers[OVERRIDDEN_HEADER] = said


def _num_retries(headers: Mapping[str, str]) -> int | None:
    given = headers.get("x-stainless-retry-count", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else None


def _fingerprint(request: Incoming, sent: bytes) -> bytes:
    """Of a request's address, its headers of credit and its body."""
    hashed = xxh3_128(request.path.encode())  # tells a repetition from another request, no more
    for name, value in sorted(request.headers.items()):
        if name.startswith("longhaul-"):  # two agents may send the same body
            hashed.update(f"\n{name}: {value}".encode())
    hashed.update(sent)
    return hashed.digest()
