"""The text of prompts as the store keeps it: what a message repeats of its episode is a reference.

A prompt is mostly made of what the episode's other rows hold: observations, replies, and earlier
messages. A message is kept as the long lines that are nowhere else, and as a list of pieces, each
a range of characters of some text of the episode, or short lines as they are. One below the other,
the pieces are the message; a view puts them together in SQL (`episode_messages`), and `whole_text`
does here.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Literal, NamedTuple

from longhaul_core.errors import StoreError

__all__ = ["MessageCutter", "Source", "whole_text"]

_SHORTEST = 24
"""Least characters of a piece: a reference takes as much space as a shorter text."""
_MOST_CANDIDATES = 8
"""How many of the newest texts with a given line are searched for a message's next piece."""


class Source(NamedTuple):
    """A text of an episode."""

    kind: Literal["o", "r", "m"]
    """The observation of a step, the reply of a call, or a message's own lines."""
    number: int
    """Of the step or of the message."""
    call_index: int = 0
    """Place of the reply's call in its step."""


class _Found(NamedTuple):
    """Characters of a source."""

    source: Source
    first: int
    length: int


class MessageCutter:
    """Cuts the messages of one episode into pieces of the texts that were added before."""

    def __init__(self) -> None:
        self._texts: dict[Source, str] = {}
        self._begin_with: Mapping[str, list[Source]] = defaultdict(list)
        self._lines: dict[str, tuple[Source, int]] = {}
        """Where each line occurred last: the text, and the line's first character there."""

    def show(self, source: Source, text: str) -> None:
        """Let later messages refer to a text that the store keeps."""
        self._texts[source] = text
        first = 0
        for number, line in enumerate(text.split("\n")):
            if number == 0:
                self._begin_with[line].append(source)
            if len(line) >= _SHORTEST:
                self._lines[line] = (source, first)
            first += len(line) + 1

    def cut(self, text: str, *, number: int) -> tuple[str, str | None]:
        """A message as the store keeps it, which later messages may refer to.

        Args:
            text: Of the message.
            number: Of the message in its episode.

        Returns:
            Its own lines, and its pieces as JSON, one below the other. A piece is a text, or a
            list of a source's three fields, the first character, from 1, and the number of
            characters. None where its own lines are all there is.
        """
        itself = Source("m", number)
        own: list[str] = []
        own_length = -1  # of the lines with their line ends, less the last one
        pieces: list[_Found | list[str]] = []
        place = 0
        while place <= len(text):
            found = self._repeated(text, place)
            if found is not None:
                pieces.append(found)
                place += found.length + 1
                continue
            line = _line_at(text, place)
            place += len(line) + 1
            last = pieces[-1] if pieces else None
            if len(line) < _SHORTEST:
                if isinstance(last, list):
                    last.append(line)
                else:
                    pieces.append([line])
                continue
            first = own_length + 1
            own.append(line)
            own_length = first + len(line)
            if isinstance(last, _Found) and last.source == itself:
                pieces[-1] = _Found(itself, last.first, own_length - last.first)
            else:
                pieces.append(_Found(itself, first, len(line)))
        if all(isinstance(piece, list) or piece.source == itself for piece in pieces):
            self.show(itself, text)
            return text, None
        own_lines = "\n".join(own)
        self.show(itself, own_lines)
        listed = [
            "\n".join(piece)
            if isinstance(piece, list)
            else [*piece.source, piece.first + 1, piece.length]
            for piece in pieces
        ]
        return own_lines, json.dumps(listed, ensure_ascii=False, separators=(",", ":"))

    def _repeated(self, text: str, place: int) -> _Found | None:
        """Whole lines of some text that `text` has at `place`; None if they are short."""
        line = _line_at(text, place)
        for source in reversed(self._begin_with.get(line, ())[-_MOST_CANDIDATES:]):
            other = self._texts[source]
            if len(other) >= _SHORTEST and _has_lines(text, place, other):
                return _Found(source, 0, len(other))
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
        return _Found(source, first, length)


def _line_at(text: str, place: int) -> str:
    end = text.find("\n", place)
    return text[place:] if end < 0 else text[place:end]


def _has_lines(text: str, place: int, lines: str) -> bool:
    """Whether `lines` stand there, up to the end of a line."""
    stop = place + len(lines)
    return text.startswith(lines, place) and (stop == len(text) or text[stop] == "\n")


def whole_text(
    own_lines: str, pieces_json: str | None, *, texts: Mapping[Source, str], message: str
) -> str:
    """The text that `MessageCutter.cut` cut.

    Args:
        own_lines: The message's.
        pieces_json: Its pieces.
        texts: Of the episode.
        message: Its name, for an error.

    Raises:
        StoreError: A piece is of a text that is not there, or that is too short.
    """
    if pieces_json is None:
        return own_lines
    found: list[str] = []
    for piece in json.loads(pieces_json):
        if not isinstance(piece, str):
            kind, number, call_index, first, length = piece
            source = texts.get(Source(kind, number, call_index), "")
            if first - 1 + length > len(source):
                raise StoreError(
                    f"{message} repeats {length} characters, from {first}, of "
                    f"{Source(kind, number, call_index)}, which has {len(source)} in the store"
                )
            piece = source[first - 1 : first - 1 + length]
        found.append(piece)
    return "\n".join(found)
