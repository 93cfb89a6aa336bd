"""The gateway's operations, and the OpenAPI document that describes them.

Vendors change their JSON often and have documents of their own; the schemas here have the fields
that most programs send. What else is read is said by the dialect, which refuses with 400 what it
does not know.
"""

from dataclasses import dataclass
from typing import Any

__all__ = ["EPISODE", "LIGHTNING", "OPERATIONS", "Operation", "document"]

EPISODE = "/e/{episode}"
_LIGHTNING_PROXY = "/proxy/rollout/{episode}/attempt/{attempt}/mode/{mode}/openai"
_LIGHTNING_ROLLOUT = "/rollout/{episode}/attempt/{attempt}"
LIGHTNING = (_LIGHTNING_PROXY, _LIGHTNING_ROLLOUT)
"""What comes before `/v1/…` in the addresses of agent-lightning 1 and 0.3."""

_AZURE = EPISODE + "/openai"
"""What comes before `/v1/…`, or `/deployments/…`, in the addresses of Azure."""

Schema = dict[str, Any]

_WORDS = {
    400: "The body is wrong, or a limit of the episode is reached.",
    401: "No episode has this address and this key.",
    404: "No such model, or no such route.",
    410: "The episode is over; the message says why.",
    413: "The body or what is new in it is too long.",
    415: "The body is of a type, or packed in a way, that is not read.",
    502: "The engine or an upstream failed; the same request may be sent again.",
    503: "Busy; the same request may be sent again.",
}

_TEXT: Schema = {"type": "string", "maxLength": 1000}
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 64}
_NUMBER_OF_TOKENS: Schema = {"type": "integer", "minimum": 1, "maximum": 1_000_000}
_CREDIT: Schema = {
    "type": "object",
    "properties": {
        "reward": {
            "type": "number",
            "minimum": -1e30,
            "maximum": 1e30,
            "description": "For the step before.",
        },
        "anchor_state": {**_TEXT, "description": "State in which the call is made."},
        "done": {"type": "boolean", "description": "Nothing comes after it."},
        "train": {"type": "boolean", "description": "False for a call that is not the agent's."},
        "agent": {"type": "string", "maxLength": 64},
        "purpose": {"type": "string", "maxLength": 64},
    },
    "additionalProperties": False,
}
_MODEL: Schema = {
    "type": "string",
    "minLength": 1,
    "default": "auto",
    "examples": ["auto"],
    "description": "`auto` for the policy, or a name of `models`.",
}
_DRAWING: Schema = {
    "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "top_p": {"type": "number", "minimum": 1e-6, "maximum": 1},
    "stream": {"type": "boolean"},
}


def _object(required: tuple[str, ...], **properties: Schema) -> Schema:
    return {
        "type": "object",
        "required": list(required),
        "properties": properties,
        "additionalProperties": False,
    }


def _list(items: Schema, *, least: int = 0) -> Schema:
    return {"type": "array", "items": items, "minItems": least}


