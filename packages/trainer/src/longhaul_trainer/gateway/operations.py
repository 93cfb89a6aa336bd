"""The gateway's operations, and the OpenAPI document of those that are ours.

Vendors have documents of their own; where the gateway differs, `docs/guides/agents.md` has it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from longhaul_trainer.gateway.exchange import CreditReport

__all__ = ["EPISODE", "OPERATIONS", "Operation", "document"]

EPISODE = "/e/{episode}"
_LIGHTNING_PROXY = "/proxy/rollout/{episode}/attempt/{attempt}/mode/{mode}/openai"
_LIGHTNING_ROLLOUT = "/rollout/{episode}/attempt/{attempt}"
"""With the one above, what comes before `/v1/…` in the addresses of agent-lightning 0.3 and 1."""
_AZURE = EPISODE + "/openai"
"""What comes before `/v1/…`, or `/deployments/…`, in the addresses of Azure."""
_EVERYWHERE = (EPISODE, _AZURE, _LIGHTNING_PROXY, _LIGHTNING_ROLLOUT)
_STATUSES = {
    200: "Done.",
    400: "The body is wrong, or a limit of the episode is reached.",
    401: "No episode has this address and this key.",
    410: "The episode is over; the message has the cause.",
    413: "The body is too long.",
    415: "The body is of a type, or packed in a way, that is not read.",
}
_OF_BODIES = (413, 415)


class RewardReport(msgspec.Struct, frozen=True, kw_only=True):
    """Reward and success of an episode as a whole."""

    value: float | None = None
    reward: float | None = None
    """Another name of `value`, as in what a program prints."""
    success: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path below an episode's address."""

    method: str
    path: str
    name: str
    """Of the method that answers it; `call` for requests to models."""
    dialect: str = ""
    """Whose JSON it is; empty for ours."""
    prefixes: tuple[str, ...] = (EPISODE,)
    summary: str = ""
    """Of one that is ours, for the document; empty: it is somebody else's."""
    body: type | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that it has."""
        return tuple(prefix + self.path for prefix in self.prefixes)

    def described(self, schemas: Mapping[type, object]) -> dict[str, Any]:
        """The operation as OpenAPI has it."""
        described: dict[str, Any] = {
            "operationId": self.name,
            "summary": self.summary,
            "parameters": [
                {"name": "episode", "in": "path", "required": True, "schema": {"type": "string"}}
            ],
            "responses": {
                str(status): {"description": text, "content": {"application/json": {}}}
                for status, text in _STATUSES.items()
                if self.body is not None or status not in _OF_BODIES
            },
        }
        if self.body is not None:
            content = {"application/json": {"schema": schemas[self.body]}}
            described["requestBody"] = {"required": True, "content": content}
        return described


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST",
        path="/v1/chat/completions",
        name="call",
        dialect="openai_chat",
        prefixes=_EVERYWHERE,
    ),
    Operation(
        method="POST",
        path="/v1/completions",
        name="call",
        dialect="openai_completions",
        prefixes=_EVERYWHERE,
    ),
    Operation(
        method="POST",
        path="/v1/responses",
        name="call",
        dialect="openai_responses",
        prefixes=(EPISODE, _AZURE),
    ),
    Operation(
        method="POST",
        path="/deployments/{model}/chat/completions",
        name="call",
        dialect="openai_chat",
        prefixes=(_AZURE,),
    ),
    Operation(
        method="POST",
        path="/responses",
        name="call",
        dialect="openai_responses",
        prefixes=(_AZURE,),
    ),
    Operation(
        method="POST",
        path="/v1/messages",
        name="call",
        dialect="anthropic",
        prefixes=(EPISODE, _LIGHTNING_ROLLOUT),
    ),
    Operation(
        method="POST", path="/v1/messages/count_tokens", name="count_tokens", dialect="anthropic"
    ),
    Operation(
        method="POST", path="/v1beta/models/{model}:{method}", name="google", dialect="google"
    ),
    Operation(method="POST", path="/v1/models/{model}:{method}", name="google", dialect="google"),
    Operation(method="GET", path="/v1/models", name="models", prefixes=_EVERYWHERE),
    Operation(method="GET", path="/v1/models/{model}", name="model", prefixes=_EVERYWHERE),
    Operation(method="GET", path="/v1beta/models", name="models", dialect="google"),
    Operation(method="GET", path="/v1beta/models/{model}", name="model", dialect="google"),
    Operation(
        method="POST",
        path="/longhaul/step",
        name="step",
        summary="A reward for the step before, and what holds for the next call.",
        body=CreditReport,
    ),
    Operation(
        method="POST",
        path="/longhaul/reward",
        name="reward",
        summary="Reward and success of the episode as a whole; the last ones count.",
        body=RewardReport,
    ),
    Operation(method="GET", path="/longhaul/task", name="task", summary="The task of the episode."),
    Operation(
        method="POST",
        path="/events",
        name="event",
        prefixes=("/api/rollouts/{episode}/attempt/{attempt}",),
    ),
)
"""Every operation that needs a key; `app` has a method of each name."""


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    ours = [operation for operation in OPERATIONS if operation.summary]
    bodies = [operation.body for operation in ours if operation.body is not None]
    references, schemas = msgspec.json.schema_components(
        bodies, ref_template="#/components/schemas/{name}"
    )
    for schema in schemas.values():
        schema["additionalProperties"] = False
    by_body = dict(zip(bodies, references, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Longhaul gateway",
            "version": "1",
            "description": "A program reports rewards of its episode here. Beside these paths, "
            "models are called in the JSON of OpenAI (https://platform.openai.com/docs), Anthropic "
            "(https://docs.anthropic.com/en/api) or Google (https://ai.google.dev/api).",
        },
        "paths": {
            path: {operation.method.lower(): operation.described(by_body)}
            for operation in ours
            for path in operation.paths
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }
