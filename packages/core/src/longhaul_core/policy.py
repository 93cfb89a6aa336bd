"""What an episode needs from a policy and from a renderer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol, Self, TypeGuard, TypeVar, runtime_checkable

from longhaul_core.types import Call, FinishReason, Message, Sampling, Tool, ToolCall

__all__ = [
    "PROMPT_END",
    "ChatRenderer",
    "Completion",
    "HostedPolicy",
    "HostedReply",
    "NoTokens",
    "Policy",
    "Prompt",
    "ReadReply",
    "Renderer",
    "ReplyPart",
    "ReplyReader",
    "Sampling",
    "Shortenable",
    "StreamingPolicy",
    "offers",
    "with_thoughts",
]

PROMPT_END = 256
"""Tokens: more than a template writes between a conversation's last word and the reply."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the policy is asked: the same prompt as messages and as tokens."""

    messages: tuple[Message, ...]
    tokens: tuple[int, ...]


def _nothing(drop: int) -> tuple[int, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortenable:
    """A prompt that can leave out remembered exchanges where the model would not take it whole."""

    compose: Callable[[int], tuple[Message, ...]]
    """The messages without this many of the oldest exchanges; more never makes them longer."""
    num_droppable: Callable[[], int]
    """How many exchanges can be left out, at least 0."""
    max_tokens: int | None = None
    """Longest prompt that an exchange may stand in; None for as long as the model's may be."""
    recalled: Callable[[int], tuple[int, ...]] = _nothing
    """See `Call.recalled_steps`, of the prompt without this many exchanges."""

    def changed(self, change: Callable[[tuple[Message, ...]], tuple[Message, ...]]) -> Self:
        """The same prompt with its messages changed, whatever is left out of them."""

        def compose(drop: int) -> tuple[Message, ...]:
            return change(self.compose(drop))

        return replace(self, compose=compose)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sampled reply, with what training will need to know about it."""

    text: str
    action_tokens: tuple[int, ...]
    behavior_logprobs: tuple[float, ...] | None
    """None for a reply that was not sampled, and is imitated."""
    policy_version: int
    finish_reason: FinishReason = FinishReason.STOP
    """An `aborted` reply fails its episode: it is not what the policy would have written."""
    tool_calls: tuple[ToolCall, ...] = ()
    """What the reply asks for, where whoever samples it reads tool calls."""
    num_cached_tokens: int | None = None
    """See `Call`."""
    queue_seconds: float = 0.0
    """See `Call`."""


@runtime_checkable
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


@runtime_checkable
class StreamingPolicy(Policy, Protocol):
    """A policy that hands on a reply while it is written."""

    async def stream(
        self,
        prompt: Prompt,
        sampling: Sampling,
        *,
        episode_id: str,
        on_tokens: Callable[[Sequence[int]], None],
    ) -> Completion:
        """Sample one reply, as `act` does. Cancelled, it ends the request in the engine.

        Args:
            prompt: See `act`.
            sampling: See `act`.
            episode_id: See `act`.
            on_tokens: Called on the event loop with each new tokens, as the engine writes them;
                together they are the tokens of the completion.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyPart:
    """A piece of a reply, as a program reads it; parts joined in order are the whole."""

    text: str = ""
    reasoning: str = ""
    """Thoughts, apart from the text."""
    tool_place: int | None = None
    """0-based place of the tool call that the rest is of; None for a part without one."""
    tool_id: str = ""
    """With the first part of a tool call, as its name."""
    tool_name: str = ""
    tool_arguments: str = ""
    """A piece of the JSON text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReply:
    """What a reply's tokens mean to a program."""

    text: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


def with_thoughts(read: ReadReply) -> str:
    """A reply as one text, its thoughts between tags: what a model that we sample writes."""
    if not read.reasoning:
        return read.text
    return f"<think>\n{read.reasoning.strip()}\n</think>\n\n{read.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedReply:
    """A reply of a model whose tokens nobody here knows."""

    read: ReadReply
    model: str
    """What the run calls it."""
    finish_reason: FinishReason = FinishReason.STOP
    cost_usd: float | None = None
    """US dollars; None where nobody knows."""
    queue_seconds: float = 0.0
    """See `Call`."""


@runtime_checkable
class HostedPolicy(Protocol):
    """A model that another server hosts: it reads messages, and its calls are never trained."""

    async def reply(
        self, messages: Sequence[Message], sampling: Sampling, *, tools: Sequence[Tool] = ()
    ) -> HostedReply:
        """Have it reply once.

        Args:
            messages: The prompt.
            sampling: Temperature, `top_p` and the longest reply; its seed is not read.
            tools: What the reply may ask for.
        """
        ...


class NoTokens:
    """Stands where a responder has its renderer: a hosted model reads messages. A `Renderer`."""

    def render(
        self,
        messages: Sequence[Message],
        *,
        earlier: Sequence[Call] = (),
        begins_reply: bool = True,
    ) -> tuple[int, ...]:
        """Nothing.

        Raises:
            TypeError: Always: nobody here knows the tokens.
        """
        raise TypeError("nobody here knows the tokens of a hosted model, or of a person")

    def decode(self, tokens: Sequence[int]) -> str:
        """As `render`."""
        raise TypeError("nobody here knows the tokens of a hosted model, or of a person")


class ReplyReader(Protocol):
    """Reads one reply, token by token."""

    def feed(self, tokens: Sequence[int]) -> Sequence[ReplyPart]:
        """What can be told of the reply now that these tokens were written."""
        ...

    def end(self) -> tuple[Sequence[ReplyPart], ReadReply]:
        """The last parts, and the whole reply; no token comes after."""
        ...


@runtime_checkable
class ChatRenderer(Renderer, Protocol):
    """A renderer for conversations of programs: tools, and prompts that go on from a call."""

    def render_chat(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] = ()
    ) -> tuple[int, ...]:
        """Tokens of the whole prompt, made from nothing, up to where the reply begins.

        Raises:
            RendererFailure: The model's template cannot write these messages.
        """
        ...

    def added(
        self, call: Call, messages: Sequence[Message], *, tools: Sequence[Tool] = ()
    ) -> tuple[int, ...] | None:
        """What a prompt that goes on from a call has after the call's own tokens.

        Nothing of the call is tokenised again, so this costs what the new messages cost.

        Args:
            call: With the tokens of its reply, and at least the last `PROMPT_END` of its prompt;
                the tools were the same.
            messages: What came after its reply, at least one.
            tools: What the reply may ask for.

        Returns:
            The tokens, the reply's end first where the reply has none; or None where the template
            would not have the call's prompt and reply stand as they were before these messages.
        """
        ...

    def token_bytes(self, tokens: Sequence[int]) -> tuple[bytes, ...]:
        """What each token stands for: a part of a text in UTF-8, or a special token's name.

        A character may have several tokens, so that one alone may be no text.
        """
        ...

    def reader(
        self, *, tools: Sequence[Tool] = (), salt: str = "", after_result: bool = False
    ) -> ReplyReader:
        """Reads a reply to a prompt.

        Args:
            tools: What the reply may ask for.
            salt: Names the reply within its episode. The ids of its tool calls follow from it, so
                that two replies with the same words ask by other ids.
            after_result: Whether the prompt's last message is a tool's result: some models begin
                no thought then.
        """
        ...


def offers(thing: object, protocol: type[T]) -> TypeGuard[T]:
    """Whether a thing's class has the methods of a protocol.

    `isinstance` says the same, and until Python 3.12 takes 20 µs each time.

    Args:
        thing: A policy or a renderer.
        protocol: Of methods alone, and checkable at run time.
    """
    return _class_offers(type(thing), protocol)


@cache
def _class_offers(of: type, protocol: type) -> bool:
    return issubclass(of, protocol)
