"""A reply read while it is written: text, thoughts apart from it, and tool calls.

What was told is never taken back. So a character waits for its last byte, what may be the
beginning of a tag waits until it is one or is not, and white space waits for what follows it: that
beside a thought or a call is no text. A call is one from where its name and the beginning of its
arguments are read; what is malformed before that is text, and what is malformed after it are
arguments that are no JSON, for the program to refuse.

What is told depends on the text alone, however it came in pieces.
"""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from longhaul_core.policy import ReadReply, ReplyPart
from longhaul_core.text import well_formed
from longhaul_core.types import Tool, ToolCall
from longhaul_trainer.rendering.syntax import (
    ChannelSyntax,
    Syntax,
    TaggedSyntax,
    Tokenizer,
    WrittenCall,
    as_json,
)


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list[str])


class Reading:
    """What every syntax has in common. A subclass consumes `_pending` in `_go_on`."""

    def __init__(self, pieces: Callable[[int], bytes]) -> None:
        self._pieces = pieces
        self._bytes = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._pending = ""
        """Text that was not told yet."""
        self._consumed = hashlib.sha256()
        self._parts: list[ReplyPart] = []
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._space = ""
        """White space that waits for what follows it."""
        self._skips_space = False
        self.began_thought = False
        """Whether a thought was begun, if an empty one."""
        self.cut = False
        """After `end`: whether the reply ended within a thought or a call."""

    def salt(self, salt: str) -> None:
        """Before anything is read: make the ids of calls those of one reply among several."""
        self._consumed.update(salt.encode())

    def feed(self, tokens: Sequence[int]) -> Sequence[ReplyPart]:
        """See `ReplyReader.feed`."""
        text = self._bytes.decode(b"".join(map(self._pieces, tokens)))
        return self.feed_text(text) if text else ()

    def feed_text(self, text: str) -> Sequence[ReplyPart]:
        """The same for a reply that is text already."""
        self._pending += text
        self._go_on(ends=False)
        parts, self._parts = self._parts, []
        return parts

    def end(self) -> tuple[Sequence[ReplyPart], ReadReply]:
        """See `ReplyReader.end`."""
        self._pending += self._bytes.decode(b"", final=True)
        self._go_on(ends=True)
        if self._space and not self._skips_space and not self.cut:
            self._tell_text(self._space)
        parts, self._parts = self._parts, []
        return parts, ReadReply(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            tool_calls=tuple(
                ToolCall(id=call.id, name=call.name, arguments="".join(call.arguments))
                for call in self._calls
            ),
        )

    def _go_on(self, *, ends: bool) -> None:
        raise NotImplementedError

    def _take(self, length: int) -> str:
        taken, self._pending = self._pending[:length], self._pending[length:]
        self._consumed.update(taken.encode(errors="surrogatepass"))
        return taken

    def _write(self, text: str) -> None:
        """Tell text, but for white space whose neighbour is not known."""
        if self._skips_space:
            text = text.lstrip()
            if not text:
                return
            self._skips_space = False
        text = self._space + text
        told = text.rstrip()
        self._space = text[len(told) :]
        if told:
            self._tell_text(told)

    def _tell_text(self, text: str) -> None:
        self._text.append(text)
        self._parts.append(ReplyPart(text=text))

    def _think(self, text: str) -> None:
        """Tell a thought, without white space around it."""
        text = self._space + text
        if not self._reasoning:
            text = text.lstrip()
        told = text.rstrip()
        self._space = text[len(told) :]
        if told:
            self._reasoning.append(told)
            self._parts.append(ReplyPart(reasoning=told))

    def _thought(self) -> None:
        """A thought has ended."""
        self._space, self._skips_space = "", True

    def _call(self, name: str) -> None:
        """A call has begun. Its id is of the salt and what was read before it, so it is lasting."""
        place = len(self._calls)
        known = self._consumed.copy()
        known.update(f"\0{place}\0{name}".encode(errors="surrogatepass"))
        call = _Call(f"call_{known.hexdigest()[:24]}", name)
        self._calls.append(call)
        self._parts.append(ReplyPart(tool_place=place, tool_id=call.id, tool_name=name))
        if not self._text:
            self._space = ""
        self._skips_space = True

    def _argue(self, text: str) -> None:
        """A piece of the arguments of the latest call."""
        if text:
            self._calls[-1].arguments.append(text)
            place = len(self._calls) - 1
            self._parts.append(ReplyPart(tool_place=place, tool_arguments=text))


