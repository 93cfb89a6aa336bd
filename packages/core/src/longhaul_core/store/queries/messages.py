"""Messages of an episode, and what stands beside them: pictures, tools, how a reply was drawn."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from longhaul_core.store.message_text import (
    MessageText,
    Source,
    referred_text,
    source_of,
    whole_text,
)
from longhaul_core.store.models import (
    CallRow,
    EpisodeMediaRow,
    EpisodeToolsRow,
    MediaRow,
    MessageRow,
    ObservationRow,
    ToolListRow,
)
from longhaul_core.store.queries.base import Answer, columns
from longhaul_core.types import MediaType, Role, Sampling, Tool, ToolCall

__all__ = [
    "PromptMessage",
    "StoredPicture",
    "pictures_of",
    "prompt_messages",
    "sampling_of",
    "tool_calls",
    "tools_of",
    "whole_messages",
]

_IN_LIST = 500
"""Most values of one `IN`; SQLite has a limit on variables."""


@dataclass(frozen=True, slots=True)
class StoredPicture(Answer):
    """A picture, by its content; `media` has its bytes."""

    content_hash: str
    """SHA-256 of the bytes as hexadecimal text."""
    media_type: MediaType


@dataclass(frozen=True, slots=True)
class PromptMessage(Answer):
    """One chat message of a prompt."""

    role: Role
    parts: tuple[str | StoredPicture, ...]
    """Its content in order: texts and pictures."""
    tool_calls: tuple[ToolCall, ...]
    """What an assistant's message asks for."""
    tool_call_id: str | None
    """The request that a tool's message answers."""
    reasoning: str
    """An assistant's thoughts, where they were sent apart from its content."""

    @property
    def text(self) -> str:
        """The parts that are text, one below the other."""
        return "\n".join(part for part in self.parts if isinstance(part, str))


def prompt_messages(
    session: Session,
    episode_id: str,
    numbers: Collection[int],
    *,
    pictures: Mapping[str, StoredPicture],
) -> dict[int, PromptMessage]:
    """Messages by number, each whole; nothing else of the episode is read.

    Raises:
        StoreError: One repeats a text that is not in the store.
    """
    rows = [
        row
        for among in _among(MessageRow.number, numbers)
        for row in session.scalars(
            select(MessageRow).where(MessageRow.episode_id == episode_id, among)
        )
    ]
    texts, asked = _repeated(session, episode_id, rows)
    return whole_messages(rows, texts=texts, asked=asked, pictures=pictures)


def whole_messages(
    rows: Iterable[MessageRow],
    *,
    texts: Mapping[Source, str],
    asked: Mapping[Source, str | None],
    pictures: Mapping[str, StoredPicture],
) -> dict[int, PromptMessage]:
    """Messages of an episode by number, each whole.

    Args:
        rows: They, as they are stored.
        texts: All that they repeat: messages' own lines, observations, replies.
        asked: The tools that each such reply asks for, as they are stored.
        pictures: That the episode refers to, by hash.

    Raises:
        StoreError: One repeats a text that is not there.
    """

    def message(row: MessageRow) -> PromptMessage:
        name = f"message {row.number} of {row.episode_id}"
        if row.parts_json is None:
            kept = MessageText(row.own_lines, row.pieces_json, row.above, row.source, row.below)
            parts: tuple[str | StoredPicture, ...] = (whole_text(kept, texts=texts, name=name),)
        else:
            found: list[str | dict[str, str]] = json.loads(row.parts_json)
            parts = tuple(p if isinstance(p, str) else pictures[p["picture"]] for p in found)
        return PromptMessage(
            role=cast("Role", row.role),
            parts=parts,
            tool_calls=tool_calls(
                row.tool_calls_json
                if row.tool_calls_source is None
                else asked.get(source_of(row.tool_calls_source))
            ),
            tool_call_id=row.tool_call_id,
            reasoning=(row.reasoning or "")
            if row.reasoning_source is None
            else referred_text(row.reasoning_source, texts=texts, name=name),
        )

    return {row.number: message(row) for row in rows}


