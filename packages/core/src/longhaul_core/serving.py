"""What every HTTP server of this project shares: where it listens, and whom it lets in.

Three checks turn away three attackers: the Host header (a web page whose name was rebound to
127.0.0.1), the Origin header (a web page that calls the server by its true name), and the token
(anyone else on the network). The token is read from a header alone: addresses end up in logs and
browser histories. Whoever is not on this machine needs a token: an address that other machines
reach is refused without one.
"""

import hmac
import socket
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from longhaul_core.addresses import host_in, is_address, is_loopback
from longhaul_core.errors import LonghaulError, MachineError

__all__ = [
    "MIN_TOKEN_CHARACTERS",
    "Guard",
    "NotAdmitted",
    "ServerSettings",
    "address_of",
    "bound_socket",
]

MIN_TOKEN_CHARACTERS = 16
_MAX_HOSTS = 64
"""Host headers whose check is remembered."""
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_BACKLOG = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Address, tokens and names of one server."""

    token_advice: ClassVar[str] = "set one"
    """How a user gives a token."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: any that is free."""
    tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name to token, which is required in the `Authorization: Bearer` header. Empty: no token is
    required."""
    extra_hosts: tuple[str, ...] = ()
    """Names the server may be called by, besides its address and this machine's names."""
    header_seconds: float = 30.0
    """How long a client may take for the headers of a request; its connection is closed then."""

    def address_problems(self) -> list[str]:
        """Everything that is wrong with address and tokens, for people; empty if nothing."""
        problems: list[str] = []
        if not 0 <= self.port <= 65535:
            problems.append(f"port must lie in [0, 65535], got {self.port}")
        for name, token in self.tokens.items():
            of = f"the token {name!r}" if name else "the token"
            if len(token) < MIN_TOKEN_CHARACTERS:
                problems.append(
                    f"{of} needs {MIN_TOKEN_CHARACTERS} characters or more, has {len(token)}"
                )
            if not (token.isascii() and token.isprintable() and token == token.strip()):
                problems.append(f"{of} must be printable ASCII, as it goes in a header")
        if len(set(self.tokens.values())) < len(self.tokens):
            problems.append("two names have the same token; give each its own")
        if not self.tokens and not is_loopback(self.host):
            problems.append(
                f"host {self.host!r} can be reached from other machines, and there is no token; "
                f"{self.token_advice}, or stay on 127.0.0.1"
            )
        return problems

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """Host names a request may be addressed to, in lower case and without port."""
        own = {"127.0.0.1", "localhost", "::1", self.host, socket.gethostname()}
        return frozenset(name.lower() for name in (*own, *self.extra_hosts))


class NotAdmitted(LonghaulError):
    """A request that is answered with an error before any route sees it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        """400, 401 or 403 of HTTP."""

    @property
    def headers(self) -> dict[str, str]:
        """Of the answer."""
        return {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}


class Guard:
    """Checks of a request's headers."""

    def __init__(
        self,
        hosts: Iterable[str],
        *,
        pages: Literal["any", "own", "none"],
        tokens: Mapping[str, str] | None = None,
        open_path: str = "",
    ) -> None:
        """A guard of one server.

        Args:
            hosts: Names that requests may be addressed to, in lower case. An IP address is always
                let in: a name can be rebound, an address cannot.
            pages: Web pages that may call: `own` are those of `hosts` and of the address that a
                request is sent to, and where a request may
                change something, those of the very host and port that it is addressed to.
            tokens: Name to token; empty for none.
            open_path: Needs no token.
        """
        self._hosts = frozenset(hosts)
        self._pages = pages
        self._tokens = {name: token.encode() for name, token in (tokens or {}).items()}
        self._open_path = open_path
        self._refused_host = lru_cache(_MAX_HOSTS)(self._host_refusal)

    def admit(self, scope: MutableMapping[str, Any]) -> str:
        """Name of the token that an ASGI request carries; empty where none is needed.

        Raises:
            NotAdmitted: The request is answered with its status.
        """
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = headers.get(b"host", b"")
        refusal = self._refused_host(host)
        if refusal:
            raise NotAdmitted(400, refusal)
        origin = headers.get(b"origin")
        if origin is not None and not self._may_call(origin.decode("latin-1"), host, scope):
            raise NotAdmitted(
                403, f"pages of {origin.decode('latin-1')!r} may not call this server"
            )
        if not self._tokens or scope["path"] == self._open_path:
            return ""
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        fitting = [  # all are compared, so that time says nothing
            name for name, token in self._tokens.items() if hmac.compare_digest(given, token)
        ]
        if not fitting or scheme.lower() != b"bearer":  # schemes have no case (RFC 9110, 11.1)
            raise NotAdmitted(401, "give the token as the header 'Authorization: Bearer …'")
        return fitting[0]

    def _host_refusal(self, header: bytes) -> str:
        host = host_in(header.decode("latin-1"))
        if host in self._hosts or is_address(host):
            return ""
        return (
            f"host {host!r} is not a name of this server; use its address, or allow the name "
            "(--allowed-host, or allowed_hosts in a file)"
        )

    def _may_call(self, origin: str, host: bytes, scope: MutableMapping[str, Any]) -> bool:
        if self._pages != "own":
            return self._pages == "any"
        own, name = host_in(origin), host_in(host.decode("latin-1"))
        if own not in self._hosts and not (own == name and is_address(own)):
            return False
        may_change = scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS
        return not may_change or urlsplit(origin).netloc.lower() == host.decode("latin-1").lower()


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; clients may connect from here on.

    Args:
        host: A name or an IP address of this machine.
        port: 0 takes any that is free.

    Raises:
        MachineError: The address cannot be listened on.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise MachineError(f"host {host!r} has no address here: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise MachineError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another port (--port), or "
            "stop the program that has it"
        ) from error
    return listener


def address_of(listener: socket.socket) -> str:
    """`http://HOST:PORT` of a socket that listens."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
