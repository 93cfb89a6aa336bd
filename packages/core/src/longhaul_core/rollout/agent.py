"""The acting side of an episode: who answers, and how it is asked and understood."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from longhaul_core.actions import Parser
from longhaul_core.memory import Memory
from longhaul_core.policy import Shortenable
from longhaul_core.rollout.responder import Responder
from longhaul_core.rollout.session import EpisodeSession
from longhaul_core.types import Call

__all__ = ["Acting", "Agent"]


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
