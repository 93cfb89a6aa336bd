"""A model's chat template: conversations with tools as text, and what the template shows of itself.

Where a template knows no tools (SmolLM2's), the model is told of them in the system message, in
the syntax of Hermes; calls are written so in an assistant's text, and results are a user's text
between `<tool_response>` tags.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, cast

from longhaul_core.errors import RendererFailure, attributed_to
from longhaul_core.types import Message, Part, Picture, Tool, ToolCall
from longhaul_trainer.rendering.encoding import TextEncoder
from longhaul_trainer.rendering.marks import Marks
from longhaul_trainer.rendering.reading import Reading, begin_reading
from longhaul_trainer.rendering.syntax import (
    HERMES,
    SYNTAXES,
    Syntax,
    TaggedSyntax,
    Tokenizer,
    as_json,
    as_schemas,
)

_THINK = "<think>"
_ASKED = Message(role="user", content="?")
_TOOL = Tool(
    name="probe_tool",
    description="Probes.",
    parameters='{"type": "object", "properties": {"probe_argument": {"type": "string"}}}',
)
_CALL = ToolCall(id="probe0123", name="probe_tool", arguments='{"probe_argument": "probe_value"}')
_CALLED = Message(role="assistant", content="", tool_calls=(_CALL,))
_RESULT = Message(role="tool", content="probe result", tool_call_id=_CALL.id)
_TEXT, _THOUGHT = "probe text", "probe thought"
_ANSWERED = Message(role="assistant", content=_TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """How the template writes the least conversation that asks for a reply."""

    text: str
    tokens_of_reply: tuple[int, ...]
    """By which every prompt ends."""


class ChatTemplate:
    """The chat template of a tokenizer."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        shows_pictures: bool = False,
        template: str | None = None,
        variables: Mapping[str, object] | None = None,
    ) -> None:
        """Of one model.

        Args:
            tokenizer: With the template.
            shows_pictures: Whether it writes a placeholder for a picture; without, pictures are
                left out.
            template: In Jinja, in place of the tokenizer's.
            variables: Of the template, beside messages and tools.
        """
        self._template = template
        self._variables: Mapping[str, object] = variables or {}
        self._tokenizer = tokenizer
        self._marks = Marks(tokenizer, TextEncoder(tokenizer))
        self._shows_pictures = shows_pictures
        self._beginnings: dict[tuple[bool, bool], Beginning] = {}
        self._ends: dict[tuple[bool, bool], str] = {}
        added = tokenizer.added_tokens_decoder
        self._special = {
            *tokenizer.all_special_ids,
            *(token for token, piece in added.items() if piece.special),
        }

    @property
    def model(self) -> str:
        """Name or folder of the model, for messages."""
        return str(self._tokenizer.name_or_path or "the model")

    def text(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] = (), begins_reply: bool = True
    ) -> str:
        """A conversation as the template writes it, for `tokens` to read.

        Args:
            messages: At least one.
            tools: That the model may call.
            begins_reply: Whether to write how a reply begins.

        Raises:
            RendererFailure: The template refuses them, or writes calls in an unknown syntax.
        """
        if tools:
            self.syntax(tools)
        return self._text(messages, tools=tools, begins_reply=begins_reply)

    def syntax(self, tools: Sequence[Tool]) -> Syntax:
        """How replies to prompts with these tools are read.

        Raises:
            RendererFailure: There are tools, and how the template writes calls is not known.
        """
        if self._syntax is not None:
            return self._syntax
        if tools:
            known = ", ".join(syntax.name for syntax in SYNTAXES)
            raise RendererFailure(
                f"the chat template of {self.model} writes tool calls in none of the known ways "
                f"({known}), so that replies cannot be read; it writes {self._written_call!r}. "
                "Give no tools, or put a `chat_template.jinja` into the model's folder that writes "
                'calls as <tool_call>{"name": …, "arguments": {…}}</tool_call>'
            )
        return replace(HERMES, thought=self._thought)

    def begin_reading(
        self, pieces: Callable[[int], bytes], *, tools: Sequence[Tool], after_result: bool = False
    ) -> Reading:
        """A reader of a reply to a question or a tool's result; `pieces` gives tokens' bytes."""
        return begin_reading(
            pieces,
            self.syntax(tools),
            tokenizer=self._tokenizer,
            tools=tools,
            in_thought=self._begins_thought(tools, after_result=after_result),
        )

    def added_text(
        self, reply: Reading, message: Message, new: Sequence[Message], *, tools: Sequence[Tool]
    ) -> str | None:
        """What comes after a reply's last word, its end token first, before the next reply.

        Nothing of the conversation before is written: a question stands for it.

        Args:
            reply: As it was read.
            message: The same as a message.
            new: What came after it.
            tools: Of the prompt.

        Returns:
            The text; None where the template does not write the reply as the model did, such as
            without its thought.
        """
        begun = self.beginning(bool(tools))
        end = self._end(bool(tools), bool(message.tool_calls))
        try:
            whole = self._text((_ASKED, message, *new), tools=(_TOOL,) if tools else ())
        except RendererFailure:
            return None  # these messages cannot follow; written anew, they raise
        if not end or not whole.startswith(begun.text):
            return None
        rest = whole[len(begun.text) :]
        place = rest.find(end)
        written = self._marks.shown(rest[:place])
        if place < 0 or not self._means(written, reply, message, tools=tools):
            return None
        return rest[place:]

    def beginning(self, tools: bool, *, after_result: bool = False) -> Beginning:
        """See `Beginning`; with or without tools, after a question or after a tool's result."""
        known = self._beginnings.get((tools, after_result))
        if known is None:
            given = (_TOOL,) if tools else ()
            asked = (_ASKED, _CALLED, _RESULT) if after_result else (_ASKED,)
            text = self._text(asked, tools=given)
            with_reply = self.tokens(text)
            without = self.tokens(self._text(asked, tools=given, begins_reply=False))
            shared = _num_shared(with_reply, without)
            known = Beginning(text=text, tokens_of_reply=tuple(with_reply[shared:]))
            self._beginnings[tools, after_result] = known
        return known

    def tokens(self, text: str) -> list[int]:
        """Tokens of a text that the template wrote; names in what it was given are only text."""
        return self._marks.tokens(text)

    def reply_as_text(self, text: str) -> str:
        """An assistant's own text, as the template has it.

        The tags of thoughts and calls stay marks: templates go by them, they end no turn, and a
        reply is read alike whether they were sampled or spelled.
        """
        tags = self._tags if self._marks.in_text(text) else ()
        return self._marks.as_text(text, tags=tags)

    @cached_property
    def _tags(self) -> frozenset[str]:
        syntax = self._syntax
        markers = syntax.markers if isinstance(syntax, TaggedSyntax) else ()
        return frozenset((*markers, *(self._thought or ())))

    @cached_property
    def begun_thought(self) -> str:
        """`"<think>"` where the template ends a question within a thought, else nothing."""
        return _THINK if self._text((_ASKED,)).rstrip().endswith(_THINK) else ""

    def _begins_thought(self, tools: Sequence[Tool], *, after_result: bool) -> bool:
        """Whether a prompt ends within a thought: R1's do after a question, not after a result."""
        if not after_result or not self.begun_thought:
            return bool(self.begun_thought)
        return self.beginning(bool(tools), after_result=True).text.rstrip().endswith(_THINK)

    @cached_property
    def knows_tools(self) -> bool:
        """Whether the template writes tools, calls and results."""
        return self._arguments is not None

    @cached_property
    def _arguments(self) -> Callable[[str], object] | None:
        """How the template takes the arguments of calls; None where it writes no tools."""
        for form in (_object_or_text, str):
            try:
                told = self._applied((_ASKED,), (_TOOL,), begins_reply=True)
                chat = _chat((_ASKED, _CALLED, _RESULT), arguments=form)
                played = self._written(chat, (_TOOL,), begins_reply=True)
            except RendererFailure:
                continue
            if _TOOL.name in told and "probe_value" in played and "probe result" in played:
                return form
        return None

    @cached_property
    def _id(self) -> Callable[[str], str]:
        """How the template takes the ids of calls: as they are, or of nine letters."""
        if not self.knows_tools:
            return str
        long = "call_" + 24 * "0"
        call, result = replace(_CALL, id=long), replace(_RESULT, tool_call_id=long)
        messages = (_ASKED, replace(_CALLED, tool_calls=(call,)), result)
        try:
            self._written(_chat(messages, arguments=self._arguments), (_TOOL,), begins_reply=True)
        except RendererFailure:
            return _of_nine_letters
        return str

    @cached_property
    def _thought(self) -> tuple[str, str] | None:
        """The tags of thoughts, where the model writes any."""
        tags = (_THINK, "</think>")
        added = (piece.content for piece in self._tokenizer.added_tokens_decoder.values())
        thinks = self.begun_thought or tags[1] in added
        return tags if thinks or all(tag in self._written_thought for tag in tags) else None

    @cached_property
    def _written_thought(self) -> str:
        thought = Message(role="assistant", content=_TEXT, reasoning=_THOUGHT)
        return self._reply_text(thought, tools=())

    @cached_property
    def _written_call(self) -> str:
        return self._reply_text(_CALLED, tools=(_TOOL,))

    def _reply_text(self, message: Message, *, tools: Sequence[Tool]) -> str:
        """What the template writes for a reply that is the last message, up to its end token."""
        closed = self._text((_ASKED, message), tools=tools, begins_reply=False)
        begun = self.beginning(bool(tools)).text
        if not closed.startswith(begun):  # the thought that it begins, it leaves out here
            begun = begun.rstrip().removesuffix(_THINK)
        text = closed[_num_shared(closed, begun) :]
        end = self._end(bool(tools), bool(message.tool_calls))
        return text.partition(end)[0] if end else text

    @cached_property
    def _syntax(self) -> Syntax | None:
        """By which a call that the template writes is read back."""
        if not self.knows_tools:
            return replace(HERMES, thought=self._thought)
        for syntax in SYNTAXES:
            if isinstance(syntax, TaggedSyntax):
                fitting: Syntax = replace(syntax, thought=self._thought)
            else:
                fitting = syntax
            reading = begin_reading(
                lambda _: b"", fitting, tokenizer=self._tokenizer, tools=(_TOOL,)
            )
            reading.feed_text(self._written_call)
            _, read = reading.end()
            found = [(call.name, _parsed(call.arguments)) for call in read.tool_calls]
            if found == [(_CALL.name, _parsed(_CALL.arguments))] and not read.text.strip():
                return fitting
        return None

    def _end(self, tools: bool, calls: bool) -> str:
        """The special token by which a reply ends, as text; empty where there is none."""
        known = self._ends.get((tools, calls))
        if known is None:
            sample, last = (_CALLED, "probe_value") if calls else (_ANSWERED, _TEXT)
            text = self._text((_ASKED, sample), tools=(_TOOL,) if tools else (), begins_reply=False)
            special = [token for token in self.tokens(text) if token in self._special]
            known = self._tokenizer.decode(special[-1:]) if special else ""
            if known and text.rfind(known) < text.rfind(last):
                known = ""
            self._ends[tools, calls] = known
        return known

    def _means(self, text: str, reply: Reading, message: Message, *, tools: Sequence[Tool]) -> bool:
        """Whether a text is read as the reply was; how it is spaced means nothing."""
        reading = self.begin_reading(lambda _: b"", tools=tools)  # a question stands before it
        reading.feed_text(text)
        _, read = reading.end()
        return (
            reading.began_thought == reply.began_thought
            and read.reasoning.strip() == message.reasoning.strip()
            and read.text.strip() == message.text.strip()
            and len(read.tool_calls) == len(message.tool_calls)
            and all(map(_same_call, message.tool_calls, read.tool_calls))
        )

    def _text(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] = (), begins_reply: bool = True
    ) -> str:
        if not self._shows_pictures:
            messages = [
                replace(message, content=message.text) if message.pictures else message
                for message in messages
            ]
        messages = [self._as_text(message) for message in messages]
        if not self.knows_tools:
            messages = _without_tools(messages, tools, as_text=self._marks.as_text)
            tools = ()
        return self._applied(messages, tools, begins_reply=begins_reply)

    def _as_text(self, message: Message) -> Message:
        """The message, of which nothing but a reply's own tags can become a control token."""
        texts = [part for part in message.parts if isinstance(part, str)]
        named = [name for call in message.tool_calls for name in (call.id, call.name)]
        answered = message.tool_call_id
        if not self._marks.in_text("".join((*texts, message.reasoning, *named, answered or ""))):
            return message
        as_text = self._marks.as_text
        of_content = self.reply_as_text if message.role == "assistant" else as_text
        parts: list[Part] = []
        before = ""
        for part in message.parts:
            if isinstance(part, Picture):
                parts.append(part)
                before = ""
            else:
                parts.append(self._marks.apart(before, part) + of_content(part))
                before = part
        return replace(
            message,
            content=parts[0] if isinstance(message.content, str) else tuple(parts),
            tool_calls=tuple(
                replace(call, id=as_text(call.id), name=as_text(call.name))
                for call in message.tool_calls
            ),
            tool_call_id=None if answered is None else as_text(answered),
            reasoning=as_text(message.reasoning),
        )

    def _applied(
        self, messages: Sequence[Message], tools: Sequence[Tool], *, begins_reply: bool
    ) -> str:
        if any(message.tool_calls or message.tool_call_id for message in messages):
            form = self._arguments or _object_or_text
            chat = _chat(
                messages,
                arguments=lambda text: self._marks.all_as_text(form(text)),
                id_of=self._id,
            )
        else:
            chat = _chat(messages)
        return self._written(chat, tools, begins_reply=begins_reply)

    def _written(
        self, chat: list[dict[str, Any]], tools: Sequence[Tool], *, begins_reply: bool
    ) -> str:
        roles = ", ".join(str(message["role"]) for message in chat)
        action = f"the chat template of {self.model} refuses messages of {roles}"
        if any(message["role"] == "system" for message in chat[1:]):
            # By such words Claude Code sends them again, as the user's.
            action += ", and may be one by which role 'system' is not supported after the first"
        with attributed_to(RendererFailure, action):
            return self._tokenizer.apply_chat_template(
                chat,
                tools=self._marks.all_as_text(as_schemas(tools)) or None,
                chat_template=self._template,
                add_generation_prompt=begins_reply,
                tokenize=False,
                **self._variables,
            )


