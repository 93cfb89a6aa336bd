"""However a reply is cut into pieces, a stream of any dialect has all of it, and nothing else."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.policy import ReplyPart
from longhaul_core.types import FinishReason
from longhaul_trainer.gateway.dialects.anthropic_messages import AnthropicMessages
from longhaul_trainer.gateway.dialects.google_generate import GoogleGenerate
from longhaul_trainer.gateway.dialects.openai_chat import OpenAIChat
from longhaul_trainer.gateway.dialects.openai_completions import OpenAICompletions
from longhaul_trainer.gateway.dialects.openai_responses import OpenAIResponses
from longhaul_trainer.gateway.exchange import ChatReply, Choice, Delta, Dialect, Usage
from reading_events import read_events
from scripted_gateway import choice_of

Read = tuple[str, str, list[tuple[str, object]]]
"""Reasoning, text, and name and arguments of each call."""

arguments = st.dictionaries(st.text(max_size=5), st.text(max_size=10) | st.integers()).map(
    lambda value: json.dumps(value, ensure_ascii=False)
)


@st.composite
def pieces_of_a_reply(draw: st.DrawFn) -> list[ReplyPart]:
    """Thoughts, text and calls, each cut anywhere; a piece may be empty."""

    def cut(text: str) -> Iterator[str]:
        places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
        yield from (
            text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)
        )

    parts = [ReplyPart(reasoning=piece) for piece in cut(draw(st.text(max_size=20)))]
    parts += [ReplyPart(text=piece) for piece in cut(draw(st.text(max_size=20)))]
    for place in range(draw(st.integers(0, 3))):
        for count, piece in enumerate(cut(draw(arguments))):
            first = {"tool_id": f"call_{place}", "tool_name": "f"} if count == 0 else {}
            parts.append(ReplyPart(tool_place=place, tool_arguments=piece, **first))
    return parts


def events_of(
    dialect: Dialect, body: Mapping[str, object], choices: Sequence[Sequence[ReplyPart]]
) -> list[Any]:
    """What a stream writes of replies whose pieces come in turn, as JSON."""
    request = dialect.read(
        body, path={"model": "m", "method": "streamGenerateContent", "alt": "sse"}
    )
    stream = dialect.stream(request)
    written = stream.begin(id="1", created=1)
    for place in range(max(len(parts) for parts in choices)):
        for choice, parts in enumerate(choices):
            if place < len(parts):
                written += stream.delta(Delta(choice=choice, part=parts[place]))
        written += stream.keep_alive()
    written += stream.end(reply_of([choice_of(parts) for parts in choices]))
    return [json.loads(event.data) for event in read_events(written) if event.data != "[DONE]"]


def reply_of(choices: Sequence[Choice]) -> ChatReply:
    usage = Usage(prompt_tokens=1, reply_tokens=1)
    return ChatReply(id="1", created=1, model="m", choices=choices, usage=usage)


def of_chat(events: Sequence[Any], choice: int) -> Read:
    mine = [event["choices"][0] for event in events]
    deltas = [one["delta"] for one in mine if one["index"] == choice]
    calls: dict[int, list[str]] = {}
    names: list[str] = []
    for call in (call for delta in deltas for call in delta.get("tool_calls", ())):
        if "id" in call:
            assert call["id"] == f"call_{call['index']}"
            names.append(call["function"]["name"])
        calls.setdefault(call["index"], []).append(call["function"]["arguments"])
    return (
        "".join(delta.get("reasoning_content", "") for delta in deltas),
        "".join(delta.get("content") or "" for delta in deltas),
        [(name, json.loads("".join(calls[place]))) for place, name in enumerate(names)],
    )


def of_completions(events: Sequence[Any], choice: int) -> Read:
    mine = [event["choices"][0] for event in events]
    return "", "".join(one["text"] for one in mine if one["index"] == choice), []


def of_responses(events: Sequence[Any], choice: int) -> Read:
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    deltas: dict[int, list[str]] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            deltas.setdefault(event["output_index"], []).append(event["delta"])
    reasoning = text = ""
    calls: list[tuple[str, object]] = []
    for place, item in enumerate(events[-1]["response"]["output"]):
        whole = "".join(deltas.get(place, ()))
        match item["type"]:
            case "reasoning":
                assert item["content"][0]["text"] == whole
                reasoning += whole
            case "message":
                assert item["content"][0]["text"] == whole
                text += whole
            case _:
                assert item["arguments"] == whole
                calls.append((item["name"], json.loads(whole)))
    return reasoning, text, calls


def of_messages(events: Sequence[Any], choice: int) -> Read:
    blocks: list[Any] = []
    is_open = False
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert (event["index"], is_open) == (len(blocks), False)
                blocks.append({**event["content_block"], "json": ""})
                is_open = True
            case "content_block_delta":
                assert (event["index"], is_open) == (len(blocks) - 1, True)
                delta, block = event["delta"], blocks[-1]
                block["thinking"] = block.get("thinking", "") + delta.get("thinking", "")
                block["text"] = block.get("text", "") + delta.get("text", "")
                block["json"] += delta.get("partial_json", "")
            case "content_block_stop":
                assert (event["index"], is_open) == (len(blocks) - 1, True)
                is_open = False
            case _:
                pass
    assert not is_open
    return (
        "".join(block["thinking"] for block in blocks),
        "".join(block["text"] for block in blocks),
        [
            (block["name"], json.loads(block["json"] or "{}"))
            for block in blocks
            if block["type"] == "tool_use"
        ],
    )


def of_generate(events: Sequence[Any], choice: int) -> Read:
    candidates = [event["candidates"][0] for event in events]
    parts = [
        part for one in candidates if one["index"] == choice for part in one["content"]["parts"]
    ]
    return (
        "".join(part["text"] for part in parts if part.get("thought")),
        "".join(part["text"] for part in parts if "text" in part and not part.get("thought")),
        [
            (part["functionCall"]["name"], part["functionCall"]["args"])
            for part in parts
            if "functionCall" in part
        ],
    )


HI = [{"role": "user", "content": "Hi"}]
DIALECTS: Mapping[str, tuple[Dialect, Mapping[str, object], int, Callable[..., Read]]] = {
    "chat": (OpenAIChat(), {"model": "m", "messages": HI, "n": 2}, 2, of_chat),
    "completions": (OpenAICompletions(), {"model": "m", "prompt": "Hi", "n": 2}, 2, of_completions),
    "responses": (OpenAIResponses(), {"model": "m", "input": "Hi"}, 1, of_responses),
    "messages": (
        AnthropicMessages(),
        {"model": "m", "messages": HI, "max_tokens": 1, "thinking": {"type": "adaptive"}},
        1,
        of_messages,
    ),
    "generate": (
        GoogleGenerate(),
        {
            "contents": [{"parts": [{"text": "Hi"}]}],
            "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
        },
        2,
        of_generate,
    ),
}


@pytest.mark.parametrize("name", DIALECTS)
@given(replies=st.lists(pieces_of_a_reply(), min_size=2, max_size=2))
def test_any_cut_of_a_reply_gives_the_same_whole(name: str, replies: list[list[ReplyPart]]) -> None:
    dialect, body, num_choices, read = DIALECTS[name]
    choices = replies[:num_choices]

    events = events_of(dialect, body, choices)

    for place, parts in enumerate(choices):
        whole = choice_of(parts)
        calls = [(call.name, json.loads(call.arguments)) for call in whole.tool_calls]
        expected: Read = (whole.reasoning, whole.text, calls)
        if name == "completions":  # which knows text alone
            expected = ("", whole.text, [])
        assert read(events, place) == expected


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_a_whole_and_a_stream_end_for_the_same_reason(name: str, reason: FinishReason) -> None:
    dialect, body, _, _ = DIALECTS[name]
    request = dialect.read({**body, "n": 1} if "n" in body else body, path={"model": "m"})
    reply = reply_of([choice_of([ReplyPart(text="Hi")], finish_reason=reason)])
    stream = dialect.stream(request)
    written = stream.begin(id="1", created=1)
    written += stream.delta(Delta(choice=0, part=ReplyPart(text="Hi"))) + stream.end(reply)

    words = {
        "chat": ("stop", "length"),
        "completions": ("stop", "length"),
        "responses": ("completed", "incomplete"),
        "messages": ("end_turn", "max_tokens"),
        "generate": ("STOP", "MAX_TOKENS"),
    }[name]
    word = words[0] if reason is FinishReason.STOP else words[1]
    for text in (json.dumps(dialect.whole(reply, request)), written.decode()):
        assert f'"{word}"' in text
        assert f'"{words[1 - words.index(word)]}"' not in text
