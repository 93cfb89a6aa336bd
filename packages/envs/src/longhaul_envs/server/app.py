"""The server's HTTP side: one schema for all environments, over a session table.

Bodies are read and written by msgspec, from the types of `protocol`, which are also the schemas of
the OpenAPI document; what a worker wrote is passed on as it is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from longhaul_core.environment import StepResult
from longhaul_core.errors import ConfigError
from longhaul_core.serving import NotAdmitted
from longhaul_core.types import Observation, Split
from longhaul_envs.server.errors import NotServed, Refused
from longhaul_envs.server.guard import Guard, owner_of, problem_response
from longhaul_envs.server.hosting import Done
from longhaul_envs.server.metrics import CONTENT_TYPE_LATEST, Metrics
from longhaul_envs.server.openapi import VERSION, Operation, Operations, document, leads_to
from longhaul_envs.server.protocol import (
    MAX_BODY_BYTES,
    PROTOCOL,
    Actions,
    BatchAnswer,
    BatchRequest,
    BatchStep,
    CreateRequest,
    Environments,
    Health,
    HeartbeatAnswer,
    HeartbeatRequest,
    Problem,
    ResetRequest,
    ServedEnvironment,
    SessionAnswer,
    StepRequest,
    TaskPage,
)
from longhaul_envs.server.quick_steps import Content
from longhaul_envs.server.settings import ServerSettings
from longhaul_envs.server.table import Answer, Owner, SessionTable

__all__ = ["PATHS", "create_app"]

PATHS = Operations()
"""Every operation, each above the method of `_Routes` that answers it."""

_BATCH_SECONDS = 1.0
"""How long a batch waits for its slowest step; what is not done then is asked for again, alone."""
_LARGEST_PAGE = 1000
_SESSION_PREFIX, _STEP_SUFFIX = f"{VERSION}/sessions/", "/step"
_BATCH_PATH = f"{VERSION}/steps"
_SESSION = _SESSION_PREFIX + "{session_id}"
_ASKED = "$request.path.session_id"
_AFTERWARDS = leads_to(
    _ASKED,
    observation="observation",
    actions="actions",
    render="render",
    close_session="close_session",
)

Body = TypeVar("Body")
Handler = Callable[[Request], Awaitable[Response]]


def create_app(table: SessionTable, settings: ServerSettings, metrics: Metrics) -> FastAPI:
    """Assemble the application over a table; nothing is started.

    Args:
        table: The sessions.
        settings: Whom to answer.
        metrics: What `/metrics` shows.
    """
    app = _Application(openapi_url=None)
    routes = _Routes(table, metrics)
    app.front = Guard(app.behind, settings)
    app.steps = _Steps(app.front, routes)
    app.add_exception_handler(HTTPException, _answer_http)
    for operation in PATHS:
        # Starlette's routes: FastAPI's own would read each body by pydantic as well.
        app.router.add_route(
            operation.path,
            _answering(getattr(routes, operation.name)),
            methods=[operation.method],
            name=operation.name,
        )
    return app


class _Application(FastAPI):
    """FastAPI behind the guard, with a shorter way for steps."""

    front: Guard
    """What stands before FastAPI's own layers."""
    steps: "_Steps"
    """For `StepProtocol`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self.front(scope, receive, send)

    async def behind(self, scope: Scope, receive: Receive, send: Send) -> None:
        """FastAPI alone."""
        await super().__call__(scope, receive, send)


class _Steps:
    """See `Steps`."""

    def __init__(self, guard: Guard, routes: "_Routes") -> None:
        self._guard = guard
        self._routes = routes
        self._answering: set[asyncio.Task[bytes]] = set()

    def is_step(self, scope: Scope) -> bool:
        path: str = scope["path"]
        return scope["method"] == "POST" and (path == _BATCH_PATH or bool(_session_of(path)))

    def begin(self, scope: Scope, body: bytes, content: Content) -> None:
        session_id = _session_of(scope["path"])
        future: asyncio.Future[Done] | asyncio.Task[bytes]
        try:
            self._guard.admit(scope)
            _check_headers(scope)
            if session_id:
                asked = _decoded(_STEP, body)
                future = self._routes.begin_step(session_id, asked, owner_of(scope)).future
            else:
                steps = self._routes.step_all(_decoded(_BATCH, body), owner_of(scope))
                future = asyncio.create_task(steps)
                self._answering.add(future)
                future.add_done_callback(self._answering.discard)
        except (NotAdmitted, Refused):
            content(None)
        else:
            future.add_done_callback(partial(_hand_on, content))


def _session_of(path: str) -> str:
    """The session of a step alone; empty if it is another path."""
    if not (path.endswith(_STEP_SUFFIX) and path.startswith(_SESSION_PREFIX)):
        return ""
    session_id = path[len(_SESSION_PREFIX) : -len(_STEP_SUFFIX)]
    return "" if "/" in session_id else session_id


def _hand_on(content: Content, future: "asyncio.Future[Done] | asyncio.Task[bytes]") -> None:
    if future.cancelled() or future.exception() is not None:
        content(None)
    else:
        result = future.result()
        content(result if isinstance(result, bytes) else result.content)


class _BadRequest(Refused):
    """The request itself is wrong."""

    def __init__(self, message: str, *, status: int, cause: str) -> None:
        super().__init__(message)
        self.status, self.cause = status, cause


def _answering(handler: Handler) -> Handler:
    """The handler, with its refusals as answers."""

    async def answered(request: Request) -> Response:
        try:
            return await handler(request)
        except Refused as refused:
            return _refusal(refused)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it

    return answered


def _refusal(refused: Refused) -> Response:
    wait = refused.retry_after_seconds
    headers = None if wait is None else {"Retry-After": str(wait)}
    return problem_response(refused.status, _problem(refused), headers)


def _problem(refused: Refused) -> Problem:
    return Problem(detail=str(refused), cause=refused.cause)


async def _answer_http(request: Request, error: Exception) -> Response:
    """What no route answers: an unknown path, or a method that it does not have."""
    assert isinstance(error, HTTPException)
    detail = f"{request.method} {request.url.path}: {error.detail}; protocol {PROTOCOL} is spoken "
    detail += f"here, under /v{PROTOCOL}"
    headers = dict(error.headers) if error.headers else None
    return problem_response(error.status_code, Problem(detail=detail, cause="refused"), headers)


_CREATE = msgspec.json.Decoder(CreateRequest)
_RESET = msgspec.json.Decoder(ResetRequest)
_STEP = msgspec.json.Decoder(StepRequest)
_BATCH = msgspec.json.Decoder(BatchRequest)
_HEARTBEAT = msgspec.json.Decoder(HeartbeatRequest)


async def _read(decoder: "msgspec.json.Decoder[Body]", request: Request) -> Body:
    """A request's body."""
    _check_headers(request.scope)
    received = b""
    async for part in request.stream():
        received += part
        if len(received) > MAX_BODY_BYTES:
            raise _BadRequest(
                f"a body may have {MAX_BODY_BYTES} bytes at most", status=413, cause="too_large"
            )
    return _decoded(decoder, received)


