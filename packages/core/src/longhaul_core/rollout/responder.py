"""What answers prompts: a policy, and how it samples."""

from dataclasses import dataclass

from longhaul_core.errors import ConfigError
from longhaul_core.policy import HostedPolicy, Policy, Renderer
from longhaul_core.types import Tool

__all__ = ["Responder"]


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
