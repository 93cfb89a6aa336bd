"""Conversations for imitation: lines of `messages` in OpenAI's JSON, the last one the reply.

The one decision to know: a line is a *call*, its exact prompt and its reply, not an episode. With
a memory the prompts of an episode are no one conversation. Where the run's renderer began each
reply (`prompt.reply_prefix`), the assistant's message begins so too, and `reply_prefix` says how
much of it the model did not write: what is imitated is the prompt that was used.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import Field

from longhaul_core.exchange.chat import (
    ChatMessage,
    ChatTool,
    GrowingSteps,
    Lenient,
    chat_json,
    replies_as_steps,
    reply_json,
    strays,
    tool_json,
)
from longhaul_core.exchange.episodes import ImportedEpisode, prompt_id, with_return
from longhaul_core.exchange.facts import CallFacts, EpisodeFacts
from longhaul_core.exchange.reading import Place, Value, validated
from longhaul_core.exchange.stored import StoredEpisode
from longhaul_core.types import Call, Message, Tool

__all__ = ["read_conversations", "write_conversations"]


class _Metadata(EpisodeFacts):
    call: CallFacts | None = None


class _Line(Lenient):
    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[ChatTool] | None = None
    reply_prefix: str = ""
    metadata: _Metadata | None = None


def read_conversations(values: Iterable[Value]) -> Iterator[ImportedEpisode]:
    """Lines of ours that follow each other become their episode again, others an episode each."""
    lines: list[tuple[Place, _Line]] = []
    for value in values:
        line = validated(_Line, value)
        if lines and _episode_id(line) != _episode_id(lines[0][1]):
            yield _joined(lines)
            lines = []
        if _episode_id(line) is None:
            yield _alone(value.place, line)
        else:
            lines.append((value.place, line))
    if lines:
        yield _joined(lines)


def _episode_id(line: _Line) -> str | None:
    facts = line.metadata
    return None if facts is None or facts.call is None else facts.episode_id


def _read(place: Place, line: _Line) -> tuple[tuple[Message, ...], tuple[Tool, ...]]:
    with place.errors():
        messages = tuple(message.of_ours() for message in line.messages)
        return messages, tuple(tool.of_ours() for tool in line.tools or ())


def _unread(line: _Line) -> frozenset[str]:
    return frozenset(name for name in strays(line) if not name.startswith("metadata."))


def _alone(place: Place, line: _Line) -> ImportedEpisode:
    """A whole conversation: each of the assistant's messages is a reply."""
    messages, tools = _read(place, line)
    steps, final = replies_as_steps(messages, is_step=lambda _: True, tools=tools)
    if not steps:
        raise place.error(
            f"{place.words[1]} messages: there is none of the assistant, so nothing was replied"
        )
    facts = line.metadata or _Metadata()
    if facts.episode_return is not None:
        steps = with_return(steps, facts.episode_return)
    if final and not facts.final_observation:
        facts = facts.model_copy(update={"final_observation": final})
    said = "\n".join(message.text for message in steps[0].calls[0].messages)
    return facts.imported(place, steps=steps, task_id=prompt_id(said), left_out=_unread(line))


def _joined(lines: list[tuple[Place, _Line]]) -> ImportedEpisode:
    """An episode that was exported from a store: a line a call, with what it says of its step."""
    place, first = lines[0]
    steps = GrowingSteps()
    for where, line in lines:
        assert line.metadata is not None  # `_episode_id` asked
        facts = line.metadata.call or CallFacts()
        call = _call(where, line, facts)
        steps.add(
            (call,),
            step_index=facts.step_index,
            observation=facts.observation or "",
            action=call.reply if facts.action is None else facts.action,
            action_valid=facts.action_valid,
            reward=facts.reward or 0.0,
        )
    assert first.metadata is not None
    unread = frozenset(name for _, line in lines for name in _unread(line))
    return first.metadata.imported(
        place, steps=tuple(steps.made), task_id=str(first.metadata.episode_id), left_out=unread
    )


def _call(place: Place, line: _Line, facts: CallFacts) -> Call:
    messages, tools = _read(place, line)
    *prompt, reply = messages
    if reply.role != "assistant":
        raise place.error(
            f"{place.words[1]} messages: the last one is of {reply.role!r}, and no reply"
        )
    if not reply.text.startswith(line.reply_prefix):
        raise place.error(
            f"{place.words[1]} reply_prefix: the reply does not begin with it, got "
            f"{line.reply_prefix!r}"
        )
    return Call(
        messages=tuple(prompt),
        reply=reply.text.removeprefix(line.reply_prefix),
        sampled=None,
        trained=False,
        tools=tools,
        tool_calls=reply.tool_calls,
        purpose=facts.purpose,
        agent=facts.agent,
        model=facts.model,
        finish_reason=facts.finish_reason,
        conversation=facts.conversation,
        continuation=facts.continuation,
    )


def write_conversations(episode: StoredEpisode) -> Iterator[dict[str, Any]]:
    """A line for each call of the model."""
    of_episode = EpisodeFacts.of(episode)
    for step, call, reward in episode.paid_calls():
        prefix = episode.prefix(call)
        line: dict[str, Any] = {
            "messages": [
                *(chat_json(message, media=episode.media) for message in call.messages),
                reply_json(prefix + (call.reply or ""), call.tool_calls),
            ]
        }
        if call.tools:
            line["tools"] = [tool_json(tool) for tool in call.tools]
        if prefix:
            line["reply_prefix"] = prefix
        line["metadata"] = of_episode | {"call": CallFacts.of(step, call, reward=reward)}
        yield line
