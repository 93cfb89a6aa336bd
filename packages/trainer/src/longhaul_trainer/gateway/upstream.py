"""A model that somebody else serves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from longhaul_trainer.gateway.exchange import ChatReply, ChatRequest, Delta

__all__ = ["Upstream", "UpstreamAnswer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamAnswer:
    """What an upstream replied, and what it charged."""

    reply: ChatReply
    cost_usd: float | None
    """US dollars; None where nobody knows."""
    queue_seconds: float = 0.0
    """Seconds before the try that succeeded: for a free place, and for tries that failed."""


@runtime_checkable
class Upstream(Protocol):
    """An endpoint of another server, for a judge or a teacher; its calls are never trained."""

    async def answer(
        self, request: ChatRequest, *, on_delta: Callable[[Delta], None] | None
    ) -> UpstreamAnswer:
        """The endpoint's reply. Cancelled, it gives its request up.

        Args:
            request: As the client sent it; its `model` is the name the run gives the upstream.
            on_delta: Called on the event loop with each piece, where the client asked for a stream.

        Raises:
            ApiError: `upstream`, or what the endpoint refused.
        """
        ...