class TaggedReading(Reading):
    """Reads a `TaggedSyntax`."""

    def __init__(
        self,
        pieces: Callable[[int], bytes],
        syntax: TaggedSyntax,
        *,
        tokenizer: Tokenizer,
        tools: Sequence[Tool],
        in_thought: bool,
    ) -> None:
        """A reader of one reply.

        Args:
            pieces: Bytes of tokens, the syntax's tags among them.
            syntax: How the model writes.
            tokenizer: Of the model.
            tools: What the reply may ask for; without any, nothing is a call.
            in_thought: Whether the prompt ended within a thought.
        """
        super().__init__(pieces)
        self._syntax = syntax
        self._tokenizer = tokenizer
        self._tools = tools
        self.began_thought = in_thought
        self._state = self._in_thought if in_thought else self._at_start
        self._raw = ""
        """Of a call: its opening tag."""
        self._header_failed = False
        self._braces = _Braces()
        self._num_seen = 0
        """Characters of a listed call that its braces have counted; beyond a closing tag within a
        string, characters that were looked at without being told."""

    def _go_on(self, *, ends: bool) -> None:
        while self._state(ends):
            pass
        if ends:
            self.cut = self._state not in (self._in_text, self._at_start)

    # Each state consumes what it can, and returns whether another one may go on.

    def _at_start(self, ends: bool) -> bool:
        begun = self._pending.lstrip()
        thought = self._syntax.thought
        if thought is not None:
            if begun.startswith(thought[0]):
                self._take(len(self._pending) - len(begun) + len(thought[0]))
                self.began_thought = True
                self._state = self._in_thought
                return True
            if thought[0].startswith(begun) and not ends:
                return False
        if not begun and not ends:
            return False
        self._begin_answer(begun)
        return True

    def _begin_answer(self, begun: str) -> None:
        if self._tools and not self._syntax.opening and begun.startswith("{"):
            self._take(len(self._pending) - len(begun))
            self._begin_call(0)
        else:
            self._state = self._in_text

    def _in_thought(self, ends: bool) -> bool:
        assert self._syntax.thought is not None
        closing = self._syntax.thought[1]
        place = self._pending.find(closing)
        if place < 0:
            held = 0 if ends else _overlap(self._pending, closing)
            self._think(self._take(len(self._pending) - held))
            return False
        self._think(self._take(place))
        self._take(len(closing))
        self._thought()
        self._state = self._after_thought
        return True

    def _after_thought(self, ends: bool) -> bool:
        begun = self._pending.lstrip()
        if not begun and not ends:
            return False
        self._begin_answer(begun)
        return True

    def _in_text(self, ends: bool) -> bool:
        opening = self._syntax.opening
        if not self._tools or not opening:
            self._write(self._take(len(self._pending)))
            return False
        marks = (opening, *(self._syntax.around or ()))
        place, mark = _first(self._pending, marks)
        if place < 0:
            held = 0 if ends else max(_overlap(self._pending, mark) for mark in marks)
            self._write(self._take(len(self._pending) - held))
            return False
        self._write(self._take(place))
        if mark == opening:
            self._begin_call(len(opening))
            return True
        self._raw = self._take(len(mark))
        if mark == marks[1]:
            self._state = self._before_calls
        elif not self._calls:
            self._write(self._raw)  # it closes nothing
        return True

    def _before_calls(self, ends: bool) -> bool:
        """After the tag that opens all calls: their first one, or there was none."""
        begun = self._pending.lstrip()
        opening = self._syntax.opening
        if not begun.startswith(opening) and opening.startswith(begun) and not ends:
            return False
        if begun.startswith(opening):
            self._begin_call(len(self._pending) - len(begun) + len(opening), before=self._raw)
        else:
            self._write(self._raw)
            self._state = self._in_text
        return True

    def _begin_call(self, length: int, *, before: str = "") -> None:
        self._raw = before + self._take(length)
        self._header_failed = False
        if self._syntax.listed:
            self._state = self._before_list
        else:
            self._state = self._in_block if self._syntax.read_block else self._in_header

    def _before_list(self, ends: bool) -> bool:
        """After an opening tag, before the bracket of the list."""
        begun = self._pending.lstrip()
        if not begun and not ends:
            return False
        if begun.startswith("["):
            self._raw += self._take(len(self._pending) - len(begun) + 1)
            self._state = self._in_list
        else:
            self._write(self._raw)
            self._state = self._in_text
        return True

    def _in_list(self, ends: bool) -> bool:
        """Before a call of a list."""
        begun = self._pending.lstrip()
        if not begun and not ends:
            return False
        self._raw += self._take(len(self._pending) - len(begun))
        if begun.startswith("{"):
            self._header_failed, self._braces, self._num_seen = False, _Braces(), 0
            self._state = self._in_header
        else:
            self._write(self._raw)
            self._state = self._in_text
        return True

    def _in_header(self, ends: bool) -> bool:
        """Within a call, before its arguments."""
        block, ended = self._block(ends)
        if self._syntax.read_head is not None:
            head = self._syntax.read_head(block)
            if head is not None and head.name:
                return self._begin_arguments(head.name, head.length)
            if head is None and not ended:
                return False
            self._write(self._raw)
            self._state = self._in_text
            return True
        begun = block.lstrip()
        if begun and begun[0] != "{":
            self._write(self._raw)
            self._state = self._in_text
            return True
        if not self._header_failed:
            name, length = _header(block)
            if name:
                return self._begin_arguments(name, length)
            self._header_failed = length > 0
        if not ended:
            return False
        call = _whole_call(block)
        return self._end_block(block, [] if call is None else [call], ends=ends)

    def _begin_arguments(self, name: str, length: int) -> bool:
        self._call(name)
        self._take(length)
        self._braces = _Braces()
        self._state = self._in_arguments
        return True

    def _in_block(self, ends: bool) -> bool:
        """Within a call of a syntax that another reads, when it is whole."""
        block, ended = self._block(ends)
        if not ended:
            return False
        calls: Sequence[WrittenCall] = ()
        if self._pending.startswith(self._syntax.closing, len(block)):
            assert self._syntax.read_block is not None
            whole = f"{self._raw}{block}{self._syntax.closing}"
            calls = self._syntax.read_block(self._tokenizer, whole, self._tools)
        return self._end_block(block, calls, ends=ends)

    @property
    def _ending(self) -> str:
        """What ends a call, whatever stands in it; empty where only the end of the reply does."""
        return self._syntax.closing or self._syntax.opening

    def _block(self, ends: bool) -> tuple[str, bool]:
        """What is known of the block, and whether that is all of it."""
        place = self._pending.find(self._ending) if self._ending else -1
        if place >= 0 and self._syntax.read_block is None:
            place = self._end_outside_strings(place, ends=ends)
        block, ended = (self._pending, ends) if place < 0 else (self._pending[:place], True)
        if not self._syntax.listed:
            return block, ended
        if self._num_seen == 0 or self._braces.depth:
            new = block[self._num_seen :]
            self._num_seen += self._braces.end_in(new, len(new))
        return (block[: self._num_seen], True) if not self._braces.depth else (block, ended)

    def _end_outside_strings(self, place: int, *, ends: bool) -> int:
        """Where the first tag stands that ends a call of JSON, and is in no string of it.

        A string that is open to the end of the reply holds none: -1 until then.
        """
        first, seen, braces = place, 0, _Braces()
        while place >= 0:
            braces.end_in(self._pending[seen:place], place - seen)
            if not braces.quoted:
                return place
            seen, place = place, self._pending.find(self._ending, place + 1)
        return first if ends else -1

    def _end_block(self, block: str, calls: Sequence[WrittenCall], *, ends: bool) -> bool:
        closed = self._pending.startswith(self._syntax.closing, len(block))
        for call in calls:
            self._call(call.name)
            self._argue(call.arguments)
        told = self._take(len(block) + (len(self._syntax.closing) if closed else 0))
        if not calls:
            self._write(self._raw + told)
        self._state = self._after_call if calls and self._syntax.listed else self._in_text
        return bool(self._pending) or ends

    def _in_arguments(self, ends: bool) -> bool:
        ending = self._ending
        place = self._pending.find(ending) if ending else -1
        held = _overlap(self._pending, ending) if place < 0 and not ends else 0
        known = len(self._pending) - held if place < 0 else place
        length = self._braces.end_in(self._pending, known)
        self._argue(self._take(length))
        if self._braces.depth == 0:
            self._state = self._after_arguments
            return True
        if not self._pending.startswith(ending) or not self._pending:
            return False
        if self._braces.quoted:
            self._num_seen = 0
            self._state = self._at_tag_in_string
            return True
        self._take(len(self._syntax.closing))
        self._state = self._in_text
        return True

    def _at_tag_in_string(self, ends: bool) -> bool:
        """At a closing tag within a string of arguments: it is text if their object ends well."""
        new = self._pending[self._num_seen :]
        self._num_seen += self._braces.end_in(new, len(new))
        if self._braces.depth and not ends:
            return False
        known, rest = "".join(self._calls[-1].arguments), self._pending[: self._num_seen]
        if not self._braces.depth and _is_json(known + rest):
            self._argue(self._take(len(rest)))
            self._state = self._after_arguments
        else:
            self._take(len(self._syntax.closing))
            self._state = self._in_text
        return True

    def _after_arguments(self, ends: bool) -> bool:
        """What stands after them, and the closing tag; what else its object has is left out."""
        self._take(len(self._pending) - len(self._pending.lstrip()))
        tail = self._syntax.tail
        if tail and not self._pending:
            return False
        if tail != self._pending and tail.startswith(self._pending) and not ends:
            return False
        if tail and self._pending.startswith(tail):
            self._take(len(tail))
        elif tail == "}" and self._pending.startswith(","):
            self._braces.depth = 1
            self._state = self._in_rest
            return True
        self._state = self._after_call
        return bool(self._pending) or ends

    def _in_rest(self, ends: bool) -> bool:
        """What else a call's object has after its arguments, up to its end."""
        ending = self._ending
        place = self._pending.find(ending) if ending else -1
        known = self._pending if place < 0 else self._pending[:place]
        held = 0 if place >= 0 or ends else _overlap(known, ending)
        length = len(known) - held
        self._take(self._braces.end_in(known, length) if self._syntax.listed else length)
        listed_ended = self._syntax.listed and not self._braces.depth
        if not listed_ended and (place < 0 or not self._pending):
            return False
        self._state = self._after_call
        return True

    def _after_call(self, ends: bool) -> bool:
        closing = self._syntax.closing
        begun = self._pending.lstrip()
        if self._syntax.listed:
            return self._after_listed(begun, ends)
        if closing and closing.startswith(begun) and begun != closing and not ends:
            return False
        if closing and begun.startswith(closing):
            self._take(len(self._pending) - len(begun) + len(closing))
        self._state = self._in_text
        return True

    def _after_listed(self, begun: str, ends: bool) -> bool:
        """After a call of a list: a comma and another, a bracket that ends it, or neither."""
        if not begun and not ends:
            return False
        self._raw = self._take(len(self._pending) - len(begun))
        if begun.startswith(","):
            self._raw += self._take(1)
            self._state = self._in_list
            return True
        if begun.startswith("]"):
            self._take(1)
        else:
            self._write(self._raw)
        self._state = self._in_text
        return True


