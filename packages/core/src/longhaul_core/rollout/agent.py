"""The acting side of an episode: a policy, and how it is asked and understood."""

from collections.abc import Callable
from dataclasses import dataclass

from longhaul_core.actions import Parser
from longhaul_core.errors import ConfigError
from longhaul_core.memory import Memory
from longhaul_core.policy import Policy, Renderer

__all__ = ["Agent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """Everything that turns an observation into an action. Shared by many episodes."""

    policy: Policy
    renderer: Renderer
    parser: Parser
    build_memory: Callable[[], Memory]
    """Makes a fresh memory for each episode."""
    temperature: float = 1.0
    """0 means greedy."""
    top_p: float = 1.0
    max_reply_tokens: int = 64
    """Longest reply; the engine marks a reply that it cut."""

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ConfigError(f"temperature must not be negative, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p must lie in (0, 1], got {self.top_p}")
        if self.max_reply_tokens < 1:
            raise ConfigError(f"max_reply_tokens must be at least 1, got {self.max_reply_tokens}")
