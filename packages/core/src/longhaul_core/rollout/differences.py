"""Where a program's conversation first differs from the one that was recorded, in a few words."""

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from longhaul_core.types import Message

__all__ = ["Difference", "difference_from"]

_BEFORE, _AFTER = 20, 40
"""Characters of an excerpt before the first other letter, and from there on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first message of a prompt that is not the one of an earlier call."""

    place: int
    """0-based, in the prompt."""
    role: str
    """Of the message that was sent."""
    recorded: str
    """The earlier call's message, where the two part."""
    sent: str

    def __str__(self) -> str:
        return f"message {self.place} ({self.role}) was {self.recorded} and is {self.sent}"


def difference_from(known: Sequence[Message], sent: Message, *, place: int) -> Difference | None:
    """How a message differs from the most similar one that calls have in its place.

    Args:
        known: What calls have after the same messages, the newest last.
        sent: What the prompt has.
        place: Of it, in the prompt.

    Returns:
        The difference; None where no call has any.
    """
    if not known:
        return None
    text = _said(sent)
    nearest = max(
        enumerate(known),
        key=lambda each: (
            each[1].role == sent.role,
            _num_shared(_said(each[1]), text),
            each[0],
        ),
    )[1]
    before = _said(nearest)
    if before == text and nearest.pictures == sent.pictures:
        before, text = f"the thought {nearest.reasoning}", f"the thought {sent.reasoning}"
    first = _num_shared(before, text)
    recorded, now = _excerpt(before, first), _excerpt(text, first)
    if nearest.role != sent.role:
        recorded = f"of the role {nearest.role}, {recorded}"
    if before == text and nearest.pictures != sent.pictures:
        recorded = f"{recorded} with {_counted(nearest)}"
        now = f"{now} with {_counted(sent)}, not the same"
    return Difference(place=place, role=sent.role, recorded=recorded, sent=now)


def _said(message: Message) -> str:
    """Text and calls: what a model reads of a message, but for its pictures."""
    calls = [[call.name, call.arguments] for call in message.tool_calls]
    text = message.text.strip()
    return f"{text}{json.dumps(calls, ensure_ascii=False)}" if calls else text


def _num_shared(one: str, other: str) -> int:
    """Characters that both begin with; no message is walked through character by character."""
    lengths = range(1, min(len(one), len(other)) + 1)
    return bisect_left(lengths, True, key=lambda length: one[:length] != other[:length])


def _excerpt(text: str, first: int) -> str:
    begin, end = max(0, first - _BEFORE), first + _AFTER
    shown = repr(text[begin:end])
    return f"{'…' if begin else ''}{shown}{'…' if end < len(text) else ''}"


def _counted(message: Message) -> str:
    number = len(message.pictures)
    return f"{number} picture{'' if number == 1 else 's'}"
