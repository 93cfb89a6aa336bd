"""The acting side of an episode: a policy, and how it is asked and understood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from longhaul_core.actions import Parser
from longhaul_core.errors import ConfigError
from longhaul_core.memory import Memory
from longhaul_core.policy import HostedPolicy, Policy, Renderer, Shortenable
from longhaul_core.types import Call, Tool

if TYPE_CHECKING:
    from longhaul_core.rollout.session import EpisodeSession

__all__ = ["Acting", "Agent", "Responder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Responder:
    """What answers prompts. Shared by many episodes."""

    policy: Policy | HostedPolicy
    renderer: Renderer
    temperature: float = 1.0
    """0 means greedy."""
    top_p: float = 1.0
    max_reply_tokens: int = 64
    """Longest reply of one call; the engine marks a reply that it cut."""
    tools: tuple[Tool, ...] = ()
    """Of the environment, where actions are calls of them: the chat template, or a hosted model, is
    given these in the prompts of actions. The renderer is a `ChatRenderer`, or is not asked."""

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ConfigError(f"temperature must not be negative, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p must lie in (0, 1], got {self.top_p}")
        if self.max_reply_tokens < 1:
            raise ConfigError(f"max_reply_tokens must be at least 1, got {self.max_reply_tokens}")


class Acting(Protocol):
    """How an agent arrives at a reply that an action is read from. Shared by many episodes."""

    async def act(self, session: EpisodeSession, prompt: Shortenable) -> Call:
        """The call that chooses the action, made by `session.complete` for the purpose `act`.

        It may make other calls before; all of them belong to the step. What `complete` raises is
        let pass.

        Args:
            session: Of the episode; its newest observation is what is acted on.
            prompt: As the memory composes it; `changed` adds to it and keeps it shortenable.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent(Responder):
    """Everything that turns an observation into an action. Shared by many episodes."""

    parser: Parser
    build_memory: Callable[[], Memory]
    """Makes a fresh memory for each episode."""
    acting: Acting | None = None
    """How the action is arrived at; None is by one call."""