class ChannelReading(Reading):
    """Reads a `ChannelSyntax`."""

    def __init__(
        self, pieces: Callable[[int], bytes], syntax: ChannelSyntax, *, tools: Sequence[Tool]
    ) -> None:
        """A reader of one reply; see `TaggedReading`."""
        super().__init__(pieces)
        self._syntax = syntax
        self._tools = tools
        self._tell: Callable[[str], None] | None = None
        """Of the message that is being read; None between messages."""
        self._any = False

    def _go_on(self, *, ends: bool) -> None:
        while self._in_message(ends) if self._tell else self._in_header(ends):
            pass
        if ends:
            self.cut = self._tell is not None and self._tell != self._write

    def _in_header(self, ends: bool) -> bool:
        place = self._pending.find(self._syntax.message)
        if place < 0:
            if ends and not self._any and self._syntax.channel not in self._pending:
                self._write(self._take(len(self._pending)))  # no message at all
            return False
        header = self._take(place)
        self._take(len(self._syntax.message))
        self._any = True
        channel = _word(header.partition(self._syntax.channel)[2])
        _, _, recipient = _word(header.partition(" to=")[2]).partition("functions.")
        if recipient and self._tools:
            self._call(recipient)
            self._tell = self._argue
        elif channel == "analysis":
            self.began_thought = True
            self._tell = self._think
        else:
            self._tell = self._write
        return True

    def _in_message(self, ends: bool) -> bool:
        assert self._tell is not None
        marks = (*self._syntax.ends, self._syntax.start)
        place, mark = _first(self._pending, marks)
        if place < 0:
            held = 0 if ends else max(_overlap(self._pending, mark) for mark in marks)
            self._tell(self._take(len(self._pending) - held))
            return False
        self._tell(self._take(place))
        self._take(0 if mark == self._syntax.start else len(mark))
        if self._tell == self._think:
            self._thought()
        self._tell = None
        return True


