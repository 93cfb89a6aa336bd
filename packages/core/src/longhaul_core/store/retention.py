"""What a run keeps of its older training steps: numbers and actions always, the rest of a sample.

Text, pictures, tokens and logprobs are nine tenths of a step. `Retention` removes them while the
run goes on, a few episodes in a transaction, and marks each episode (`episodes.retention`), so
that whoever reads it knows that something was there.

The one decision to know: an episode goes only once nothing can happen to it any more. One of
training waits until a training step has decided on its group.
"""

import hashlib
from collections.abc import Collection, Sequence
from typing import NamedTuple, get_args

from sqlalchemy import ColumnElement, Connection, Engine, delete, func, insert, select, update

from longhaul_core.store.maintenance import delete_unused
from longhaul_core.store.models import (
    Base,
    CallRow,
    CallTokensRow,
    EpisodeMediaRow,
    EpisodeRow,
    EpisodeToolsRow,
    GroupRow,
    MediaRow,
    MessageRow,
    ObservationRow,
    ToolListRow,
)
from longhaul_core.store.records import FATE_OF_GROUP, Phase
from longhaul_core.store.session import write_transaction
from longhaul_core.store.text_index import forget_removed, forget_text

__all__ = ["Retention"]

_EPISODES_PER_BATCH = 8
"""Episodes of a transaction, which then takes about ten milliseconds."""

# Named in a query, they let the database go by training step in an index that has the phase first.
_OF_ANY_PHASE = EpisodeRow.phase.in_(get_args(Phase))


class _Place(NamedTuple):
    """Where an episode was played."""

    episode_id: str
    phase: str
    training_step: int
    group_index: int


class Retention:
    """Removes what a run does not keep, and continues where an earlier process ended."""

    def __init__(self, engine: Engine, *, run_id: str, sampled_groups: int) -> None:
        """Prepare; nothing is removed yet.

        Args:
            engine: Of a store.
            run_id: The run.
            sampled_groups: Groups of each training step that stay whole, drawn by their number
                alone; so many of each validation and test too.
        """
        self._engine = engine
        self._run_id = run_id
        self._sampled_groups = sampled_groups
        self._first = 0
        """What was in the store of earlier training steps is settled, and not looked up again."""

    def remove_some(self, *, up_to: int) -> bool:
        """Settle a few more episodes of training steps up to `up_to`, in one transaction.

        Returns:
            Whether there may be more.

        Raises:
            StoreError: The store refused; nothing was removed.
        """
        if self._first > up_to:
            return False
        with write_transaction(self._engine) as connection:
            some = self._settled(connection, up_to)
            kept = {place.episode_id for place in some if self._is_sampled(connection, place)}
            _mark(connection, kept, "sampled")
            gone = [place.episode_id for place in some if place.episode_id not in kept]
            if gone:
                _remove(connection, gone)
            if len(some) < _EPISODES_PER_BATCH:
                whole = (*self._whole(), EpisodeRow.training_step <= up_to)
                waits = connection.scalar(select(func.min(EpisodeRow.training_step)).where(*whole))
                self._first = up_to + 1 if waits is None else waits
        return len(some) == _EPISODES_PER_BATCH

    def begin_anew(self) -> None:
        """Ask about all training steps once more: a group may have been written long after them."""
        self._first = 0

    def _whole(self) -> tuple[ColumnElement[bool], ...]:
        """Episodes of the run that nothing was removed from."""
        return (
            EpisodeRow.run_id == self._run_id,
            _OF_ANY_PHASE,
            EpisodeRow.training_step >= self._first,
            EpisodeRow.retention.is_(None),
        )

    def _settled(self, connection: Connection, up_to: int) -> Sequence[_Place]:
        """Some whole episodes that no update or resume can change any more, the oldest first."""
        waits = (
            select(GroupRow.group_index)
            .where(
                GroupRow.run_id == EpisodeRow.run_id,
                GroupRow.attempt == EpisodeRow.attempt,
                GroupRow.phase == "train",
                GroupRow.training_step == EpisodeRow.training_step,
                GroupRow.group_index == EpisodeRow.group_index,
                func.coalesce(GroupRow.resolved_training_step, up_to + 1) > up_to,
            )
            .exists()
        )
        rows = connection.execute(
            select(
                EpisodeRow.id, EpisodeRow.phase, EpisodeRow.training_step, EpisodeRow.group_index
            )
            .where(
                *self._whole(),
                EpisodeRow.training_step <= up_to,
                EpisodeRow.rolled_back | EpisodeRow.phase.not_in(FATE_OF_GROUP) | ~waits,
            )
            .order_by(EpisodeRow.training_step, EpisodeRow.id)
            .limit(_EPISODES_PER_BATCH)
            # PostgreSQL: two processes take different ones; what refers to them may be added.
            .with_for_update(skip_locked=True, key_share=True)
        )
        return [_Place(*row) for row in rows]

    def _is_sampled(self, connection: Connection, place: _Place) -> bool:
        """Whether its group stays whole."""
        if self._sampled_groups == 0:
            return False
        phase = "train" if place.phase in FATE_OF_GROUP else place.phase
        groups = connection.scalars(
            select(GroupRow.group_index)
            .where(
                GroupRow.run_id == self._run_id,
                GroupRow.phase == phase,
                GroupRow.training_step == place.training_step,
            )
            .distinct()
        ).all()

        def drawn(group_index: int) -> bytes:
            name = f"{self._run_id}/{phase}/{place.training_step}/{group_index}"
            return hashlib.blake2b(name.encode(), digest_size=8).digest()

        return place.group_index in sorted(groups, key=drawn)[: self._sampled_groups]