def tool_calls(list_json: str | None) -> tuple[ToolCall, ...]:
    """What is asked for, as the store keeps it."""
    return () if list_json is None else tuple(ToolCall(**each) for each in json.loads(list_json))


def tools_of(session: Session, episode_id: str) -> dict[int, tuple[Tool, ...]]:
    """The lists of tools that calls of the episode were offered, by number."""
    rows = session.execute(
        select(EpisodeToolsRow.number, ToolListRow.tools_json)
        .join(ToolListRow, ToolListRow.content_hash == EpisodeToolsRow.content_hash)
        .where(EpisodeToolsRow.episode_id == episode_id)
    )
    return {number: tuple(Tool(**each) for each in json.loads(tools)) for number, tools in rows}


def sampling_of(sampling_json: str | None) -> Sampling | None:
    """How a reply was drawn, as the store keeps it."""
    if sampling_json is None:
        return None
    drawn: dict[str, Any] = json.loads(sampling_json)
    drawn["stop"] = tuple(drawn["stop"])
    drawn["altered"] = tuple(drawn["altered"].items())
    return Sampling(**drawn)


def numbers_of(list_json: str | None) -> tuple[int, ...]:
    """A list of whole numbers as the store keeps it; null stands for an empty one."""
    return () if list_json is None else tuple(json.loads(list_json))


def texts_of(list_json: str | None) -> tuple[str, ...]:
    """A list of texts as the store keeps it; null stands for an empty one."""
    return () if list_json is None else tuple(json.loads(list_json))


def pictures_of(session: Session, episode_id: str) -> dict[str, StoredPicture]:
    """Those that the episode refers to, by hash."""
    rows = session.execute(
        select(*columns(StoredPicture, MediaRow))
        .join(EpisodeMediaRow, EpisodeMediaRow.content_hash == MediaRow.content_hash)
        .where(EpisodeMediaRow.episode_id == episode_id)
    )
    return {row.content_hash: StoredPicture(*row) for row in rows}


def _repeated(
    session: Session, episode_id: str, rows: Sequence[MessageRow]
) -> tuple[dict[Source, str], dict[Source, str | None]]:
    """The texts that messages repeat, and the tools that replies among these ask for."""
    texts = {Source("m", row.number): row.own_lines for row in rows}
    needed = {source for row in rows for source in _sources(row)} - set(texts)
    asked: dict[Source, str | None] = {}
    wanted = {
        kind: [each.number for each in needed if each.kind == kind] for kind in ("m", "o", "r")
    }
    for among in _among(MessageRow.number, wanted["m"]):
        for number, own_lines in session.execute(
            select(MessageRow.number, MessageRow.own_lines).where(
                MessageRow.episode_id == episode_id, among
            )
        ):
            texts[Source("m", number)] = own_lines
    for among in _among(ObservationRow.step_index, wanted["o"]):
        for step_index, text in session.execute(
            select(ObservationRow.step_index, ObservationRow.text).where(
                ObservationRow.episode_id == episode_id, among
            )
        ):
            texts[Source("o", step_index)] = text
    for among in _among(CallRow.step_index, wanted["r"]):
        for step_index, call_index, reply, asked_json in session.execute(
            select(
                CallRow.step_index, CallRow.call_index, CallRow.reply, CallRow.tool_calls_json
            ).where(CallRow.episode_id == episode_id, among)
        ):
            source = Source("r", step_index, call_index)
            asked[source] = asked_json
            if reply is not None:
                texts[source] = reply
    return texts, asked


def _sources(row: MessageRow) -> Iterator[Source]:
    """What a message refers to."""
    for reference in (row.source, row.tool_calls_source, row.reasoning_source):
        if reference is not None:
            yield source_of(reference)
    if row.pieces_json is not None:
        pieces: list[str | int] = json.loads(row.pieces_json)
        yield from (source_of(piece) for piece in pieces if isinstance(piece, int))


def _among(
    column: InstrumentedAttribute[Any], values: Collection[int]
) -> Iterator[ColumnElement[bool]]:
    """Conditions that together hold for the rows that have one of the values."""
    ordered = sorted(set(values))
    for start in range(0, len(ordered), _IN_LIST):
        yield column.in_(ordered[start : start + _IN_LIST])