def begin_reading(
    pieces: Callable[[int], bytes],
    syntax: Syntax,
    *,
    tokenizer: Tokenizer,
    tools: Sequence[Tool],
    in_thought: bool = False,
) -> Reading:
    """A reader of one reply in a syntax; see `TaggedReading`."""
    if isinstance(syntax, ChannelSyntax):
        return ChannelReading(pieces, syntax, tools=tools)
    return TaggedReading(pieces, syntax, tokenizer=tokenizer, tools=tools, in_thought=in_thought)


class _Braces:
    """Finds the end of a JSON object while it is written."""

    __slots__ = ("_escaped", "depth", "quoted")

    def __init__(self) -> None:
        self.depth = 0
        """Of braces; 0 at the end of the object."""
        self.quoted = False
        """Within a string."""
        self._escaped = False

    def end_in(self, text: str, limit: int) -> int:
        """How many characters of the text, of which `limit` are read, belong to the object."""
        depth, quoted, escaped = self.depth, self.quoted, self._escaped
        end = limit
        for place in range(limit):
            character = text[place]
            if quoted:
                if escaped:
                    escaped = False
                elif character == "\\":
                    escaped = True
                elif character == '"':
                    quoted = False
            elif character == '"':
                quoted = True
            elif character == "{":
                depth += 1
            elif character == "}":
                depth -= 1
                if depth == 0:
                    end = place + 1
                    break
        self.depth, self.quoted, self._escaped = depth, quoted, escaped
        return end