_FUNCTION = _object(("name",), name=_NAME, description=_TEXT, parameters={"type": "object"})
_SCHEMAS: dict[str, Schema] = {
    "ChatCompletion": _object(
        ("model", "messages"),
        model=_MODEL,
        messages=_list(
            _object(
                ("role", "content"),
                role={"enum": ["system", "user", "assistant"]},
                content={
                    "anyOf": [
                        _TEXT,
                        _list(_object(("type", "text"), type={"const": "text"}, text=_TEXT)),
                    ]
                },
            ),
            least=1,
        ),
        tools=_list(_object(("type", "function"), type={"const": "function"}, function=_FUNCTION)),
        n={"type": "integer", "minimum": 1, "maximum": 4},
        max_tokens=_NUMBER_OF_TOKENS,
        stop={"anyOf": [_NAME, _list(_NAME)]},
        logprobs={"type": "boolean"},
        longhaul=_CREDIT,
        **_DRAWING,
    ),
    "Completion": _object(
        ("model", "prompt"),
        model=_MODEL,
        prompt={
            "anyOf": [
                {**_TEXT, "minLength": 1},
                _list({"type": "integer", "minimum": 0, "maximum": 127}, least=1),
            ]
        },
        n={"type": "integer", "minimum": 1, "maximum": 4},
        max_tokens=_NUMBER_OF_TOKENS,
        longhaul=_CREDIT,
        **_DRAWING,
    ),
    "Response": _object(
        ("model", "input"),
        model=_MODEL,
        input={
            "anyOf": [
                _TEXT,
                _list(
                    _object(("role", "content"), role={"enum": ["user", "system"]}, content=_TEXT),
                    least=1,
                ),
            ]
        },
        instructions=_TEXT,
        max_output_tokens=_NUMBER_OF_TOKENS,
        longhaul=_CREDIT,
        **_DRAWING,
    ),
    "Message": _object(
        ("model", "messages", "max_tokens"),
        model=_MODEL,
        messages=_list(
            _object(
                ("role", "content"),
                role={"enum": ["user", "assistant"]},
                content={
                    "anyOf": [
                        _TEXT,
                        _list(_object(("type", "text"), type={"const": "text"}, text=_TEXT)),
                    ]
                },
            ),
            least=1,
        ),
        system=_TEXT,
        tools=_list(_object(("name", "input_schema"), name=_NAME, input_schema={"type": "object"})),
        max_tokens=_NUMBER_OF_TOKENS,
        longhaul=_CREDIT,
        **_DRAWING,
    ),
    "TokenCount": _object(
        ("model", "messages"),
        model=_MODEL,
        messages=_list(
            _object(("role", "content"), role={"enum": ["user", "assistant"]}, content=_TEXT),
            least=1,
        ),
    ),
    "Content": _object(
        ("contents",),
        contents=_list(
            _object(
                ("parts",),
                role={"enum": ["user", "model"]},
                parts=_list(_object(("text",), text=_TEXT), least=1),
            ),
            least=1,
        ),
        generationConfig=_object(
            (),
            temperature=_DRAWING["temperature"],
            topP=_DRAWING["top_p"],
            maxOutputTokens=_NUMBER_OF_TOKENS,
        ),
    ),
    "Credit": _CREDIT,
    "Reward": _object(
        (),
        reward={
            "type": ["number", "null"],
            "minimum": -1e30,
            "maximum": 1e30,
            "description": "Another name of `value`, as in what a program prints.",
        },
        value={"type": ["number", "null"], "minimum": -1e30, "maximum": 1e30},
        success={"type": ["boolean", "null"]},
    ),
    "Event": _object(("event_type",), event_type=_NAME, data={"type": "object"}),
    "Answer": {"type": "object"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path below an episode's address."""

    method: str
    path: str
    name: str
    """Of the method that answers it; `call` for requests to models."""
    summary: str
    body: str = ""
    """Name of its schema; empty for none."""
    dialect: str = ""
    """Whose JSON it is; empty for ours."""
    streams: bool = False
    prefixes: tuple[str, ...] = (EPISODE,)
    query: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that it has."""
        return tuple(prefix + self.path for prefix in self.prefixes)

    def described(self, path: str) -> Schema:
        """The operation as OpenAPI has it, under one of its paths."""
        names = [part.partition("}")[0] for part in path.split("{")[1:]]
        statuses = (401, 404, 410, *((400, 413, 415, 502, 503) if self.body else ()))
        answer: Schema = {"application/json": {"schema": _reference("Answer")}}
        if self.streams:
            answer["text/event-stream"] = {"schema": {"type": "object"}}  # of each event
        described: Schema = {
            "operationId": f"{self.name}_{path.strip('/')}".replace("{", "").replace("}", ""),
            "summary": self.summary,
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": _PARAMETERS[name]}
                for name in names
            ]
            + [{"name": name, "in": "query", "schema": _PARAMETERS[name]} for name in self.query],
            "responses": {"200": {"description": "Done.", "content": answer}}
            | {
                str(status): {
                    "description": _WORDS[status],
                    "content": {"application/json": {"schema": _reference("Answer")}},
                }
                for status in sorted(statuses)
            },
        }
        if self.body:
            content = {"application/json": {"schema": _reference(self.body)}}
            described["requestBody"] = {"required": True, "content": content}
        return described


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_PARAMETERS: dict[str, Schema] = {
    "episode": _NAME,
    "attempt": {"type": "string", "minLength": 1, "examples": ["0"]},
    "alt": {"enum": ["sse"]},
    "mode": {"enum": ["train", "val"]},
    "model": {"type": "string", "minLength": 1, "examples": ["auto"]},
    "method": {"enum": ["generateContent", "streamGenerateContent", "countTokens"]},
}
_EVERYWHERE = (EPISODE, _AZURE, *LIGHTNING)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST",
        path="/v1/chat/completions",
        name="call",
        summary="OpenAI's chat completions.",
        body="ChatCompletion",
        dialect="openai_chat",
        streams=True,
        prefixes=_EVERYWHERE,
    ),
    Operation(
        method="POST",
        path="/v1/completions",
        name="call",
        summary="OpenAI's completions: a prompt of text or tokens, without a chat template.",
        body="Completion",
        dialect="openai_completions",
        streams=True,
        prefixes=_EVERYWHERE,
    ),
    Operation(
        method="POST",
        path="/v1/responses",
        name="call",
        summary="OpenAI's responses.",
        body="Response",
        dialect="openai_responses",
        streams=True,
        prefixes=(EPISODE, _AZURE),
    ),
    Operation(
        method="POST",
        path="/deployments/{model}/chat/completions",
        name="call",
        summary="OpenAI's chat completions, as Azure's clients ask for them.",
        body="ChatCompletion",
        dialect="openai_chat",
        streams=True,
        prefixes=(_AZURE,),
    ),
    Operation(
        method="POST",
        path="/responses",
        name="call",
        summary="OpenAI's responses, as Azure's clients ask for them.",
        body="Response",
        dialect="openai_responses",
        streams=True,
        prefixes=(_AZURE,),
    ),
    Operation(
        method="POST",
        path="/v1/messages",
        name="call",
        summary="Anthropic's messages.",
        body="Message",
        dialect="anthropic",
        streams=True,
        prefixes=(EPISODE, _LIGHTNING_ROLLOUT),
    ),
    Operation(
        method="POST",
        path="/v1/messages/count_tokens",
        name="count_tokens",
        summary="How many tokens a prompt has; no model is called.",
        body="TokenCount",
        dialect="anthropic",
    ),
    Operation(
        method="POST",
        path="/v1beta/models/{model}:{method}",
        name="google",
        summary="Google's generateContent, streamGenerateContent and countTokens.",
        body="Content",
        dialect="google",
        streams=True,
        query=("alt",),
    ),
    Operation(
        method="POST",
        path="/v1/models/{model}:{method}",
        name="google",
        summary="The same, where newer clients of Google's ask.",
        body="Content",
        dialect="google",
        streams=True,
        query=("alt",),
    ),
    Operation(
        method="GET",
        path="/v1/models",
        name="models",
        summary="The models, as every vendor's clients read them.",
        prefixes=_EVERYWHERE,
    ),
    Operation(
        method="GET",
        path="/v1/models/{model}",
        name="model",
        summary="One model.",
        prefixes=_EVERYWHERE,
    ),
    Operation(
        method="GET",
        path="/v1beta/models",
        name="models",
        summary="The models, where Google's clients ask for them.",
        dialect="google",
    ),
    Operation(
        method="GET",
        path="/v1beta/models/{model}",
        name="model",
        summary="One model.",
        dialect="google",
    ),
    Operation(
        method="POST",
        path="/longhaul/step",
        name="step",
        summary="What a program says of its step: a reward for the last one, and what holds for "
        "the next call.",
        body="Credit",
    ),
    Operation(
        method="POST",
        path="/longhaul/reward",
        name="reward",
        summary="Reward and success of the episode as a whole; the last ones count.",
        body="Reward",
    ),
    Operation(method="GET", path="/longhaul/task", name="task", summary="What is to be done."),
    Operation(
        method="POST",
        path="/events",
        name="event",
        summary="agent-lightning's events; one of type `reward` is the episode's reward.",
        body="Event",
        prefixes=("/api/rollouts/{episode}/attempt/{attempt}",),
    ),
)
"""Every operation that needs a key; `app` has a method of each name."""


def document() -> Schema:
    """The OpenAPI document."""
    paths: dict[str, Schema] = {
        "/health": {
            "get": {
                "operationId": "health",
                "summary": "Whether it answers; needs no key.",
                "security": [],
                "responses": {
                    "200": {
                        "description": "It does.",
                        "content": {"application/json": {"schema": _reference("Answer")}},
                    }
                },
            }
        }
    }
    for operation in OPERATIONS:
        for path in operation.paths:
            paths.setdefault(path, {})[operation.method.lower()] = operation.described(path)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Longhaul gateway",
            "version": "1",
            "description": "Programs that play episodes call their models here, in the JSON of "
            "OpenAI, Anthropic or Google. Address and key are given to each episode.",
        },
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }
