"""The text of prompts as the store keeps it: what a message repeats of its episode is a reference.

A prompt is mostly made of what the episode's other rows hold: observations, replies, and earlier
messages. A message that is one of these, but for a few words above and below, is kept as a
reference to it and these words. Any other is kept as the long lines that are nowhere else, and as
a list of pieces, each a reference, or short lines as they are; one below the other, the pieces are
the message. A view puts both together in SQL (`episode_messages`), and `whole_text` does here.

The one decision to know: a reference is one integer, which SQL takes apart by its bits. A view
reads it in a fraction of the time of a list in JSON, and a text that is meant as a whole is never
counted into: `substr` counts the characters of UTF-8 from the first on.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from longhaul_core.errors import StoreError

__all__ = [
    "CALL_BIT",
    "FIRST_BIT",
    "LENGTH_BIT",
    "NUMBER_BIT",
    "RUN_BITS",
    "MessageCutter",
    "MessageText",
    "Source",
    "message_numbers",
    "message_runs",
    "referred_text",
    "source_of",
    "whole_text",
]

Kind = Literal["m", "o", "r"]

CALL_BIT, NUMBER_BIT, FIRST_BIT, LENGTH_BIT = 2, 10, 27, 45
"""Where the fields of a reference begin. The kind's place in `Kind` is at bit 0; characters count
from 0, and a length of 0 means the whole text."""
_BITS = 63
RUN_BITS = 21
"""Of each field of a run of messages: the first one's number, how many, its position."""

_SHORTEST = 24
"""Least characters of a piece: a reference takes as much space as a shorter text."""
_MOST_AROUND = 200
"""Most characters above and below the one text that a message refers to; more make it a list."""
_MOST_COPIED = 1000
"""Most characters of a text that is stored again where it is all of a message, as a reply is in a
memory of everything. Half of what such a prompt takes to read would be the looking up of replies.
"""
_MOST_CANDIDATES = 8
"""How many of the newest texts with a given line are searched for a message's next piece."""


class Source(NamedTuple):
    """A text of an episode."""

    kind: Kind
    """A message's own lines, the observation of a step, or the reply of a call."""
    number: int
    """Of the message or of the step."""
    call_index: int = 0
    """Place of the reply's call in its step."""


class MessageText(NamedTuple):
    """A message's text as the columns of `messages` that hold it."""

    own_lines: str
    """All of it, where the others are None."""
    pieces_json: str | None = None
    """A JSON list of texts and references, one below the other."""
    above: str | None = None
    """Characters before the text that `source` refers to."""
    source: int | None = None
    below: str | None = None
    """Characters after it."""


class _Found(NamedTuple):
    """Characters of a source."""

    source: Source
    first: int
    length: int
    whole: bool
    """Whether they are all that it has."""

    def reference(self) -> int:
        kind, number, call_index = self.source
        place = get_args(Kind).index(kind) | call_index << CALL_BIT | number << NUMBER_BIT
        if self.whole:
            return place
        return place | self.first << FIRST_BIT | self.length << LENGTH_BIT


def _has_room(source: Source, text: str) -> bool:
    """Whether a reference can name any characters of the source."""
    return (
        source.call_index < 1 << (NUMBER_BIT - CALL_BIT)
        and source.number < 1 << (FIRST_BIT - NUMBER_BIT)
        and len(text) < 1 << (_BITS - LENGTH_BIT)
    )


class MessageCutter:
    """Cuts the messages of one episode into pieces of the texts that were added before."""

    def __init__(self) -> None:
        self._texts: dict[Source, str] = {}
        self._begin_with: Mapping[str, list[Source]] = defaultdict(list)
        self._lines: dict[str, tuple[Source, int]] = {}
        """Where each line occurred last: the text, and the line's first character there."""
        self._replies: list[Source] = []
        self._asked: dict[str, Source] = {}
        """Where tools were asked for last, by what was asked."""

    def show(self, source: Source, text: str) -> None:
        """Let later messages refer to a text that the store keeps.

        None does where a reference has no room: at a message or step beyond 131,071, a call of a
        step beyond 255, or a text of 262,144 characters or more.
        """
        if not _has_room(source, text):
            return
        self._texts[source] = text
        if source.kind == "r":
            self._replies.append(source)
        first = 0
        for number, line in enumerate(text.split("\n")):
            if number == 0:
                self._begin_with[line].append(source)
            if len(line) >= _SHORTEST:
                self._lines[line] = (source, first)
            first += len(line) + 1

    def show_tool_calls(self, source: Source, tool_calls_json: str) -> None:
        """Let later messages refer to what a reply asks for."""
        if _has_room(source, ""):
            self._asked[tool_calls_json] = source

    def asked_before(self, tool_calls_json: str) -> int | None:
        """A reference to the reply that asks for the same; None without one."""
        source = self._asked.get(tool_calls_json)
        return None if source is None else _Found(source, 0, 0, whole=True).reference()

    def within_a_reply(self, text: str) -> int | None:
        """A reference to the characters of one of the newest replies that `text` is.

        None where none has it, or where it is too short to be worth one.
        """
        if len(text) < _SHORTEST:
            return None
        for source in reversed(self._replies[-_MOST_CANDIDATES:]):
            first = self._texts[source].find(text)
            if first >= 0:
                whole = len(text) == len(self._texts[source])
                return _Found(source, first, len(text), whole=whole).reference()
        return None

    def cut(self, text: str, *, number: int) -> MessageText:
        """A message as the store keeps it, which later messages may refer to.

        Args:
            text: Of the message.
            number: Of the message in its episode.
        """
        pieces = list(self._pieces(text))
        found = [(place, piece) for place, piece in pieces if isinstance(piece, _Found)]
        if not found:
            self.show(Source("m", number), text)
            return MessageText(own_lines=text)
        begin, longest = max(found, key=lambda each: each[1].length)
        if longest.length == len(text) <= _MOST_COPIED:
            return MessageText(own_lines=text)
        if len(text) - longest.length <= _MOST_AROUND:
            return MessageText(
                own_lines="",
                above=text[:begin],
                source=longest.reference(),
                below=text[begin + longest.length :],
            )
        return self._list(text, [piece for _, piece in pieces], number=number)

    def _pieces(self, text: str) -> Iterator[tuple[int, _Found | str]]:
        """Lines of the text that are repeated, and the other lines, each with its place."""
        place = 0
        while place <= len(text):
            found = self._repeated(text, place)
            piece = found or _line_at(text, place)
            yield place, piece
            place += 1 + (len(piece) if isinstance(piece, str) else piece.length)

    def _list(self, text: str, pieces: Sequence[_Found | str], *, number: int) -> MessageText:
        """A message of several pieces; its long lines that are nowhere else are its own."""
        itself = Source("m", number)
        own_lines = "\n".join(
            piece for piece in pieces if isinstance(piece, str) and len(piece) >= _SHORTEST
        )
        if not _has_room(itself, own_lines):
            return MessageText(own_lines=text)
        listed: list[_Found | list[str]] = []
        place = 0  # in its own lines
        for piece in pieces:
            last = listed[-1] if listed else None
            if isinstance(piece, _Found):
                listed.append(piece)
            elif len(piece) < _SHORTEST:
                if isinstance(last, list):
                    last.append(piece)
                else:
                    listed.append([piece])
            else:
                first = place
                if isinstance(last, _Found) and last.source == itself:
                    first = last.first
                    listed.pop()
                length = place + len(piece) - first
                listed.append(_Found(itself, first, length, whole=length == len(own_lines)))
                place += len(piece) + 1
        self.show(itself, own_lines)
        written = [
            "\n".join(piece) if isinstance(piece, list) else piece.reference() for piece in listed
        ]
        return MessageText(
            own_lines, json.dumps(written, ensure_ascii=False, separators=(",", ":"))
        )

    def _repeated(self, text: str, place: int) -> _Found | None:
        """Whole lines of some text that `text` has at `place`; None if they are short."""
        line = _line_at(text, place)
        for source in reversed(self._begin_with.get(line, ())[-_MOST_CANDIDATES:]):
            other = self._texts[source]
            if len(other) >= _SHORTEST and _has_lines(text, place, other):
                return _Found(source, 0, len(other), whole=True)
        known = self._lines.get(line)
        if known is None:
            return None
        source, first = known
        other = self._texts[source]
        length = len(line)
        while (stop := first + length) < len(other):
            following = "\n" + _line_at(other, stop + 1)
            if not _has_lines(text, place + length, following):
                break
            length += len(following)
        return _Found(source, first, length, whole=length == len(other))


def _line_at(text: str, place: int) -> str:
    end = text.find("\n", place)
    return text[place:] if end < 0 else text[place:end]


def _has_lines(text: str, place: int, lines: str) -> bool:
    """Whether `lines` stand there, up to the end of a line."""
    stop = place + len(lines)
    return text.startswith(lines, place) and (stop == len(text) or text[stop] == "\n")


def source_of(reference: int) -> Source:
    """The text that a reference means characters of."""
    return Source(
        get_args(Kind)[_field(reference, 0, CALL_BIT)],
        _field(reference, NUMBER_BIT, FIRST_BIT),
        _field(reference, CALL_BIT, NUMBER_BIT),
    )


def referred_text(reference: int, *, texts: Mapping[Source, str], name: str) -> str:
    """The characters that a reference means.

    Args:
        reference: An integer that `MessageCutter` gave.
        texts: Of the episode.
        name: That of the message that has the reference, for an error.

    Raises:
        StoreError: They are of a text that is not there, or that is too short.
    """
    source = source_of(reference)
    text = texts.get(source)
    if text is None:
        raise StoreError(f"{name} repeats {source}, which is not in the store")
    length = _field(reference, LENGTH_BIT, _BITS)
    if length == 0:
        return text
    first = _field(reference, FIRST_BIT, LENGTH_BIT)
    if first + length > len(text):
        raise StoreError(
            f"{name} repeats {length} characters, from {first}, of {source}, "
            f"which has {len(text)} in the store"
        )
    return text[first : first + length]


def whole_text(message: MessageText, *, texts: Mapping[Source, str], name: str) -> str:
    """The text that `MessageCutter.cut` cut.

    Args:
        message: What it returned.
        texts: Of the episode.
        name: The message's, for an error.

    Raises:
        StoreError: A piece is of a text that is not there, or that is too short.
    """
    if message.source is not None:
        repeated = referred_text(message.source, texts=texts, name=name)
        return (message.above or "") + repeated + (message.below or "")
    if message.pieces_json is None:
        return message.own_lines
    pieces: list[str | int] = json.loads(message.pieces_json)
    return "\n".join(
        piece if isinstance(piece, str) else referred_text(piece, texts=texts, name=name)
        for piece in pieces
    )


def _field(number: int, begin: int, end: int) -> int:
    return number >> begin & (1 << (end - begin)) - 1


def message_runs(numbers: Iterable[int]) -> str:
    """A prompt as the store keeps it: runs of its messages, a JSON list of an integer each.

    A memory of everything shows one run, however many messages it has.

    Args:
        numbers: Of the messages in the episode, in order.

    Raises:
        StoreError: There are two million messages or more.
    """
    runs: list[tuple[int, int, int]] = []  # position, number of the first, how many
    for position, number in enumerate(numbers):
        if runs and number == runs[-1][1] + runs[-1][2]:
            runs[-1] = (runs[-1][0], runs[-1][1], runs[-1][2] + 1)
        else:
            runs.append((position, number, 1))
    if any(field >= 1 << RUN_BITS for run in runs for field in run):
        raise StoreError(f"a prompt may have messages up to number {(1 << RUN_BITS) - 1:,}")
    packed = [
        first | count << RUN_BITS | position << 2 * RUN_BITS for position, first, count in runs
    ]
    return json.dumps(packed, separators=(",", ":"))


def message_numbers(runs_json: str | None) -> list[int]:
    """The numbers that `message_runs` packed; none of what retention removed."""
    runs: list[int] = json.loads(runs_json or "[]")
    return [
        _field(run, 0, RUN_BITS) + place
        for run in runs
        for place in range(_field(run, RUN_BITS, 2 * RUN_BITS))
    ]