def _num_shared(one: Sequence[object], other: Sequence[object]) -> int:
    """How many leading elements two sequences have in common."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _same_call(written: ToolCall, again: ToolCall) -> bool:
    """Arguments that are no JSON object cannot be written as they were."""
    known = _parsed(written.arguments)
    return written.name == again.name and (known is None or known == _parsed(again.arguments))


def _parsed(arguments: str) -> dict[str, Any] | None:
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _chat(
    messages: Sequence[Message],
    *,
    arguments: Callable[[str], object] | None = None,
    id_of: Callable[[str], str] = str,
) -> list[dict[str, Any]]:
    """Messages as templates take them: OpenAI's, with arguments and ids in a template's form."""
    arguments = arguments or _object_or_text
    names: dict[str, str] = {}
    chat: list[dict[str, Any]] = []
    for message in messages:
        entry: dict[str, Any] = {"role": message.role, "content": content_of(message)}
        if message.reasoning:  # templates differ in what they call it
            entry |= {"reasoning_content": message.reasoning, "thinking": message.reasoning}
        if message.tool_calls:
            names |= {call.id: call.name for call in message.tool_calls}
            entry["tool_calls"] = [
                {
                    "type": "function",
                    "id": id_of(call.id),
                    "function": {"name": call.name, "arguments": arguments(call.arguments)},
                }
                for call in message.tool_calls
            ]
        if message.tool_call_id is not None:
            entry["tool_call_id"] = id_of(message.tool_call_id)
            if message.tool_call_id in names:
                entry["name"] = names[message.tool_call_id]
        chat.append(entry)
    return chat


def content_of(message: Message) -> str | list[dict[str, str]]:
    """A message's content as templates take it: its text, or where it has pictures, its parts."""
    if not message.pictures:
        return message.text
    return [
        {"type": "image"} if isinstance(part, Picture) else {"type": "text", "text": part}
        for part in message.parts
    ]


