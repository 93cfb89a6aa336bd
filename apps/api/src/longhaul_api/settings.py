"""How the API is served, checked before a socket is opened.

The one decision to know: whoever is not on this machine needs a token. An address that
other machines reach is refused without one.
"""

import socket
from dataclasses import dataclass

from longhaul_core.addresses import is_loopback
from longhaul_core.errors import ConfigError

__all__ = ["MIN_TOKEN_LENGTH", "ApiSettings"]

MIN_TOKEN_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """Address, token and names of one server."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    """Required in the `Authorization: Bearer` header; None: no token is required."""
    extra_hosts: tuple[str, ...] = ()
    """Names the server may be called by, besides its address and this machine's names."""

    sql_store: str | None = None
    """Address that typed SQL goes to (`sql_box.stores`); None: `/sql` answers 503 and says why."""

    def __post_init__(self) -> None:
        problems: list[str] = []
        if not 0 <= self.port <= 65535:
            problems.append(f"port must lie in [0, 65535], got {self.port}")
        if self.token is not None and len(self.token) < MIN_TOKEN_LENGTH:
            problems.append(
                f"a token needs {MIN_TOKEN_LENGTH} characters or more, got {len(self.token)}"
            )
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            problems.append("the token must be of printable ASCII characters: it goes in a header")
        if self.token is None and not is_loopback(self.host):
            problems.append(
                f"host {self.host!r} can be reached from other machines, and there is no token; "
                "give one (--token, or LONGHAUL_API_TOKEN) or stay on 127.0.0.1"
            )
        if problems:
            raise ConfigError("; ".join(problems))

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """Host names a request may be addressed to, in lower case and without port."""
        own = {"127.0.0.1", "localhost", "::1", self.host, socket.gethostname()}
        return frozenset(name.lower() for name in (*own, *self.extra_hosts))
