"""The operations of the protocol, and the OpenAPI document that describes them.

An operation stands above the method that answers it, and has its name and its docstring. Schemas
come from the types of `protocol`; an operation says what types do not: path, status codes, and
which answer leads to which request (links).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from longhaul_envs.server import protocol
from longhaul_envs.server.protocol import MAX_BODY_BYTES, PROTOCOL, Problem

__all__ = ["VERSION", "Operation", "Operations", "document", "leads_to"]

VERSION = f"/v{PROTOCOL}"
"""What the paths of the protocol begin with."""
_REFERENCE = "#/components/schemas/{name}"

HandlerT = TypeVar("HandlerT", bound=Callable[..., object])

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


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    _: KW_ONLY
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
    name: str = ""
    """Of the method that answers it; `Operations.add` sets both."""
    summary: str = ""

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


def leads_to(
    session: str, body: dict[str, Any] | None = None, **operations: str
) -> dict[str, dict[str, Any]]:
    """Links to further requests of a session, by their names.

    Args:
        session: Where its id is, as OpenAPI has it.
        body: Of each of these requests.
        operations: The operation of each.
    """
    link: dict[str, Any] = {"parameters": {"session_id": session}}
    link |= {} if body is None else {"requestBody": body}
    return {name: {"operationId": operation} | link for name, operation in operations.items()}


class Operations(list[Operation]):
    """Every operation, in the order of the document."""

    def add(self, operation: Operation) -> Callable[[HandlerT], HandlerT]:
        """Put an operation above the method that answers it."""

        def added(handler: HandlerT) -> HandlerT:
            summary = handler.__doc__ or ""
            self.append(replace(operation, name=handler.__name__, summary=summary))
            return handler

        return added


def document(
    operations: Iterable[Operation], environment_ids: Sequence[str] = ()
) -> dict[str, Any]:
    """The OpenAPI document.

    Args:
        operations: In their order.
        environment_ids: What a server serves, for the document of that server; empty: of any.
    """
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = operation.described()
    _, schemas = msgspec.json.schema_components(protocol.SHOWN, ref_template=_REFERENCE)
    if environment_ids:
        schemas["CreateRequest"]["properties"]["environment"]["enum"] = [*environment_ids]
        for parameter in paths[f"{VERSION}/tasks"]["get"]["parameters"]:
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
