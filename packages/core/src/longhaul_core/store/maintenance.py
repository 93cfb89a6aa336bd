"""What people do to a store: cancel a run, prune, delete, index its text.

The writer alone commits what a run leaves; these are the other changes, each at a
person's word.

The one decision to know: what may be long works in batches, each a transaction of its own
that takes a fraction of a second, so that a run may go on writing. What is cut short stays
half done, and is finished by doing it again.
"""

import time
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, delete, func, select, text, update
from sqlalchemy.orm import Session

from longhaul_core.errors import StoreError
from longhaul_core.store.addresses import describe_store, store_errors
from longhaul_core.store.models import (
    CallTokensRow,
    EpisodeMediaRow,
    EpisodeRow,
    EpisodeToolsRow,
    EvaluationRow,
    GroupRow,
    MediaRow,
    PanelTaskRow,
    RunRow,
    TaskRow,
    ToolListRow,
)
from longhaul_core.store.queries.runs import RunSummary, is_silent, list_runs
from longhaul_core.store.session import autocommit, write_transaction
from longhaul_core.store.text_index import forget_removed, forget_text, index_text
from longhaul_core.store.writer import GARBAGE_LOCK

__all__ = [
    "PruneRule",
    "cancel_requested",
    "collect_garbage",
    "delete_run",
    "delete_unused",
    "drop_tokens",
    "index_text",
    "request_cancel",
    "runs_to_prune",
    "short_transaction",
]

Key = TypeVar("Key", str, int)

