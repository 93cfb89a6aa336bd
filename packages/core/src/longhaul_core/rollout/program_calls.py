"""What a program's call takes beyond a loop's: tokens of a chat, its sampling, its reply read."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from longhaul_core.errors import RendererFailure, attributed_to
from longhaul_core.policy import ChatRenderer, Completion, Prompt, ReadReply, Renderer, offers
from longhaul_core.rollout.conversations import ChatPrompt, ConversationTree, Turn
from longhaul_core.rollout.packed_calls import LARGEST_TOKEN
from longhaul_core.rollout.responder import Responder
from longhaul_core.types import FinishReason, Message, Sampling

__all__ = [
    "MOST_INLINE_CHARACTERS",
    "as_message",
    "drawn",
    "finish_reason",
    "own_sampling",
    "prompt_of",
    "read_reply",
    "require_tokens",
]

MOST_INLINE_CHARACTERS = 10_000
"""What is made into tokens on the event loop, more in a thread: in less than a millisecond by
fastokens, and in about five where a tokenizer stays with transformers."""

T = TypeVar("T")


def require_tokens(prompt: tuple[int, ...]) -> None:
    """Refuse a prompt that no engine reads.

    Raises:
        ValueError: It is empty, or has a token that is out of range.
    """
    if not prompt:
        raise ValueError("a prompt needs at least one token")
    wrong = next((token for token in (min(prompt), max(prompt)) if not _in_range(token)), None)
    if wrong is not None:
        raise ValueError(f"a token must lie in [0, {LARGEST_TOKEN}], got {wrong}")


def _in_range(token: int) -> bool:
    return 0 <= token <= LARGEST_TOKEN


async def prompt_of(turn: Turn, renderer: Renderer, *, tree: ConversationTree) -> Prompt:
    """A program's prompt with its tokens: those of the call that it goes on from, and the new ones.

    Where the model's template would not have that call's tokens stand, the turn forks and the
    prompt is rendered whole.

    Raises:
        RendererFailure: The messages cannot be rendered.
        TypeError: The renderer is no `ChatRenderer`.
    """
    prompt = turn.prompt
    if not isinstance(prompt, ChatPrompt):
        return Prompt(messages=(), tokens=prompt)
    if not offers(renderer, ChatRenderer):
        raise TypeError(f"a {type(renderer).__name__} renders no conversations of programs")
    tokens = None
    if turn.base is not None:
        new = partial(
            renderer.added,
            turn.base.without_prompt(),
            turn.new_messages,
            tools=prompt.callable_tools,
        )
        added = await _inline_or_not(new, num_characters=_length(turn.new_messages))
        if added is None:
            tree.fork(turn)
        else:
            tokens = turn.base.followed_by(added)
    if tokens is None:
        whole = partial(renderer.render_chat, prompt.messages, tools=prompt.tools)
        tools = sum(len(tool.description) + len(tool.parameters) for tool in prompt.tools)
        tokens = await _inline_or_not(whole, num_characters=_length(prompt.messages) + tools)
    return Prompt(messages=prompt.messages, tokens=tokens)


def own_sampling(responder: Responder, *, seed: int) -> Sampling:
    """How a reply is drawn where a program says nothing."""
    return Sampling(
        seed=seed,
        temperature=responder.temperature,
        top_p=responder.top_p,
        max_tokens=responder.max_reply_tokens,
    )


def drawn(sampling: Sampling | None, own: Sampling) -> Sampling:
    """How a reply is drawn: as asked for, with a seed of our own.

    Raises:
        ValueError: The longest reply is out of range.
    """
    chosen = own if sampling is None else replace(sampling, seed=own.seed)
    if not 1 <= chosen.max_tokens <= own.max_tokens:
        raise ValueError(
            f"sampling.max_tokens must lie in [1, {own.max_tokens}], got {chosen.max_tokens}"
        )
    return chosen


def read_reply(
    completion: Completion,
    *,
    prompt: ChatPrompt | tuple[int, ...],
    renderer: Renderer,
    sampling: Sampling,
) -> ReadReply:
    """What a program reads of a reply, which ends before a stop word.

    Args:
        completion: The reply.
        prompt: What it replies to.
        renderer: Made the prompt's tokens.
        sampling: How it was drawn, by a seed that no other call of the episode has.

    Raises:
        RendererFailure: The renderer cannot read it.
    """
    if not isinstance(prompt, ChatPrompt) or not offers(renderer, ChatRenderer):
        return ReadReply(text=completion.text, tool_calls=completion.tool_calls)
    with attributed_to(RendererFailure, "renderer.reader"):
        reader = renderer.reader(
            tools=prompt.callable_tools,
            salt=str(sampling.seed),
            after_result=prompt.messages[-1].role == "tool",
        )
        reader.feed(completion.action_tokens)
        _, reply = reader.end()
    ends = [place for word in sampling.stop if (place := reply.text.find(word)) >= 0]
    return replace(reply, text=reply.text[: min(ends)]) if ends else reply


def finish_reason(completion: Completion, reply: ReadReply) -> FinishReason:
    """Why the model stopped; one that asks for tools stops for them."""
    if reply.tool_calls and completion.finish_reason is FinishReason.STOP:
        return FinishReason.TOOL_CALLS
    return completion.finish_reason


def as_message(reply: ReadReply, *, written: str) -> Message:
    """The message that a program sends back of a reply.

    Args:
        reply: As the program reads it.
        written: All that the model wrote; kept in memory once, where it is the same text.
    """
    return Message(
        role="assistant",
        content=written if reply.text == written else reply.text,
        tool_calls=reply.tool_calls,
        reasoning=reply.reasoning,
    )


def _length(messages: Sequence[Message]) -> int:
    """In characters, of all that a template may write; a picture counts as more than is inline."""
    return sum(
        len(message.reasoning)
        + sum(
            len(part) if isinstance(part, str) else MOST_INLINE_CHARACTERS + 1
            for part in message.parts
        )
        + sum(len(call.arguments) for call in message.tool_calls)
        for message in messages
    )


async def _inline_or_not(render: Callable[[], T], *, num_characters: int) -> T:
    """What `render` returns: called here if it is quick, else in a thread."""
    with attributed_to(RendererFailure, "renderer"):
        if num_characters <= MOST_INLINE_CHARACTERS:
            return render()
        return await asyncio.to_thread(render)
