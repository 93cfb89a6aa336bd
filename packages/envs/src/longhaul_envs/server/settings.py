"""Whom a server answers, and under which names, checked before anything starts.

The one decision to know: whoever is not on this machine needs a token. An address that other
machines reach is refused without one.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from longhaul_core.addresses import is_loopback
from longhaul_core.errors import ConfigError
from longhaul_envs.server.dialects.doors import DIALECTS
from longhaul_envs.server.table import TableLimits

__all__ = ["MIN_TOKEN_CHARACTERS", "TOKEN_VARIABLE", "ServerSettings"]

TOKEN_VARIABLE = "LONGHAUL_ENV_TOKEN"
"""Environment variable of the token, for the server and for its clients."""
MIN_TOKEN_CHARACTERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Address, tokens and limits of one server."""

    host: str = "127.0.0.1"
    port: int = 8300
    """0: any that is free."""
    tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name to token, which is required in the `Authorization: Bearer` header. A session belongs to
    the token that opened it. Empty: no token is required."""
    extra_hosts: tuple[str, ...] = ()
    """Names the server may be called by, besides its address and this machine's names."""
    limits: TableLimits = field(default_factory=TableLimits)
    drain_seconds: float = 30.0
    """How long a server that is stopped waits for the sessions that are open, at least 0."""
    dialects: Mapping[str, int] = field(default_factory=dict[str, int])
    """Another system's protocol (`dialects.doors.DIALECTS`) to the first port of this machine where
    it is spoken, on loopback and without a token."""

    def __post_init__(self) -> None:
        problems: list[str] = []
        if not 0 <= self.port <= 65535:
            problems.append(f"port must lie in [0, 65535], got {self.port}")
        if not self.drain_seconds >= 0:
            problems.append(f"drain_seconds must be at least 0, got {self.drain_seconds:g}")
        for dialect, port in self.dialects.items():
            if dialect not in DIALECTS:
                problems.append(f"no dialect {dialect!r}; there are {', '.join(DIALECTS)}")
            if not 1 <= port <= 65535:
                problems.append(f"the port of {dialect} must lie in [1, 65535], got {port}")
        for name, token in self.tokens.items():
            of = f"the token {name!r}" if name else "the token"
            if len(token) < MIN_TOKEN_CHARACTERS:
                problems.append(
                    f"{of} needs {MIN_TOKEN_CHARACTERS} characters or more, has {len(token)}"
                )
            if not (token.isascii() and token.isprintable() and " " not in token):
                problems.append(f"{of} must be printable ASCII without spaces: it goes in a header")
        if len(set(self.tokens.values())) < len(self.tokens):
            problems.append("two names have the same token; give each its own")
        if not self.tokens and not is_loopback(self.host):
            problems.append(
                f"host {self.host!r} can be reached from other machines, and there is no token; "
                f"put one into {TOKEN_VARIABLE}, or stay on 127.0.0.1"
            )
        if problems:
            raise ConfigError("; ".join(problems))

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """Host names a request may be addressed to, in lower case and without port."""
        own = {"127.0.0.1", "localhost", "::1", self.host, socket.gethostname()}
        return frozenset(name.lower() for name in (*own, *self.extra_hosts))
