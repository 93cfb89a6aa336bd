"""What server and client send each other, version 1: JSON, and nothing else.

An observation, a step's result, a task and a description are sent as the types of the core; the
bytes of a picture are base64. Fields may be added within a version, and whoever does not know one
ignores it. Anything else is a new version, with a path of its own (`/v2/…`).
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from longhaul_core.environment import EnvironmentDescription, StepResult
from longhaul_core.types import Observation, Task

__all__ = [
    "CLIENT_HEADER",
    "LARGEST_BATCH",
    "MAX_BODY_BYTES",
    "PROTOCOL",
    "SHOWN",
    "Actions",
    "BatchAnswer",
    "BatchRequest",
    "BatchResult",
    "BatchStep",
    "CreateRequest",
    "Environments",
    "Health",
    "HeartbeatAnswer",
    "HeartbeatRequest",
    "Problem",
    "ResetRequest",
    "ServedEnvironment",
    "SessionAnswer",
    "StepRequest",
    "TaskPage",
]

PROTOCOL = 1
"""Version that this package speaks."""
CLIENT_HEADER = "longhaul-client"
"""Names a client among those that share a token, such as a run; quotas are counted by it."""
MAX_BODY_BYTES = 2**20
"""Largest body of a request. A compressed body is refused, so this is what the server reads."""
LARGEST_BATCH = 1024
"""Most steps of one batch, and most sessions of one heartbeat."""

_Name = Annotated[str, msgspec.Meta(max_length=256)]
_Seed = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Number = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was not done."""

    detail: str
    """For people."""
    cause: str = ""
    """For programs: a `Cause` where a session is gone; else the kind of refusal."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether sessions can be opened."""

    status: str
    """`ready`, `starting` or `draining`."""
    protocols: tuple[int, ...]
    """Versions that are spoken."""


class ServedEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """An environment of the server, under the options that it was started with."""

    description: EnvironmentDescription
    options: Mapping[str, Any]


class Environments(msgspec.Struct, frozen=True, kw_only=True):
    """All that is served."""

    environments: tuple[ServedEnvironment, ...]
    lease_seconds: float
    """How long a session that nobody uses is kept."""


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some tasks of a split, in the split's order."""

    tasks: tuple[Task, ...]
    total: int
    """Tasks of the whole split."""


class CreateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for a session."""

    environment: _Name
    """Its id."""
    idempotency_key: _Name = ""
    """Drawn by the client: a request that is sent again gets the session of the first. Empty:
    each request gets one of its own."""


class SessionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A session that is open."""

    session_id: str
    lease_seconds: float


class ResetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Starts the session's one episode."""

    task_id: _Name
    seed: _Seed


class StepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One step. It acts once, however often it is sent."""

    number: _Number
    """1 for the first step after the reset, then one more each time."""
    action: str


class BatchStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a batch."""

    session_id: _Name
    number: _Number
    action: str


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of different sessions."""

    steps: Annotated[tuple[BatchStep, ...], msgspec.Meta(max_length=LARGEST_BATCH)]


class BatchResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one step of a batch brought."""

    status: int
    """As the step alone would have got it; 202 if it goes on: ask for it again, alone."""
    result: StepResult | msgspec.UnsetType = msgspec.UNSET
    """There if the status is 200."""
    problem: Problem | msgspec.UnsetType = msgspec.UNSET
    """There otherwise."""


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One result for each step, in their order."""

    results: tuple[BatchResult, ...]


class Actions(msgspec.Struct, frozen=True, kw_only=True):
    """What can be done now."""

    admissible_actions: tuple[str, ...] | None
    """None if the environment does not say."""


class HeartbeatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Renews the leases of sessions."""

    session_ids: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=LARGEST_BATCH)]


class HeartbeatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Which of them are no more, and why."""

    gone: Mapping[str, Problem]


SHOWN: tuple[type, ...] = (
    Observation,
    StepResult,
    Problem,
    Health,
    Environments,
    TaskPage,
    CreateRequest,
    SessionAnswer,
    ResetRequest,
    StepRequest,
    BatchRequest,
    BatchAnswer,
    Actions,
    HeartbeatRequest,
    HeartbeatAnswer,
)
"""The bodies of requests and answers, for the server's OpenAPI document."""