def _check_headers(scope: Scope) -> None:
    headers: dict[bytes, bytes] = dict(scope["headers"])
    written = headers.get(b"content-type", b"application/json")
    kind = written.partition(b";")[0].strip().lower().decode("latin-1")
    if kind != "application/json":
        raise _BadRequest(
            f"content type {kind!r} is not read; send application/json", status=415, cause="type"
        )
    encoding = headers.get(b"content-encoding", b"identity").lower().decode("latin-1")
    if encoding != "identity":
        raise _BadRequest(
            f"content encoding {encoding!r} is not read; send the body as it is",
            status=415,
            cause="type",
        )


def _decoded(decoder: "msgspec.json.Decoder[Body]", body: bytes) -> Body:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _BadRequest(f"body: {error}", status=422, cause="invalid") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _BadRequest(f"body is not JSON: {error}", status=400, cause="no_json") from error
    except RecursionError as error:
        raise _BadRequest("body is nested too deep", status=400, cause="no_json") from error


def _json(content: bytes, status: int = 200) -> Response:
    return Response(content, status, media_type="application/json")


def _encoded(answer: msgspec.Struct, status: int = 200) -> Response:
    return _json(msgspec.json.encode(answer), status)


class _Routes:
    """One method for each operation."""

    def __init__(self, table: SessionTable, metrics: Metrics) -> None:
        self._table = table
        self._metrics = metrics

    @PATHS.add(Operation("GET", "/health", answer=Health, refusals=(503,), is_open=True))
    async def health(self, request: Request) -> Response:
        """Whether sessions can be opened, and which versions are spoken; needs no token."""
        status = self._table.status
        answer = msgspec.json.encode(Health(status=status, protocols=(PROTOCOL,)))
        if status == "ready":
            return _json(answer)
        return Response(answer, 503, headers={"Retry-After": "1"}, media_type="application/json")

    @PATHS.add(Operation("GET", "/openapi.json", answer="application/json"))
    async def openapi(self, request: Request) -> Response:
        """This document."""
        return _json(msgspec.json.encode(document(PATHS, tuple(self._table.served))))

    @PATHS.add(Operation("GET", "/metrics", answer="text/plain"))
    async def metrics(self, request: Request) -> Response:
        """Counters in Prometheus' text format."""
        return Response(self._metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @PATHS.add(Operation("GET", f"{VERSION}/environments", answer=Environments))
    async def environments(self, request: Request) -> Response:
        """The environments that are served, with their options."""
        served = tuple(
            ServedEnvironment(description=one.description, options=one.options)
            for one in self._table.served.values()
        )
        lease = self._table.limits.lease_seconds
        return _encoded(Environments(environments=served, lease_seconds=lease))

    @PATHS.add(
        Operation(
            "GET",
            f"{VERSION}/tasks",
            answer=TaskPage,
            refusals=(404, 422),
            query={
                "environment": {"type": "string"},
                "split": {"type": "string", "enum": [split.value for split in Split]},
                "offset": {"type": "integer", "minimum": 0, "default": 0},
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": _LARGEST_PAGE,
                    "default": _LARGEST_PAGE,
                },
            },
            required=("environment", "split"),
        )
    )
    async def tasks(self, request: Request) -> Response:
        """Tasks of a split of an environment, a page at a time."""
        query = request.query_params
        served = self._table.environment(query.get("environment", ""))
        try:
            split = Split(query.get("split", ""))
            offset, limit = int(query.get("offset", "0")), int(query.get("limit", _LARGEST_PAGE))
        except ValueError as error:
            raise _BadRequest(f"query: {error}", status=422, cause="invalid") from error
        if offset < 0 or not 1 <= limit <= _LARGEST_PAGE:
            raise _BadRequest(
                f"offset must be at least 0 and limit from 1 to {_LARGEST_PAGE}, got {offset} and "
                f"{limit}",
                status=422,
                cause="invalid",
            )
        try:  # in a thread: the first time a source may take long to list them
            listed = await asyncio.to_thread(served.tasks, split)
        except ConfigError as error:
            raise NotServed(str(error)) from error
        return _encoded(TaskPage(tasks=tuple(listed[offset : offset + limit]), total=len(listed)))

    @PATHS.add(
        Operation(
            "POST",
            f"{VERSION}/sessions",
            body=CreateRequest,
            status=201,
            answer=SessionAnswer,
            refusals=(404, 409, 429, 503),
            links=leads_to(
                "$response.body#/session_id", reset="reset_session", close="close_session"
            ),
        )
    )
    async def create_session(self, request: Request) -> Response:
        """Open a session, which is one episode."""
        asked = await _read(_CREATE, request)
        owner = owner_of(request.scope)
        session_id = await self._table.create_soon(
            asked.environment, owner=owner, idempotency_key=asked.idempotency_key
        )
        if await request.is_disconnected():  # while it waited for a place
            self._table.close(session_id, owner=owner)
        lease = self._table.limits.lease_seconds
        return _encoded(SessionAnswer(session_id=session_id, lease_seconds=lease), 201)

    @PATHS.add(
        Operation(
            "POST",
            f"{_SESSION}/reset",
            body=ResetRequest,
            answer=Observation,
            refusals=(409,),
            links=leads_to(_ASKED, {"number": 1, "action": "look"}, step="step_session")
            | _AFTERWARDS,
        )
    )
    async def reset_session(self, request: Request) -> Response:
        """Start the session's episode; once, however often it is asked for."""
        asked = await _read(_RESET, request)
        answer = self._table.begin_reset(
            request.path_params["session_id"],
            owner=owner_of(request.scope),
            task_id=asked.task_id,
            seed=asked.seed,
        )
        return _json(await answer.content())

    @PATHS.add(
        Operation(
            "POST",
            f"{_SESSION}/step",
            body=StepRequest,
            answer=StepResult,
            refusals=(409,),
            links=_AFTERWARDS,
        )
    )
    async def step_session(self, request: Request) -> Response:
        """Make a step. It acts once: the last number again gets the answer again."""
        asked = await _read(_STEP, request)
        session_id = request.path_params["session_id"]
        return _json(await self.begin_step(session_id, asked, owner_of(request.scope)).content())

    @PATHS.add(Operation("POST", _BATCH_PATH, body=BatchRequest, answer=BatchAnswer))
    async def step_batch(self, request: Request) -> Response:
        """Make steps of many sessions; each has a status of its own."""
        asked = await _read(_BATCH, request)
        return _json(await self.step_all(asked, owner_of(request.scope)))

    def begin_step(self, session_id: str, asked: StepRequest, owner: Owner) -> Answer:
        return self._table.begin_step(
            session_id, owner=owner, number=asked.number, action=asked.action
        )

    async def step_all(self, asked: BatchRequest, owner: Owner) -> bytes:
        """A `BatchAnswer` as JSON."""
        begun = [self._begun(step, owner) for step in asked.steps]
        waiting = {one.future for one in begun if isinstance(one, Answer) and not one.future.done()}
        if waiting:
            await asyncio.wait(waiting, timeout=_BATCH_SECONDS)
        return b'{"results":[' + b",".join([await _result(one) for one in begun]) + b"]}"

    def _begun(self, step: BatchStep, owner: Owner) -> Answer | Refused:
        try:
            return self._table.begin_step(
                step.session_id, owner=owner, number=step.number, action=step.action
            )
        except Refused as refused:
            return refused

    @PATHS.add(Operation("GET", f"{_SESSION}/observation", answer=Observation, refusals=(409,)))
    async def observation(self, request: Request) -> Response:
        """What the last reset or step showed."""
        session_id = request.path_params["session_id"]
        return _json(self._table.observation(session_id, owner=owner_of(request.scope)))

    @PATHS.add(Operation("GET", f"{_SESSION}/actions", answer=Actions, refusals=(409,)))
    async def actions(self, request: Request) -> Response:
        """What the environment accepts now, where it says so."""
        session_id = request.path_params["session_id"]
        owner = owner_of(request.scope)
        found = self._table.admissible_actions(session_id, owner=owner)
        return _encoded(Actions(admissible_actions=found))

    @PATHS.add(Operation("GET", f"{_SESSION}/render", answer="image/png", refusals=(404, 409)))
    async def render(self, request: Request) -> Response:
        """A picture of the state for people, where the environment draws one."""
        session_id = request.path_params["session_id"]
        drawn = await self._table.render(session_id, owner=owner_of(request.scope))
        return Response(drawn, media_type="image/png")

    @PATHS.add(Operation("DELETE", _SESSION, status=204))
    async def close_session(self, request: Request) -> Response:
        """Close a session; again, it is closed already."""
        self._table.close(request.path_params["session_id"], owner=owner_of(request.scope))
        return Response(status_code=204)

    @PATHS.add(
        Operation("POST", f"{VERSION}/heartbeat", body=HeartbeatRequest, answer=HeartbeatAnswer)
    )
    async def heartbeat(self, request: Request) -> Response:
        """Renew the leases of sessions that wait for their agent."""
        asked = await _read(_HEARTBEAT, request)
        gone = self._table.heartbeat(asked.session_ids, owner=owner_of(request.scope))
        problems = {session_id: _problem(error) for session_id, error in gone.items()}
        return _encoded(HeartbeatAnswer(gone=problems))


async def _result(one: Answer | Refused) -> bytes:
    """A `BatchResult` as JSON."""
    if isinstance(one, Answer):
        if not one.future.done():
            problem = Problem(detail="the step goes on; ask for it alone", cause="running")
            return _failed(202, problem)
        try:
            return b'{"status":200,"result":' + await one.content() + b"}"
        except Refused as refused:
            one = refused
    return _failed(one.status, _problem(one))


def _failed(status: int, problem: Problem) -> bytes:
    return b'{"status":%d,"problem":%s}' % (status, msgspec.json.encode(problem))
