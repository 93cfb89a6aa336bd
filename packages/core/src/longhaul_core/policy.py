"""What the episode loop needs from a policy and from a renderer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from longhaul_core.types import FinishReason, Message, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the policy is asked: the same prompt as messages and as tokens."""

    messages: tuple[Message, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How one reply is drawn."""

    seed: int
    """Fixes the draw together with the prompt and the weights."""
    temperature: float = 1.0
    """0 means greedy."""
    top_p: float = 1.0
    max_tokens: int = 64
    """Longest reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sampled reply, with what training will need to know about it."""

    text: str
    action_tokens: tuple[int, ...]
    behavior_logprobs: tuple[float, ...]
    policy_version: int
    finish_reason: FinishReason = FinishReason.STOP
    queue_seconds: float = 0.0


class Policy(Protocol):
    """Samples replies. Shared by every episode in flight, so it must be reentrant."""

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        """Sample one reply.

        Args:
            prompt: Messages and tokens; an engine reads the tokens.
            sampling: Seed, temperature and limits.
            episode_id: The same for all steps of an episode, for cache-aware routing.
        """
        ...


class Renderer(Protocol):
    """Turns messages into the tokens an engine reads.

    The loop calls `render` in threads, for several episodes at once.
    """

    def render(self, messages: Sequence[Message], *, after: Step | None = None) -> tuple[int, ...]:
        """Tokens of the whole prompt, up to where the reply begins.

        Args:
            messages: The prompt.
            after: The step before, if there is one. Where the messages go on from its prompt and
                its reply, the prompt should go on from its tokens, which the engine knows and
                the learner can read as one sequence; a reply made into tokens anew is often
                made into others.
        """
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of sampled tokens, special tokens left out."""
        ...