def _object_or_text(arguments: str) -> dict[str, Any] | str:
    found = _parsed(arguments)
    return arguments if found is None else found


def _of_nine_letters(id: str) -> str:
    """The id itself where it is so, else a hash of it."""
    fits = len(id) == 9 and id.isascii() and id.isalnum()
    return id if fits else hashlib.sha256(id.encode(errors="surrogatepass")).hexdigest()[:9]


def _without_tools(
    messages: Sequence[Message], tools: Sequence[Tool], *, as_text: Callable[[str], str]
) -> list[Message]:
    """A conversation with tools for a template that knows none; see the module."""
    plain: list[Message] = []
    for message in messages:
        if message.tool_calls:
            calls = (
                f'<tool_call>\n{{"name": {as_json(call.name)}, "arguments": '
                f"{as_text(as_json(_object_or_text(call.arguments)))}}}\n</tool_call>"
                for call in message.tool_calls
            )
            head = [message] if message.text or message.pictures else []
            content = _lines(*head, *calls)
            plain.append(Message(role="assistant", content=content, reasoning=message.reasoning))
        elif message.role == "tool":
            after_result = plain and plain[-1].role == "user" and _is_result(plain[-1])
            results = [plain.pop()] if after_result else []
            content = _lines(*results, "<tool_response>", message, "</tool_response>")
            plain.append(Message(role="user", content=content))
        else:
            plain.append(message)
    if tools:
        system = [plain.pop(0), ""] if plain and plain[0].role == "system" else []
        told = _told_of(as_text("\n".join(as_json(schema) for schema in as_schemas(tools))))
        plain.insert(0, Message(role="system", content=_lines(*system, told)))
    return plain


def _lines(*pieces: str | Message) -> str | tuple[Part, ...]:
    """Texts and the contents of messages, one below the other; a text where none has a picture."""
    if not any(isinstance(piece, Message) and piece.pictures for piece in pieces):
        return "\n".join(piece if isinstance(piece, str) else piece.text for piece in pieces)
    parts: list[Part] = []
    for number, piece in enumerate(pieces):
        parts += ["\n"] if number else []
        parts += [piece] if isinstance(piece, str) else piece.parts
    return tuple(parts)


def _is_result(message: Message) -> bool:
    return message.text.startswith("<tool_response>\n")


def _told_of(schemas: str) -> str:
    return (
        "You may call tools. Their signatures are within <tools></tools> tags:\n"
        f"<tools>\n{schemas}\n</tools>\n"
        "To call one, write a JSON object with its name and its arguments within "
        "<tool_call></tool_call> tags, and then wait for its result:\n"
        '<tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call>'
    )
