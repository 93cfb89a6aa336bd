"""Whom a server answers, and under which names, checked before anything starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from longhaul_core import serving
from longhaul_core.errors import ConfigError
from longhaul_envs.server.dialects.listeners import DIALECTS
from longhaul_envs.server.table import TableLimits

__all__ = ["TOKEN_VARIABLE", "ServerSettings"]

TOKEN_VARIABLE = "LONGHAUL_ENV_TOKEN"
"""Environment variable of the token, for the server and for its clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(serving.ServerSettings):
    """Address, tokens and limits of one server. A session belongs to the token that opened it."""

    token_advice: ClassVar[str] = f"put one into {TOKEN_VARIABLE}"

    port: int = 8300
    limits: TableLimits = field(default_factory=TableLimits)
    drain_seconds: float = 30.0
    """How long a server that is stopped waits for the sessions that are open, at least 0."""
    dialects: Mapping[str, int] = field(default_factory=dict[str, int])
    """Another system's protocol (`dialects.listeners.DIALECTS`) to the first port of this machine
    where it is spoken, on loopback and without a token."""

    def __post_init__(self) -> None:
        problems = self.address_problems()
        if not self.drain_seconds >= 0:
            problems.append(f"drain_seconds must be at least 0, got {self.drain_seconds:g}")
        for dialect, port in self.dialects.items():
            if dialect not in DIALECTS:
                problems.append(f"no dialect {dialect!r}; there are {', '.join(DIALECTS)}")
            if not 1 <= port <= 65535:
                problems.append(f"the port of {dialect} must lie in [1, 65535], got {port}")
        if problems:
            raise ConfigError("; ".join(problems))