_ARGUMENTS = ("arguments", "parameters")


def _header(block: str) -> tuple[str, int]:
    """The name of a call whose arguments have begun, and how long the block is before them.

    No name and a length where this is no such beginning, and never will be; neither while more is
    to be read.
    """
    place, key = min(
        ((place, key) for key in _ARGUMENTS if (place := block.find(f'"{key}"')) >= 0),
        default=(-1, ""),
    )
    value = block[place + len(key) + 2 :].lstrip()[1:].lstrip() if key else ""
    if not value:
        return "", 0
    length = len(block) - len(value)
    try:
        known = json.loads(f"{block[:length]}null}}")
    except (ValueError, RecursionError):
        return "", length
    return (_name_of(known) if value[0] == "{" else ""), length


def _is_json(text: str) -> bool:
    """Whether it is a JSON value; line breaks in its strings may stand as they are."""
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def _whole_call(block: str) -> WrittenCall | None:
    """The call that a block is; None for one that is malformed."""
    try:
        found = json.loads(block)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    known = cast("dict[str, Any]", found)
    name = _name_of(known)
    arguments = next((known[key] for key in _ARGUMENTS if key in known), None)
    if not name:
        return None
    if arguments is None:
        return WrittenCall(name, "{}")
    if isinstance(arguments, str):
        return WrittenCall(name, well_formed(arguments))
    if not isinstance(arguments, dict):
        return None
    return WrittenCall(name, as_json(cast("dict[str, Any]", arguments)))


def _name_of(call: dict[str, Any]) -> str:
    """Nothing where it has none, or one that no JSON can carry to a program."""
    name = call.get("name")
    return name if isinstance(name, str) and well_formed(name) == name else ""


def _word(text: str) -> str:
    """What stands before white space or a mark."""
    words = text.partition("<|")[0].split(maxsplit=1)
    return words[0] if words else ""


def _first(text: str, marks: Sequence[str]) -> tuple[int, str]:
    """Which mark stands first in a text, and where; -1 where there is none."""
    found = ((place, mark) for mark in marks if (place := text.find(mark)) >= 0)
    return min(found, default=(-1, ""))


def _overlap(text: str, tag: str) -> int:
    """How many characters at the end of a text may be the beginning of a tag."""
    if not tag or tag[0] not in text[1 - len(tag) :]:
        return 0
    longest = min(len(tag) - 1, len(text))
    return next((length for length in range(longest, 0, -1) if text.endswith(tag[:length])), 0)
