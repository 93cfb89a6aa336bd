"""What a gateway allows, beside the rules of each episode."""

from dataclasses import dataclass

__all__ = ["GatewaySettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Limits of the HTTP side."""

    max_body_bytes: int = 32 * 1024 * 1024
    """Longest body of a request; a longer one is answered with 413. Pictures travel in it."""
    allowed_hosts: tuple[str, ...] = ()
    """Names besides the address itself and those of the loopback that a request's Host header may
    have: a page of a foreign site that resolves to this machine must not reach it."""
    max_kept_replies: int = 64
    """Replies of an episode that are kept for a client that repeats its request."""
    header_seconds: float = 30.0
    """How long a client may take for the headers of a request; its connection is closed then."""
    stop_seconds: float = 5.0
    """How long `stop` waits for connections to end before it closes them."""
