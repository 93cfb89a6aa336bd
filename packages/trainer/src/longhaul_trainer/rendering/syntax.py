# pyright: reportUnknownVariableType=false
# (the parsers of `renderers` take any tokenizer)
"""How models write thoughts and tool calls, as their chat templates show it.

A template is asked, not a table of models: it writes a call of a tool that nobody has, and the
syntax by which that is read back is the model's. So a model under any name, in any folder, with a
template of its own, is read as it writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from renderers.base import ParsedResponse, ToolCallParseStatus
from renderers.parsing import parse_glm, parse_qwen35

from longhaul_core.text import well_formed
from longhaul_core.types import Tool


class WrittenCall(NamedTuple):
    """A tool call in a reply."""

    name: str
    arguments: str
    """A JSON object as text."""


Tokenizer = Any
"""A tokenizer of transformers, which annotates little."""
ReadBlock = Callable[[Tokenizer, str, Sequence[Tool]], Sequence[WrittenCall]]
"""Reads a block with its tags; nothing where it is malformed."""


class Head(NamedTuple):
    """What stands in a call before its arguments."""

    name: str
    """Empty where it is malformed."""
    length: int
    """Characters before the brace that opens the arguments."""


ReadHead = Callable[[str], Head | None]
"""Reads the beginning of a call after its opening tag; None while more is to be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedSyntax:
    """Thoughts between tags at the beginning, text, and calls between tags."""

    name: str
    thought: tuple[str, str] | None = ("<think>", "</think>")
    """Tags; None for a model that writes no thoughts."""
    opening: str = "<tool_call>"
    """Empty: a reply that begins with a brace is a call."""
    closing: str = "</tool_call>"
    """Empty where only the end of the reply ends a call."""
    read_block: ReadBlock | None = None
    """Reads a call when it is whole; None: its arguments are told while they are written."""
    read_head: ReadHead | None = None
    """Reads a name that stands before the arguments; None: a call is a JSON object with both."""
    tail: str = "}"
    """Between the arguments and the closing tag."""
    listed: bool = False
    """Whether a JSON list of calls stands after the opening tag."""
    around: tuple[str, str] | None = None
    """Tags around all calls of a reply, beside those of each."""
    within: tuple[str, ...] = ()
    """Further tags within a call."""

    @property
    def markers(self) -> tuple[str, ...]:
        """What is part of the syntax, even where a token of that name is a special one."""
        around = self.around or ()
        marks = (*(self.thought or ()), self.opening, self.closing, *around, *self.within)
        return tuple(mark for mark in marks if mark)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSyntax:
    """Messages with headers that name a channel and a recipient (gpt-oss)."""

    name: str = "harmony"
    start: str = "<|start|>"
    channel: str = "<|channel|>"
    message: str = "<|message|>"
    ends: tuple[str, ...] = ("<|end|>", "<|call|>", "<|return|>")

    @property
    def markers(self) -> tuple[str, ...]:
        """See `TaggedSyntax.markers`."""
        return (self.start, self.channel, self.message, "<|constrain|>", *self.ends)


Syntax = TaggedSyntax | ChannelSyntax


def as_schemas(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Tools as templates and parsers take them: OpenAI's JSON."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": json.loads(tool.parameters),
            },
        }
        for tool in tools
    ]


def as_json(value: object) -> str:
    """JSON text, in its own letters where they are well-formed."""
    text = json.dumps(value, ensure_ascii=False)
    return text if well_formed(text) == text else json.dumps(value)


def _token(tokenizer: Tokenizer, name: str) -> int:
    found = tokenizer.convert_tokens_to_ids(name)
    return -1 if found is None or found == tokenizer.unk_token_id else cast("int", found)


def _calls(found: ParsedResponse) -> list[WrittenCall]:
    """The well-formed ones; a value that is no JSON is a text in these syntaxes."""
    return [
        WrittenCall(call.name, as_json(call.arguments))
        for call in found.tool_calls
        if call.name
        and isinstance(call.arguments, Mapping)
        and call.status in (ToolCallParseStatus.OK, ToolCallParseStatus.INVALID_JSON)
    ]


