"""What each prompt kept, dropped and added since the prompt before: what the memory did.

It is the difference of consecutive prompts of one stream (agent, purpose, conversation), once of
their messages, line by line where a message changed, and once of their token ids.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from longhaul_core.differences import Change, differences
from longhaul_core.store.message_text import message_numbers
from longhaul_core.store.models import CallRow
from longhaul_core.store.queries.base import Answer
from longhaul_core.store.queries.messages import (
    PromptMessage,
    StoredPicture,
    pictures_of,
    prompt_messages,
)
from longhaul_core.store.queries.replay.outline import require_episode
from longhaul_core.store.queries.replay.tokens import StoredCall, stored_calls
from longhaul_core.store.token_stream import LatestPrompts

__all__ = [
    "LineChange",
    "MessageChange",
    "PromptChanges",
    "TokenChange",
    "message_changes",
    "prompt_changes",
]

Kind = Literal["kept", "dropped", "added"]


class LineChange(NamedTuple):
    """Consecutive lines of a message that changed."""

    kind: Kind
    num_lines: int
    text: str
    """The lines that were dropped or added; empty for what was kept."""


class TokenChange(NamedTuple):
    """Consecutive tokens."""

    kind: Kind
    num_tokens: int


@dataclass(frozen=True, slots=True)
class MessageChange(Answer):
    """Consecutive messages that were kept, or one that was dropped, added or changed."""

    kind: Literal["kept", "dropped", "added", "changed"]
    earlier: int
    """Place in the earlier prompt: of the first one, or, for what is added, where it goes in."""
    later: int
    """Place in the later prompt, likewise."""
    num_messages: int
    message: PromptMessage | None
    """What was dropped or added; None otherwise."""
    lines: tuple[LineChange, ...]
    """Of a message whose text changed, from its first line to its last; empty otherwise."""
    pictures: tuple[StoredPicture, ...] | None
    """That the changed message has now; None unless its text changed."""


@dataclass(frozen=True, slots=True)
class PromptChanges(Answer):
    """A call's prompt against the one before it in its stream."""

    step_index: int
    call_index: int
    earlier_step_index: int | None
    """Of the call before; None for a stream's first, whose prompt is all new."""
    earlier_call_index: int | None
    messages: tuple[MessageChange, ...]
    """In the order of both prompts; they cover both. Empty once retention removed them."""
    tokens: tuple[TokenChange, ...] | None
    """The same of the token ids; None where they are not known of both prompts."""


def prompt_changes(
    session: Session, *, episode_id: str, first: int = 0, stop: int | None = None
) -> tuple[PromptChanges, ...]:
    """What the prompts of steps [first, stop) kept, dropped and added, call by call.

    Args:
        session: Only read from.
        episode_id: Which.
        first: 0-based step.
        stop: Step after the last one; None means the end.

    Raises:
        LookupError: There is no such episode.
        StoreError: Tokens or messages are damaged.
    """
    require_episode(session, episode_id)
    last = None if stop is None else (stop, -1)
    calls = list(stored_calls(session, episode_id, last=last))
    pairs = [(before, call) for before, call in _consecutive(calls) if call.step_index >= first]
    needed = {_key(call) for pair in pairs for call in pair if call is not None}
    numbers = {
        (step_index, call_index): message_numbers(runs)
        for step_index, call_index, runs in session.execute(
            select(CallRow.step_index, CallRow.call_index, CallRow.messages_json).where(
                CallRow.episode_id == episode_id
            )
        )
        if (step_index, call_index) in needed
    }
    messages = prompt_messages(
        session,
        episode_id,
        {number for prompt in numbers.values() for number in prompt},
        pictures=pictures_of(session, episode_id),
    )

    def changes(before: StoredCall | None, call: StoredCall) -> PromptChanges:
        earlier = [] if before is None else [messages[n] for n in numbers[_key(before)]]
        later = [messages[number] for number in numbers[_key(call)]]
        return PromptChanges(
            step_index=call.step_index,
            call_index=call.call_index,
            earlier_step_index=None if before is None else before.step_index,
            earlier_call_index=None if before is None else before.call_index,
            messages=message_changes(earlier, later),
            tokens=_token_changes(before, call),
        )

    return tuple(changes(before, call) for before, call in pairs)


def message_changes(
    earlier: Sequence[PromptMessage], later: Sequence[PromptMessage]
) -> tuple[MessageChange, ...]:
    """What the later prompt kept, dropped and added of the earlier one."""
    return tuple(_message_changes(earlier, later))


