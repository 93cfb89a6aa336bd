"""How big the store is, and how fast it grows."""

from dataclasses import dataclass

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from longhaul_core.store.models import EpisodeRow
from longhaul_core.store.queries.answers import Answer

__all__ = ["StorageStats", "storage_stats"]


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
    size = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    if session.get_bind().dialect.name == "postgresql":
        size = "SELECT pg_database_size(current_database())"
    num_bytes = int(session.execute(text(size)).scalar_one())
    return StorageStats(
        num_runs=num_runs,
        num_episodes=num_episodes,
        num_steps=num_steps,
        num_bytes=num_bytes,
        bytes_per_episode=num_bytes / num_episodes if num_episodes else 0.0,
        bytes_per_step=num_bytes / num_steps if num_steps else 0.0,
    )
