"""How big the store is, and how fast it grows."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Double, LargeBinary, Text, cast, func, select, text
from sqlalchemy.orm import Session

from longhaul_core.store.models import (
    Base,
    CallRow,
    CallTokensRow,
    CriticLossInputRow,
    EpisodeMediaRow,
    EpisodeRow,
    LossInputRow,
    MediaRow,
    MessageRow,
    ObservationRow,
    RunRow,
    StepRow,
)
from longhaul_core.store.queries.base import Answer

__all__ = ["RunSize", "StorageStats", "run_sizes", "storage_stats"]

_SAMPLED_EPISODES = 32
"""Of each run, spread over it, to estimate its size from."""
_ROW_BYTES = 100
"""About what a row takes beside its texts and blobs, its entries in indexes included."""
_TEXT: tuple[type[Base], ...] = (StepRow, ObservationRow, CallRow, MessageRow)
_TOKENS: tuple[type[Base], ...] = (CallTokensRow, LossInputRow, CriticLossInputRow)


@dataclass(frozen=True, slots=True)
class RunSize(Answer):
    """What a run takes of the store."""

    run_id: str
    num_episodes: int
    """Failed and rolled_back ones included: they take space too."""
    num_steps: int
    num_bytes: int
    """About: its share of the database, by a sample of its episodes; the sum of the next four."""
    text_bytes: int
    """Steps, observations, calls and messages, with their numbers and credit."""
    token_bytes: int
    """Tokens and what is stored of each: logprobs, values, what the loss read."""
    picture_bytes: int
    """Of a picture that several runs show, each has a part."""
    index_bytes: int
    """Of the text index: a part like the run's part of the text."""


@dataclass(frozen=True, slots=True)
class StorageStats(Answer):
    """Size of a store on disk and what is in it, all runs and attempts taken together."""

    num_runs: int
    num_episodes: int
    """Failed and rolled_back ones included: they take space too."""
    num_steps: int
    num_bytes: int
    """Of the database, indexes and free pages included."""
    bytes_per_episode: float
    """0 while there is none."""
    bytes_per_step: float


def storage_stats(session: Session) -> StorageStats:
    """Bytes on disk, per episode and per step. Fast: no episode's content is read."""
    num_runs, num_episodes, num_steps = session.execute(
        select(
            func.count(func.distinct(EpisodeRow.run_id)),
            func.count(),
            func.coalesce(func.sum(EpisodeRow.num_steps), 0),
        )
    ).one()
    num_bytes = _database_bytes(session)
    return StorageStats(
        num_runs=num_runs,
        num_episodes=num_episodes,
        num_steps=num_steps,
        num_bytes=num_bytes,
        bytes_per_episode=num_bytes / num_episodes if num_episodes else 0.0,
        bytes_per_step=num_bytes / num_steps if num_steps else 0.0,
    )


def run_sizes(session: Session) -> list[RunSize]:
    """What each run takes of the store, the largest first; 0 bytes for one without an episode.

    A few episodes of each run are read, and the whole length of the text index.
    """
    empty = [
        RunSize(run_id, 0, 0, 0, 0, 0, 0, 0)
        for run_id in session.scalars(
            select(RunRow.id)
            .where(~select(EpisodeRow.id).where(EpisodeRow.run_id == RunRow.id).exists())
            .order_by(RunRow.id)
        )
    ]
    counts = session.execute(
        select(EpisodeRow.run_id, func.count(), func.sum(EpisodeRow.num_steps)).group_by(
            EpisodeRow.run_id
        )
    ).all()
    if not counts:
        return empty
    texts: dict[str, float] = {}
    tokens: dict[str, float] = {}
    for run_id, count, _ in counts:
        sampled = _sampled(session, run_id)
        texts[run_id] = count * (_ROW_BYTES + _mean_bytes(session, sampled, _TEXT))
        tokens[run_id] = count * _mean_bytes(session, sampled, _TOKENS)
    pictures = _picture_bytes(session)
    index = _index_bytes(session)
    weight, all_text = sum(texts.values()) + sum(tokens.values()), sum(texts.values())
    rest = max(0.0, _database_bytes(session) - index - sum(pictures.values()))
    sizes: list[RunSize] = []
    for run_id, count, num_steps in counts:
        parts = (
            round(rest * texts[run_id] / weight),
            round(rest * tokens[run_id] / weight),
            round(pictures.get(run_id, 0.0)),
            round(index * texts[run_id] / all_text),
        )
        sizes.append(RunSize(run_id, count, num_steps, sum(parts), *parts))
    return sorted(sizes, key=lambda size: (-size.num_bytes, size.run_id)) + empty


def _database_bytes(session: Session) -> int:
    size = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    if session.get_bind().dialect.name == "postgresql":
        size = "SELECT pg_database_size(current_database())"
    return int(session.execute(text(size)).scalar_one())


def _sampled(session: Session, run_id: str) -> Sequence[str]:
    """Ids of episodes from the whole length of a run."""
    of_run = select(EpisodeRow.id).where(EpisodeRow.run_id == run_id)
    ids = session.scalars(of_run.order_by(EpisodeRow.training_step, EpisodeRow.id)).all()
    return ids[:: max(1, len(ids) // _SAMPLED_EPISODES)]


def _mean_bytes(
    session: Session, episode_ids: Sequence[str], models: Sequence[type[Base]]
) -> float:
    """Of an episode's rows in some tables."""
    num_bytes = 0.0
    for model in models:
        table = Base.metadata.tables[model.__tablename__]
        long = [
            func.coalesce(func.sum(func.length(column)), 0)
            for column in table.c
            if isinstance(column.type, Text | LargeBinary)
        ]
        count, *lengths = session.execute(
            select(func.count(), *long).where(table.c.episode_id.in_(episode_ids))
        ).one()
        num_bytes += _ROW_BYTES * count + sum(lengths)
    return num_bytes / len(episode_ids)


def _picture_bytes(session: Session) -> dict[str, float]:
    """By run; the bytes of a picture are divided among the runs that show it."""
    shown = (
        select(EpisodeRow.run_id, EpisodeMediaRow.content_hash)
        .join(EpisodeMediaRow, EpisodeMediaRow.episode_id == EpisodeRow.id)
        .distinct()
        .subquery()
    )
    runs = (
        select(shown.c.content_hash, func.count().label("num_runs"))
        .group_by(shown.c.content_hash)
        .subquery()
    )
    part = cast(MediaRow.num_bytes, Double) / runs.c.num_runs
    rows = session.execute(
        select(shown.c.run_id, func.sum(part))
        .join(MediaRow, MediaRow.content_hash == shown.c.content_hash)
        .join(runs, runs.c.content_hash == shown.c.content_hash)
        .group_by(shown.c.run_id)
    )
    return {run_id: float(num_bytes) for run_id, num_bytes in rows}


def _index_bytes(session: Session) -> int:
    """Of the text index."""
    size = "SELECT coalesce(sum(length(block)), 0) FROM step_search_data"
    if session.get_bind().dialect.name == "postgresql":
        size = "SELECT pg_total_relation_size('step_search')"
    return int(session.execute(text(size)).scalar_one())