def _consecutive(
    calls: Iterable[StoredCall],
) -> Iterator[tuple[StoredCall | None, StoredCall]]:
    """Each call with the one before it in its stream; a fork's first with its agent's last."""
    latest = LatestPrompts[StoredCall]()
    for call in calls:
        yield latest.before(call.stream), call
        latest.add(call.stream, call)


def _key(call: StoredCall) -> tuple[int, int]:
    return call.step_index, call.call_index


def _message_changes(
    earlier: Sequence[PromptMessage], later: Sequence[PromptMessage]
) -> Iterator[MessageChange]:
    changes = differences(earlier, later)
    skip = False
    for index, change in enumerate(changes):
        if skip:
            skip = False
            continue
        following = changes[index + 1] if index + 1 < len(changes) else None
        if change.kind == "dropped" and following is not None and following.kind == "added":
            yield from _replaced(change, following, earlier, later)
            skip = True
        elif change.kind == "kept":
            yield MessageChange(
                kind="kept",
                earlier=change.earlier_from,
                later=change.later_from,
                num_messages=change.earlier_to - change.earlier_from,
                message=None,
                lines=(),
                pictures=None,
            )
        else:
            yield from _whole(change, earlier, later)


def _replaced(
    dropped: Change,
    added: Change,
    earlier: Sequence[PromptMessage],
    later: Sequence[PromptMessage],
) -> Iterator[MessageChange]:
    """Messages that gave way to others: those of one kind are compared, from the last backwards.

    From the last, because what is asked for now stands there, and was asked for before too.
    """
    pairs: dict[int, int] = {}
    stop = added.later_to
    for place in reversed(range(dropped.earlier_from, dropped.earlier_to)):
        match = next(
            (
                now
                for now in reversed(range(added.later_from, stop))
                if _comparable(earlier[place], later[now])
            ),
            None,
        )
        if match is not None:
            pairs[place], stop = match, match
    place, now = dropped.earlier_from, added.later_from
    for before, after in [*sorted(pairs.items()), (dropped.earlier_to, added.later_to)]:
        gone = Change("dropped", place, before, now, now)
        new = Change("added", before, before, now, after)
        yield from _whole(gone, earlier, later)
        yield from _whole(new, earlier, later)
        if before < dropped.earlier_to:
            yield MessageChange(
                kind="changed",
                earlier=before,
                later=after,
                num_messages=1,
                message=None,
                lines=tuple(_line_changes(earlier[before].text, later[after].text)),
                pictures=tuple(p for p in later[after].parts if not isinstance(p, str)),
            )
        place, now = before + 1, after + 1


def _whole(
    change: Change, earlier: Sequence[PromptMessage], later: Sequence[PromptMessage]
) -> Iterator[MessageChange]:
    """Messages that were dropped or added, one by one."""
    dropped = change.kind == "dropped"
    places = (
        range(change.earlier_from, change.earlier_to)
        if dropped
        else range(change.later_from, change.later_to)
    )
    for place in places:
        yield MessageChange(
            kind="dropped" if dropped else "added",
            earlier=place if dropped else change.earlier_from,
            later=change.later_from if dropped else place,
            num_messages=1,
            message=earlier[place] if dropped else later[place],
            lines=(),
            pictures=None,
        )


def _comparable(earlier: PromptMessage, later: PromptMessage) -> bool:
    """Whether they differ in one text and the pictures below it alone, and share some of it."""
    if replace(earlier, parts=()) != replace(later, parts=()):
        return False
    if not (_is_text_then_pictures(earlier) and _is_text_then_pictures(later)):
        return False
    lines = set(earlier.text.split("\n")) & set(later.text.split("\n"))
    return bool(lines - {""})


def _is_text_then_pictures(message: PromptMessage) -> bool:
    texts = [isinstance(part, str) for part in message.parts]
    return bool(texts) and texts[0] and not any(texts[1:])


def _line_changes(earlier: str, later: str) -> Iterator[LineChange]:
    before, now = earlier.split("\n"), later.split("\n")
    for change in differences(before, now):
        if change.kind == "kept":
            yield LineChange("kept", change.earlier_to - change.earlier_from, "")
        elif change.kind == "dropped":
            lines = before[change.earlier_from : change.earlier_to]
            yield LineChange("dropped", len(lines), "\n".join(lines))
        else:
            lines = now[change.later_from : change.later_to]
            yield LineChange("added", len(lines), "\n".join(lines))


def _token_changes(before: StoredCall | None, call: StoredCall) -> tuple[TokenChange, ...] | None:
    if call.prompt is None or (before is not None and before.prompt is None):
        return None
    earlier = () if before is None else before.prompt or ()
    return tuple(
        TokenChange(
            change.kind,
            max(change.earlier_to - change.earlier_from, change.later_to - change.later_from),
        )
        for change in differences(earlier, call.prompt)
    )
