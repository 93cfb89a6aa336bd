"""What a transaction changed, noted as its last act: the cursor of those who follow a run."""

from collections import defaultdict
from collections.abc import Collection, Sequence

from sqlalchemy import Connection

from longhaul_core.store.models import ChangeRow, CommitRow
from longhaul_core.store.records import (
    Audit,
    EpisodeCredit,
    Evaluation,
    GroupDecision,
    Label,
    Metrics,
    Record,
    RunEnded,
    RunStarted,
)
from longhaul_core.store.writing.statements import insert

__all__ = ["write_changes"]


def write_changes(
    connection: Connection, batch: Sequence[Record], *, new_episodes: Collection[tuple[str, int]]
) -> None:
    """Count the commit of each run that `batch` changed, and note what.

    Nothing may be written after it: two transactions count in the order in which they commit.

    Args:
        connection: In a write transaction.
        batch: What was written.
        new_episodes: Of the episodes in it, id and training step of those that were not there.
    """
    changed = _changes(batch, new_episodes)
    for run_id in sorted(changed):  # in one order, or two would wait for each other
        table = CommitRow.__table__
        counted = (
            insert(connection, CommitRow)
            .values(run_id=run_id, last_commit=1)
            .on_conflict_do_update(
                index_elements=["run_id"], set_={"last_commit": table.c.last_commit + 1}
            )
            .returning(table.c.last_commit)
        )
        number = connection.execute(counted).scalar_one()
        connection.execute(
            insert(connection, ChangeRow),
            [
                {
                    "run_id": run_id,
                    "commit_number": number,
                    "place": place,
                    "kind": kind,
                    "training_step": training_step,
                    "episode_id": episode_id,
                }
                for place, (kind, training_step, episode_id) in enumerate(changed[run_id])
            ],
        )


_Change = tuple[str, int | None, str | None]
"""Kind, training step, episode id."""


def _changes(
    batch: Sequence[Record], new_episodes: Collection[tuple[str, int]]
) -> dict[str, list[_Change]]:
    """Of each run, without repetition, in the order of what they are."""
    found: dict[str, dict[_Change, None]] = defaultdict(dict)
    for record in batch:
        if isinstance(record, RunStarted | RunEnded):
            found[record.run_id]["run", None, None] = None
    for episode_id, training_step in sorted(new_episodes):
        found[_run_of(episode_id)]["episode", training_step, episode_id] = None
    for record in batch:
        match record:
            case EpisodeCredit():
                change = ("credit", int(record.training_step), record.episode_id)
            case GroupDecision():
                change = ("decision", int(record.resolved_training_step), None)
            case Metrics():
                change = ("metrics", int(record.training_step), None)
            case Evaluation():
                change = ("evaluation", int(record.training_step), None)
            case Label():
                change = ("label", None, record.episode_id)
            case Audit():
                change = ("audit", None, None)
            case _:
                continue
        run_id = _run_of(record.episode_id) if isinstance(record, Label) else record.run_id
        found[run_id][change] = None
    return {run_id: list(changes) for run_id, changes in found.items()}


def _run_of(episode_id: str) -> str:
    """A run's id has no slash, and an episode's begins with it."""
    return episode_id.partition("/")[0]