def _qwen_xml(tokenizer: Tokenizer, block: str, tools: Sequence[Tool]) -> list[WrittenCall]:
    found = parse_qwen35(
        tokenizer,
        tokenizer.encode(block, add_special_tokens=False),
        stop_ids=set(),
        think_id=_token(tokenizer, "<think>"),
        think_end_id=_token(tokenizer, "</think>"),
        tool_call_id=_token(tokenizer, "<tool_call>"),
        tool_call_end_id=_token(tokenizer, "</tool_call>"),
        tools=cast("Any", as_schemas(tools)),
    )
    return _calls(found)


def _glm(tokenizer: Tokenizer, block: str, tools: Sequence[Tool]) -> list[WrittenCall]:
    found = parse_glm(
        tokenizer,
        tokenizer.encode(block, add_special_tokens=False),
        stop_ids=set(),
        think_id=_token(tokenizer, "<think>"),
        think_end_id=_token(tokenizer, "</think>"),
        tool_call_id=_token(tokenizer, "<tool_call>"),
        tool_call_end_id=_token(tokenizer, "</tool_call>"),
        arg_key_id=_token(tokenizer, "<arg_key>"),
        arg_key_end_id=_token(tokenizer, "</arg_key>"),
        arg_value_id=_token(tokenizer, "<arg_value>"),
        arg_value_end_id=_token(tokenizer, "</arg_value>"),
        tools=cast("Any", as_schemas(tools)),
    )
    return _calls(found)


_ARGS, _CALL_ID = "[ARGS]", "[CALL_ID]"
_SEPARATOR = "<｜tool▁sep｜>"


def _mistral_head(text: str) -> Head | None:
    """`name[ARGS]{`, where `[ARGS]` may be missing and `[CALL_ID]` with an id before it."""
    head, brace, _ = text.partition("{")
    name, mark, _ = head.partition("[")
    name = name.strip()
    if len(name.split()) > 1 or (mark and not name):
        return Head("", len(head))  # words, or a list: no name, whatever comes
    return Head(name, len(head)) if brace else None


def _deepseek_head(text: str) -> Head | None:
    """V3 and R1: `function<sep>name`, a line end and a fence of JSON; V3.1: `name<sep>`."""
    head, brace, _ = text.partition("{")
    if not brace:
        return None
    before, _, after = head.partition(_SEPARATOR)
    name, _, fence = after.strip().partition("\n")
    if not after.strip() and _SEPARATOR in head:
        name = before.strip()
    elif (before.strip(), fence.strip()) != ("function", "```json"):
        name = ""
    return Head("" if len(name.split()) > 1 else name.strip(), len(head))


HERMES = TaggedSyntax(name="hermes")
"""`<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Hermes, Qwen2.5, Qwen3, and what a model
is asked for whose template knows no tools."""
SYNTAXES: tuple[Syntax, ...] = (
    HERMES,
    TaggedSyntax(name="qwen3-coder", read_block=_qwen_xml),
    TaggedSyntax(name="glm", read_block=_glm),
    TaggedSyntax(name="json", opening="", closing=""),
    TaggedSyntax(name="mistral", opening="[TOOL_CALLS]", closing="", listed=True),
    TaggedSyntax(
        name="mistral-v11",
        opening="[TOOL_CALLS]",
        closing="",
        read_head=_mistral_head,
        tail="",
        within=(_ARGS, _CALL_ID),
    ),
    TaggedSyntax(
        name="deepseek",
        opening="<｜tool▁call▁begin｜>",
        closing="<｜tool▁call▁end｜>",
        read_head=_deepseek_head,
        tail="```",
        around=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        within=(_SEPARATOR,),
    ),
    ChannelSyntax(),
)
"""Those that can be read. A template may write another, and then it is an error to give tools."""