def _mark(connection: Connection, episode_ids: Collection[str], retention: str) -> None:
    if episode_ids:
        connection.execute(
            update(EpisodeRow).where(EpisodeRow.id.in_(episode_ids)).values(retention=retention)
        )


def _remove(connection: Connection, episode_ids: Sequence[str]) -> None:
    """Leave only numbers and actions of episodes."""
    forget_text(connection, episode_ids)
    pictures = _content_hashes(connection, EpisodeMediaRow, episode_ids)
    tools = _content_hashes(connection, EpisodeToolsRow, episode_ids)
    for model in (MessageRow, ObservationRow, CallTokensRow, EpisodeMediaRow, EpisodeToolsRow):
        connection.execute(delete(model).where(model.episode_id.in_(episode_ids)))
    forget_removed(connection)
    if pictures:
        delete_unused(connection, MediaRow, pictures)
    if tools:
        delete_unused(connection, ToolListRow, tools)
    _shrink_calls(connection, episode_ids)
    connection.execute(
        update(EpisodeRow)
        .where(EpisodeRow.id.in_(episode_ids))
        .values(
            final_observation=None,
            final_picture_hashes_json=None,
            final_anchor_state=None,
            retention="removed",
        )
    )


def _content_hashes(
    connection: Connection,
    model: type[EpisodeMediaRow | EpisodeToolsRow],
    episode_ids: Sequence[str],
) -> Sequence[str]:
    """What episodes refer to in another table."""
    of_episodes = model.episode_id.in_(episode_ids)
    return connection.scalars(select(model.content_hash).where(of_episodes).distinct()).all()


_OF_CALLS = (
    "messages_json",
    "reply",
    "tool_calls_json",
    "tools_number",
)
"""Columns of `calls` that are emptied."""


def _shrink_calls(connection: Connection, episode_ids: Sequence[str]) -> None:
    """Delete the rows of calls and insert them again, without their text.

    Not an update: SQLite would leave each row on its page, most of it empty, where no later row
    goes. Rows that are deleted give their pages back.
    """
    calls = Base.metadata.tables[CallRow.__tablename__]
    of_episodes = calls.c.episode_id.in_(episode_ids)
    kept = [column for column in calls.columns if column.name not in _OF_CALLS]
    rows = connection.execute(select(*kept).where(of_episodes).order_by(calls.c.id))
    new = [dict(row) for row in rows.mappings()]
    connection.execute(delete(calls).where(of_episodes))
    if new:
        connection.execute(insert(calls), new)