_EPISODES_PER_BATCH = 100
_ROWS_PER_BATCH = 5_000
_PICTURES_PER_BATCH = 200
"""A batch of any takes a fraction of a second: a writer waits for no more."""
_HALF_DELETED = "its deletion was cut short: delete it again"
_TURN_SECONDS = 0.12
"""Between two batches on SQLite: longer than its tenth of a second between two looks at a lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRule:
    """Which ended runs may go. A run goes if every given condition holds; one must be given."""

    older_than_seconds: float | None = None
    """Ended (or, if killed, last heard of) longer ago than this."""
    keep_best: int | None = None
    """Keep this many: those with the highest mean return in any evaluation."""
    name: str | None = None
    """Only runs of this name."""

    def __post_init__(self) -> None:
        if self.older_than_seconds is None and self.keep_best is None:
            raise ValueError("a prune rule needs older_than_seconds or keep_best")
        if self.older_than_seconds is not None and self.older_than_seconds < 0:
            raise ValueError(
                f"older_than_seconds must be at least 0, got {self.older_than_seconds}"
            )
        if self.keep_best is not None and self.keep_best < 0:
            raise ValueError(f"keep_best must be at least 0, got {self.keep_best}")


def request_cancel(engine: Engine, *, run_id: str) -> None:
    """Ask a run to stop; it does within seconds, in the middle of a training step. Harmless twice.

    Raises:
        LookupError: There is no such run.
        StoreError: It is not running.
    """
    with write_transaction(engine) as connection:
        status = connection.scalar(select(RunRow.status).where(RunRow.id == run_id))
        if status is None:
            raise LookupError(f"there is no run {run_id!r} in the store")
        if status != "running":
            raise StoreError(f"run {run_id!r} is not running: it has {status}")
        connection.execute(
            update(RunRow)
            .where(RunRow.id == run_id, RunRow.cancel_requested_at.is_(None))
            .values(cancel_requested_at=time.time())
        )


def cancel_requested(engine: Engine, *, run_id: str) -> bool:
    """Whether someone asked the run to stop since it was started or resumed.

    Raises:
        StoreError: The store refused.
    """
    with store_errors(describe_store(engine.url)), engine.connect() as connection:
        return (
            connection.scalar(select(RunRow.cancel_requested_at).where(RunRow.id == run_id))
            is not None
        )


def runs_to_prune(engine: Engine, *, rule: PruneRule, now: float | None = None) -> list[RunSummary]:
    """Runs that `rule` lets go, newest first; changes nothing.

    A run that is running and was heard of within two minutes is never among them.

    Args:
        engine: Of a store.
        rule: Which may go.
        now: Unix time; None means the clock's.
    """
    now = time.time() if now is None else now
    with Session(engine) as session:
        runs = [
            run
            for run in list_runs(session, limit=1_000_000)
            if (rule.name is None or run.name == rule.name) and not _alive(run, now)
        ]
        best: dict[str, float] = dict(
            session.execute(
                select(EvaluationRow.run_id, func.max(EvaluationRow.mean_return))
                .where(~EvaluationRow.rolled_back)
                .group_by(EvaluationRow.run_id)
            ).all()
        )
    ranked = sorted(
        runs,
        key=lambda run: (best.get(run.run_id, float("-inf")), run.started_at),
        reverse=True,
    )
    kept = {run.run_id for run in ranked[: rule.keep_best or 0]}
    return [
        run
        for run in runs
        if run.run_id not in kept
        and (
            rule.older_than_seconds is None
            or now - (run.ended_at or run.heartbeat_at) > rule.older_than_seconds
        )
    ]


def drop_tokens(engine: Engine, *, run_id: str, force: bool = False) -> int:
    """Delete the tokens and logprobs of a run's calls; text, numbers and credit stay.

    Args:
        engine: Of a store.
        run_id: The run.
        force: Delete them although it seems to be running.

    Returns:
        The number of calls that had tokens. The file shrinks at the next
        `collect_garbage`.

    Raises:
        LookupError: There is no such run.
        StoreError: It is running and `force` is False, or the store refused.
    """
    with store_errors(describe_store(engine.url)), engine.connect() as connection:
        _require_ended(connection, run_id, force=force)
        of_run = select(EpisodeRow.id).where(EpisodeRow.run_id == run_id)
        episode_ids = connection.scalars(of_run.order_by(EpisodeRow.id)).all()
    num_dropped = 0
    for some in _batches(episode_ids, _EPISODES_PER_BATCH):
        with short_transaction(engine) as connection:
            _require_ended(connection, run_id, force=force)  # it may have been resumed meanwhile
            dropped = connection.execute(
                delete(CallTokensRow).where(CallTokensRow.episode_id.in_(some))
            )
            num_dropped += dropped.rowcount
    return num_dropped


def delete_run(engine: Engine, *, run_id: str, force: bool = False) -> None:
    """Delete a run and everything that hangs on it, the run itself last.

    What the death of the process leaves says `failed`, with a message: delete it again.
    Pictures, lists of tools and tasks that no run uses any more stay until `collect_garbage`.

    Args:
        engine: Of a store.
        run_id: The run.
        force: Delete it although it seems to be running.

    Raises:
        LookupError: There is no such run.
        StoreError: It is running and `force` is False, or the store refused.
    """
    of_run = select(EpisodeRow.id).where(EpisodeRow.run_id == run_id)
    there_are_more = True
    while there_are_more:
        with short_transaction(engine) as connection:
            _require_ended(connection, run_id, force=force)
            connection.execute(
                update(RunRow)
                .where(RunRow.id == run_id)
                .values(status="failed", message=_HALF_DELETED)
            )
            some = connection.scalars(of_run.limit(_EPISODES_PER_BATCH)).all()
            forget_text(connection, some)
            connection.execute(delete(EpisodeRow).where(EpisodeRow.id.in_(some)))
            forget_removed(connection)
            there_are_more = len(some) == _EPISODES_PER_BATCH
            if not there_are_more:
                connection.execute(delete(RunRow).where(RunRow.id == run_id))


def collect_garbage(engine: Engine) -> None:
    """Delete pictures, lists of tools, tasks and panels that no run uses; give the space back.

    Reads the whole store. Writers go on meanwhile, but for the end on SQLite: it writes the file
    anew, which needs as much free disk as the store has data, and lets nobody else write.

    Raises:
        StoreError: The store is in use, or the disk is full.
    """
    _collect(engine, MediaRow, per_batch=_PICTURES_PER_BATCH)
    _collect(engine, ToolListRow, per_batch=_ROWS_PER_BATCH)
    with short_transaction(engine) as connection:
        _stop_writers(connection)
        connection.execute(
            text(
                """
                DELETE FROM panel_tasks WHERE content_hash IN (
                    SELECT content_hash FROM panel_tasks EXCEPT SELECT content_hash FROM panels
                )
                """
            )
        )
    _collect_tasks(engine)
    with autocommit(engine) as connection:
        connection.exec_driver_sql(
            "VACUUM" if engine.dialect.name == "sqlite" else "VACUUM ANALYZE"
        )


def _collect_tasks(engine: Engine) -> None:
    """Delete the tasks that nothing refers to: looked for while writers go on, then once more."""
    models = (EpisodeRow, GroupRow, PanelTaskRow)
    unused = [
        ~select(model.task_hash).where(model.task_hash == TaskRow.hash).exists() for model in models
    ]
    with store_errors(describe_store(engine.url)), engine.connect() as connection:
        hashes = connection.scalars(select(TaskRow.hash).where(*unused)).all()
    for some in _batches(hashes, _ROWS_PER_BATCH):
        with short_transaction(engine) as connection:
            _stop_writers(connection)
            connection.execute(delete(TaskRow).where(TaskRow.hash.in_(some), *unused))


_USERS: dict[type[MediaRow | ToolListRow], type[EpisodeMediaRow | EpisodeToolsRow]] = {
    MediaRow: EpisodeMediaRow,
    ToolListRow: EpisodeToolsRow,
}
"""Of what is stored once for all episodes: the table that refers to it."""


def _unused(shared: type[MediaRow | ToolListRow]) -> ColumnElement[bool]:
    user = _USERS[shared]
    return ~select(user.content_hash).where(user.content_hash == shared.content_hash).exists()


def _collect(engine: Engine, shared: type[MediaRow | ToolListRow], *, per_batch: int) -> None:
    """Delete the pictures or lists of tools that no episode refers to, in the same way."""
    with store_errors(describe_store(engine.url)), engine.connect() as connection:
        hashes = connection.scalars(select(shared.content_hash).where(_unused(shared))).all()
    for some in _batches(hashes, per_batch):
        with short_transaction(engine) as connection:
            delete_unused(connection, shared, some)


def delete_unused(
    connection: Connection,
    shared: type[MediaRow | ToolListRow],
    content_hashes: Collection[str],
) -> None:
    """Delete the pictures or lists of tools among these that no episode refers to.

    Args:
        connection: In a write transaction; on PostgreSQL, writers wait until it ends.
        shared: Which of the two.
        content_hashes: Which are asked about.
    """
    _stop_writers(connection)
    connection.execute(
        delete(shared).where(shared.content_hash.in_(content_hashes), _unused(shared))
    )


@contextmanager
def short_transaction(engine: Engine) -> Generator[Connection]:
    """A write transaction, after which a writer that waits has its turn."""
    with write_transaction(engine) as connection:
        yield connection
    if engine.dialect.name == "sqlite":
        # SQLite has no queue: who waits for the lock looks again every tenth of a second.
        time.sleep(_TURN_SECONDS)


def _stop_writers(connection: Connection) -> None:
    """Until the end of the transaction; in SQLite nobody else writes in it anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": GARBAGE_LOCK})


def _batches(found: Sequence[Key], size: int) -> Generator[Sequence[Key]]:
    for start in range(0, len(found), size):
        yield found[start : start + size]


def _alive(run: RunSummary, now: float) -> bool:
    return run.status == "running" and not is_silent(run.status, run.heartbeat_at, now=now)


def _require_ended(connection: Connection, run_id: str, *, force: bool) -> None:
    """Raise if there is no such run, or if it is alive and `force` is False."""
    row = connection.execute(
        select(RunRow.status, RunRow.heartbeat_at).where(RunRow.id == run_id)
    ).one_or_none()
    if row is None:
        raise LookupError(f"there is no run {run_id!r} in the store")
    alive = row.status == "running" and not is_silent(row.status, row.heartbeat_at, now=time.time())
    if alive and not force:
        raise StoreError(f"run {run_id!r} is running: cancel it first")
