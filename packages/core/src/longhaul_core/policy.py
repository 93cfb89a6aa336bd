"""What an episode needs from a policy and from a renderer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from longhaul_core.types import Call, FinishReason, Message, ToolCall

__all__ = ["Completion", "Policy", "Prompt", "Renderer", "Sampling", "Shortenable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the policy is asked: the same prompt as messages and as tokens."""

    messages: tuple[Message, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortenable:
    """A prompt that can leave out remembered exchanges where the model would not take it whole."""

    compose: Callable[[int], tuple[Message, ...]]
    """The messages without this many of the oldest exchanges; more never makes them longer."""
    num_droppable: Callable[[], int]
    """How many exchanges can be left out, at least 0."""

    def changed(self, change: Callable[[tuple[Message, ...]], tuple[Message, ...]]) -> Self:
        """The same prompt with its messages changed, whatever is left out of them."""

        def compose(drop: int) -> tuple[Message, ...]:
            return change(self.compose(drop))

        return replace(self, compose=compose)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How one reply is drawn."""

    seed: int
    """Fixes the draw together with the prompt and the weights, where the policy draws by it."""
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
    """An `aborted` reply fails its episode: it is not what the policy would have written."""
    tool_calls: tuple[ToolCall, ...] = ()
    """What the reply asks for, where whoever samples it reads tool calls."""
    num_cached_tokens: int | None = None
    """See `Call`."""
    queue_seconds: float = 0.0
    """See `Call`."""


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

    A session calls `render` in threads, for several episodes at once.
    """

    def render(
        self,
        messages: Sequence[Message],
        *,
        earlier: Sequence[Call] = (),
        begins_reply: bool = True,
    ) -> tuple[int, ...]:
        """Tokens of the whole prompt, up to where the reply begins.

        Args:
            messages: The prompt. Pictures that the model does not read are left out.
            earlier: Calls of the episode by the same agent for the same purpose, oldest first, with
                their tokens. Where the messages go on from one's prompt and reply, the prompt
                should go on from the tokens of the latest such one, which the engine knows and
                the learner can read as one sequence; a reply made into tokens anew is often
                made into others.
            begins_reply: Whether the prompt ends with the run's reply prefix: that of an action
                does, a plan's or a summary's does not.
        """
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of sampled tokens, special tokens left out."""
        ...
