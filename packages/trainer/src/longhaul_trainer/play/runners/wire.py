"""What a runner and a run say to each other, as JSON.

    POST /runners/v1/hello                 which gateways the run has
    POST /runners/v1/leases/{lease}        one episode to play, or 204 when none came in time
    POST /runners/v1/heartbeat             these leases are still played; which of them are over?
    POST /runners/v1/leases/{lease}/result what its program left

A runner names its leases itself, so that a request whose answer was lost can be sent again: it is
given the same episode.
"""

from enum import StrEnum
from typing import Annotated

import msgspec

__all__ = [
    "LEASES",
    "LONGEST_WAIT_SECONDS",
    "PREFIX",
    "TOKEN_VARIABLE",
    "Beat",
    "Beaten",
    "End",
    "Granted",
    "Hello",
    "HelloAnswer",
    "LeaseRequest",
    "Result",
]

PREFIX = "/runners/v1"
LEASES = f"{PREFIX}/leases"

TOKEN_VARIABLE = "LONGHAUL_RUNNER_TOKEN"
"""Environment variable of the token, for a run and for its runners."""

LONGEST_WAIT_SECONDS = 30.0

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
LeaseName = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-zA-Z_-]{16,64}$")]
Address = Annotated[str, msgspec.Meta(pattern=r"^https?://[^/\s]+$", max_length=300)]


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """A runner has come."""

    runner: Name
    address: Address
    """Of this gateway, as the runner reaches it."""


class HelloAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What it is to know."""

    gateways: tuple[str, ...]
    """Addresses of all gateways of the run, this one by the address that the runner gave."""


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A runner has a place for an episode."""

    runner: Name
    address: Address
    """Of this gateway, as programs on the runner's machine reach it."""
    wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WAIT_SECONDS)] = 0.0


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """An episode to play."""

    task: str
    """What the program is given: a JSON object as text."""
    environ: dict[str, str]
    """Environment variables of the program: addresses, and the key of this episode."""
    deadline_seconds: float
    """For the program as a whole."""
    lost_seconds: float
    """Without a heartbeat for so long the runner counts as lost, and the lease is over."""


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """These are still played."""

    runner: Name
    leases: Annotated[tuple[LeaseName, ...], msgspec.Meta(max_length=10_000)]


class Beaten(msgspec.Struct, frozen=True, kw_only=True):
    """What became of them meanwhile."""

    over: dict[str, str]
    """Leases that are over, and why: their programs are to be ended, and leave nothing."""
    enough: tuple[str, ...]
    """Leases whose episode is over: their programs are to be ended, and leave what they have."""


class End(StrEnum):
    """How a program ended on its runner."""

    LEFT = "left"
    """By itself, or because the episode was over."""
    FAILED = "failed"
    """It could not be started, or what watched it is gone."""
    TIMEOUT = "timeout"
    LIMIT = "limit"
    HANDED_BACK = "handed_back"
    """The runner was stopped, and ended the program."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a program left."""

    end: End
    message: str = ""
    """Why it failed; empty where it left something."""
    printed: str = ""
    """The end of its standard output, for its result."""
    output: str = ""
    """The last 4 kB of both outputs."""
    exit_code: int | None = None
