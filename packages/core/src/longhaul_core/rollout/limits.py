"""What bounds one episode.

The limits on steps and tokens are ours and *truncate*: the episode stays in every baseline.
The others catch something broken and *fail* the episode: it is recorded with its cause
and never scored.
"""

import math
from dataclasses import dataclass

from longhaul_core.errors import ConfigError

__all__ = ["EpisodeLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLimits:
    """Limits and deadlines of one episode; refused as a whole if one is out of range."""

    horizon: int
    """Most steps, at least 1."""
    max_prompt_tokens: int
    """Longest prompt of a call, at least 1. The memory shortens a longer one."""
    max_memory_tokens: int | None = None
    """Longest prompt of an action, or of a plan for it, that remembered exchanges stand in: of a
    longer one the oldest are left out, and all of them where the rest alone is as long. None for
    `max_prompt_tokens`."""
    max_episode_tokens: int | None = None
    """Most tokens read and written by all calls of the episode together; None for no such limit. A
    call begins only if its prompt and a longest reply fit, so no reply is cut by it."""
    max_observation_characters: int = 1_000_000
    """Longest observation, its admissible actions and its anchor state included, at least 1. A
    longer one fails its episode: making it into tokens takes a second for each million."""
    reset_deadline_seconds: float = 60.0
    step_deadline_seconds: float = 30.0
    policy_deadline_seconds: float = 300.0
    """For the reply of one call, queueing in the engine included."""
    close_deadline_seconds: float = 10.0
    """Missing it is logged; an episode that has ended does not fail any more."""

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be at least 1, got {value}"
            for name, value in (
                ("horizon", self.horizon),
                ("max_prompt_tokens", self.max_prompt_tokens),
                ("max_memory_tokens", self.max_memory_tokens),
                ("max_episode_tokens", self.max_episode_tokens),
                ("max_observation_characters", self.max_observation_characters),
            )
            if value is not None and value < 1
        ]
        problems += [
            f"{name} must be finite and greater than 0, got {value}"
            for name, value in (
                ("reset_deadline_seconds", self.reset_deadline_seconds),
                ("step_deadline_seconds", self.step_deadline_seconds),
                ("policy_deadline_seconds", self.policy_deadline_seconds),
                ("close_deadline_seconds", self.close_deadline_seconds),
            )
            if not (math.isfinite(value) and value > 0)
        ]
        if problems:
            raise ConfigError("; ".join(problems))
