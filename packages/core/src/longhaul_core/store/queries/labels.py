"""Labels and notes on episodes and steps: who remarked what."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NewType

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from longhaul_core.store.models import EpisodeRow, LabelRow
from longhaul_core.store.queries.base import Answer
from longhaul_core.store.queries.episodes import LabelDetail
from longhaul_core.store.queries.keyset import after_key, decoded_key, encoded_key, key_order

__all__ = ["LabelKey", "LabelOfRun", "LabelPage", "labels_of", "list_labels"]

LabelKey = NewType("LabelKey", str)
"""Where a page of labels ended, as text that may stand in an address."""
_PLACE: tuple[ColumnElement[Any], ...] = (
    LabelRow.episode_id.expression,
    LabelRow.step_index.expression,
    LabelRow.name.expression,
    LabelRow.author.expression,
)


@dataclass(frozen=True, slots=True)
class LabelOfRun(Answer):
    """A remark on an episode, or on one of its steps."""

    episode_id: str
    """Of the episode, rolled back or not."""
    step_index: int | None
    """0-based; None: the whole episode."""
    name: str
    """What is said of it, e.g. `looks stuck`."""
    value: str
    """How, e.g. `yes`, or a comment."""
    author: str
    """A person, or a judge."""
    created_at: float
    """Unix time."""


@dataclass(frozen=True, slots=True)
class LabelPage(Answer):
    """Part of a list of labels."""

    rows: tuple[LabelOfRun, ...]
    """In the order of episodes and steps."""
    next_key: LabelKey | None
    """Where the next page begins; None on the last one."""


def list_labels(
    session: Session,
    *,
    run_id: str,
    name: str | None = None,
    author: str | None = None,
    after: LabelKey | None = None,
    limit: int = 100,
) -> LabelPage:
    """A page of the labels of a run, by episode and step; what was rolled back is labelled still.

    Args:
        session: Only read from.
        run_id: The run asked about.
        name: Only labels of this name.
        author: Only those of this author.
        after: `next_key` of the page before; None begins.
        limit: Rows of a page.

    Raises:
        ConfigError: `after` is no key of such a list.
    """
    statement = (
        select(LabelRow)
        .join(EpisodeRow, EpisodeRow.id == LabelRow.episode_id)
        .where(EpisodeRow.run_id == run_id)
    )
    if name is not None:
        statement = statement.where(LabelRow.name == name)
    if author is not None:
        statement = statement.where(LabelRow.author == author)
    if after is not None:
        place = decoded_key(after, str, int, str, str)
        statement = statement.where(after_key(_PLACE, place, descending=False))
    ordered = statement.order_by(*key_order(_PLACE, descending=False)).limit(limit + 1)
    rows = session.scalars(ordered).all()
    last = rows[limit - 1] if len(rows) > limit else None
    return LabelPage(
        rows=tuple(
            LabelOfRun(
                episode_id=row.episode_id,
                step_index=None if row.step_index == -1 else row.step_index,
                name=row.name,
                value=row.value,
                author=row.author,
                created_at=row.created_at,
            )
            for row in rows[:limit]
        ),
        next_key=None
        if last is None
        else LabelKey(encoded_key(last.episode_id, last.step_index, last.name, last.author)),
    )


def labels_of(session: Session, *, episode_ids: Collection[str]) -> dict[str, list[LabelDetail]]:
    """The labels of each episode: of the whole one first, then by step; the oldest first.

    Args:
        session: Only read from.
        episode_ids: Which; one without labels has an empty list.
    """
    found: dict[str, list[LabelDetail]] = {episode_id: [] for episode_id in episode_ids}
    rows = session.scalars(
        select(LabelRow)
        .where(LabelRow.episode_id.in_(list(found)))
        .order_by(LabelRow.episode_id, LabelRow.step_index, LabelRow.created_at, LabelRow.name)
    )
    for row in rows:
        found[row.episode_id].append(
            LabelDetail(
                step_index=None if row.step_index < 0 else row.step_index,
                name=row.name,
                value=row.value,
                author=row.author,
                created_at=row.created_at,
            )
        )
    return found
