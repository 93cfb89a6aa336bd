"""The operations of the protocol, and the OpenAPI document that describes them.

Schemas come from the types of `protocol`; this table has what types do not say: paths, status
codes, and which answer leads to which request (links).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from longhaul_core.environment import StepResult
from longhaul_core.types import Observation, Split
from longhaul_envs.server import protocol
from longhaul_envs.server.protocol import (
    MAX_BODY_BYTES,
    PROTOCOL,
    Actions,
    BatchAnswer,
    BatchRequest,
    CreateRequest,
    Environments,
    Health,
    HeartbeatAnswer,
    HeartbeatRequest,
    Problem,
    ResetRequest,
    SessionAnswer,
    StepRequest,
    TaskPage,
)

__all__ = ["PATHS", "Operation", "document"]

_V = f"/v{PROTOCOL}"
_SESSION = _V + "/sessions/{session_id}"
_REFERENCE = "#/components/schemas/{name}"

_WORDS = {
    400: "The body is not JSON, or the Host header names another server.",
    401: "No token, or a wrong one.",
    403: "A web page asks.",
    404: "No such environment or picture.",
    409: "The number or the action does not fit the session's state.",
    410: "The session is gone; the cause says why.",
    413: f"The body has more than {MAX_BODY_BYTES} bytes.",
    415: "The body is compressed, or no application/json.",
    422: "A value is missing, of the wrong type or out of its range.",
    429: "The client has its share of sessions.",
    503: "Starting, full, or being stopped; ask again.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    name: str
    summary: str
    body: type | None = None
    status: int = 200
    answer: type | str | None = None
    """A type, the media type of something else than JSON, or nothing."""
    refusals: tuple[int, ...] = ()
    """Besides those of every request."""
    query: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    required: tuple[str, ...] = ()
    """Names of `query` that must be given."""
    links: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    is_open: bool = False
    """Whether it needs no token."""

    def described(self) -> dict[str, Any]:
        """The operation as OpenAPI has it."""
        refusals = {*self.refusals, 400, *(() if self.is_open else (401, 403))}
        if self.body is not None:
            refusals |= {413, 415, 422}
        if "{session_id}" in self.path:
            refusals.add(410)
        parameters = [
            {"name": name, "in": "query", "required": name in self.required, "schema": schema}
            for name, schema in self.query.items()
        ]
        if "{session_id}" in self.path:
            schema = {"type": "string"}
            parameters.append(
                {"name": "session_id", "in": "path", "required": True, "schema": schema}
            )
        done: dict[str, Any] = {"description": "Done."}
        if self.answer is not None:
            done["content"] = _content(self.answer)
        if self.links:
            done["links"] = self.links
        described: dict[str, Any] = {
            "operationId": self.name,
            "summary": self.summary,
            "parameters": parameters,
            "responses": {str(self.status): done}
            | {
                str(status): {"description": _WORDS[status], "content": _content(Problem)}
                for status in sorted(refusals)
            },
        }
        if self.body is not None:
            described["requestBody"] = {"required": True, "content": _content(self.body)}
        if self.is_open:
            described["security"] = []
        return described


def _content(answer: type | str) -> dict[str, Any]:
    if isinstance(answer, str):
        return {answer: {"schema": {"type": "string"}}}
    return {"application/json": {"schema": {"$ref": _REFERENCE.format(name=answer.__name__)}}}


def _link(operation: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    link: dict[str, Any] = {
        "operationId": operation,
        "parameters": {"session_id": "$response.body#/session_id"},
    }
    return link if body is None else link | {"requestBody": body}


def _next(operation: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    link: dict[str, Any] = {
        "operationId": operation,
        "parameters": {"session_id": "$request.path.session_id"},
    }
    return link if body is None else link | {"requestBody": body}


_OF_A_STEP = {"step": _next("step_session", {"number": 1, "action": "look"})}
_AFTERWARDS = {name: _next(name) for name in ("observation", "actions", "render", "close_session")}

PATHS: tuple[Operation, ...] = (
    Operation(
        method="GET",
        path="/health",
        name="health",
        summary="Whether sessions can be opened, and which versions are spoken; needs no token.",
        answer=Health,
        refusals=(503,),
        is_open=True,
    ),
    Operation(
        method="GET",
        path="/openapi.json",
        name="openapi",
        summary="This document.",
        answer="application/json",
    ),
    Operation(
        method="GET",
        path="/metrics",
        name="metrics",
        summary="Counters in Prometheus' text format.",
        answer="text/plain",
    ),
    Operation(
        method="GET",
        path=f"{_V}/environments",
        name="environments",
        summary="The environments that are served, with their options.",
        answer=Environments,
    ),
    Operation(
        method="GET",
        path=f"{_V}/tasks",
        name="tasks",
        summary="Tasks of a split of an environment, a page at a time.",
        answer=TaskPage,
        refusals=(404, 422),
        query={
            "environment": {"type": "string"},
            "split": {"type": "string", "enum": [split.value for split in Split]},
            "offset": {"type": "integer", "minimum": 0, "default": 0},
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 1000},
        },
        required=("environment", "split"),
    ),
    Operation(
        method="POST",
        path=f"{_V}/sessions",
        name="create_session",
        summary="Open a session, which is one episode.",
        body=CreateRequest,
        status=201,
        answer=SessionAnswer,
        refusals=(404, 409, 429, 503),
        links={"reset": _link("reset_session"), "close": _link("close_session")},
    ),
    Operation(
        method="POST",
        path=f"{_SESSION}/reset",
        name="reset_session",
        summary="Start the session's episode; once, however often it is asked for.",
        body=ResetRequest,
        answer=Observation,
        refusals=(409,),
        links=_OF_A_STEP | _AFTERWARDS,
    ),
    Operation(
        method="POST",
        path=f"{_SESSION}/step",
        name="step_session",
        summary="Make a step. It acts once: the last number again gets the answer again.",
        body=StepRequest,
        answer=StepResult,
        refusals=(409,),
        links=_AFTERWARDS,
    ),
    Operation(
        method="POST",
        path=f"{_V}/steps",
        name="step_batch",
        summary="Make steps of many sessions; each has a status of its own.",
        body=BatchRequest,
        answer=BatchAnswer,
    ),
    Operation(
        method="GET",
        path=f"{_SESSION}/observation",
        name="observation",
        summary="What the last reset or step showed.",
        answer=Observation,
        refusals=(409,),
    ),
    Operation(
        method="GET",
        path=f"{_SESSION}/actions",
        name="actions",
        summary="What the environment accepts now, where it says so.",
        answer=Actions,
        refusals=(409,),
    ),
    Operation(
        method="GET",
        path=f"{_SESSION}/render",
        name="render",
        summary="A picture of the state for people, where the environment draws one.",
        answer="image/png",
        refusals=(404, 409),
    ),
    Operation(
        method="DELETE",
        path=_SESSION,
        name="close_session",
        summary="Close a session; again, it is closed already.",
        status=204,
    ),
    Operation(
        method="POST",
        path=f"{_V}/heartbeat",
        name="heartbeat",
        summary="Renew the leases of sessions that wait for their agent.",
        body=HeartbeatRequest,
        answer=HeartbeatAnswer,
    ),
)
"""Every operation; `app` has a method of each one's name."""


def document(environment_ids: Sequence[str] = ()) -> dict[str, Any]:
    """The OpenAPI document.

    Args:
        environment_ids: What a server serves, for the document of that server; empty: of any.
    """
    paths: dict[str, dict[str, Any]] = {}
    for operation in PATHS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = operation.described()
    _, schemas = msgspec.json.schema_components(protocol.SHOWN, ref_template=_REFERENCE)
    if environment_ids:
        schemas["CreateRequest"]["properties"]["environment"]["enum"] = [*environment_ids]
        for parameter in paths[f"{_V}/tasks"]["get"]["parameters"]:
            if parameter["name"] == "environment":
                parameter["schema"] = {"type": "string", "enum": [*environment_ids]}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Longhaul environment server",
            "version": str(PROTOCOL),
            "description": "Sessions are episodes: created, reset, stepped by number, closed. "
            "A session that nobody asks anything of is closed when its lease has run out.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }
