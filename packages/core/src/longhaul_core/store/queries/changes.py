"""What changed in a run since somebody looked: the cursor of everything that follows it live."""

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from longhaul_core.store.models import ChangeRow, CommitRow, RunRow
from longhaul_core.store.queries.base import Answer, columns

__all__ = ["Change", "ChangeKind", "Changes", "changes_since"]

ChangeKind = Literal[
    "episode", "credit", "decision", "metrics", "evaluation", "run", "label", "audit"
]
"""`episode`: one was written; `credit`: an episode got its advantages; `decision`: a training step
took or discarded groups; `run`: a start, a resume (which takes rows back) or an end."""


@dataclass(frozen=True, slots=True)
class Change(Answer):
    """One thing that a writer committed."""

    commit_number: int
    kind: ChangeKind
    training_step: int | None
    """Of an episode, the one that played it; of a decision, the one that decided. None of a run, a
    label and an audit."""
    episode_id: str | None
    """Of an episode, credit and a label."""


@dataclass(frozen=True, slots=True)
class Changes(Answer):
    """What was committed after a cursor."""

    cursor: int
    """Of the newest commit here: ask with it next time."""
    more: bool
    """Whether there are later commits that were too many for this answer."""
    rows: tuple[Change, ...]
    """In the order of the commits."""
    status: str
    """The run's, now."""
    heartbeat_at: float
    """Its last sign of life, Unix time."""


def changes_since(
    session: Session, *, run_id: str, cursor: int | None = None, limit: int = 1000
) -> Changes:
    """What was committed of a run after `cursor`, each change exactly once.

    A commit is never seen before one with a smaller number, on either database, so nothing is
    missed by asking again with the answer's cursor. Heartbeats are no changes.

    Args:
        session: Only read from.
        run_id: The run asked about.
        cursor: Of an earlier answer; 0 begins with the first commit; None gives no changes but the
            cursor of now: take it before what is to be followed is read.
        limit: About how many; the changes of one commit stay together.

    Raises:
        LookupError: There is no such run.
    """
    run = session.execute(
        select(RunRow.status, RunRow.heartbeat_at, func.coalesce(CommitRow.last_commit, 0))
        .outerjoin(CommitRow, CommitRow.run_id == RunRow.id)
        .where(RunRow.id == run_id)
    ).one_or_none()
    if run is None:
        raise LookupError(f"there is no run {run_id!r} in the store")
    status, heartbeat_at, newest = run
    rows: tuple[Change, ...] = ()
    last = newest
    if cursor is not None and cursor < newest:
        # PostgreSQL's statements each see what is committed then: nothing beyond `newest` is read.
        new = (
            ChangeRow.run_id == run_id,
            ChangeRow.commit_number > cursor,
            ChangeRow.commit_number <= newest,
        )
        in_order = (ChangeRow.commit_number, ChangeRow.place)
        nth = select(ChangeRow.commit_number).where(*new).order_by(*in_order).offset(limit - 1)
        last = session.scalar(nth.limit(1)) or newest
        found = session.execute(
            select(*columns(Change, ChangeRow))
            .where(*new, ChangeRow.commit_number <= last)
            .order_by(*in_order)
        )
        rows = tuple(Change(*row) for row in found)
    return Changes(
        cursor=last, more=last < newest, rows=rows, status=status, heartbeat_at=heartbeat_at
    )
