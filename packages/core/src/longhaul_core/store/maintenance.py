"""What people do to a store: cancel a run, prune, delete, index its text.

The writer alone commits what a run leaves; these are the other changes, each at a
person's word and each one transaction.
"""

import time
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, delete, func, select, text, update
from sqlalchemy.orm import Session

from longhaul_core.errors import StoreError
from longhaul_core.store.models import (
    EpisodeRow,
    EvaluationRow,
    RunRow,
    StepContentRow,
)
from longhaul_core.store.queries.runs import RunSummary, list_runs
from longhaul_core.store.session import autocommit, write_transaction
from longhaul_core.store.writer import GARBAGE_LOCK

__all__ = [
    "PruneRule",
    "cancel_requested",
    "collect_garbage",
    "delete_run",
    "drop_tokens",
    "index_text",
    "request_cancel",
    "runs_to_prune",
]

_ALIVE_SECONDS = 120.0
"""A running run that was silent for longer is taken for dead."""


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
    """Whether someone asked the run to stop since it was started or resumed."""
    with engine.connect() as connection:
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
                .where(~EvaluationRow.superseded)
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


def drop_tokens(engine: Engine, *, run_id: str) -> int:
    """Empty the tokens and logprobs of a run's steps; text, numbers and credit stay.

    Returns:
        The number of steps that had tokens. The file shrinks at the next
        `collect_garbage`.

    Raises:
        LookupError: There is no such run.
    """
    with write_transaction(engine) as connection:
        _require_run(connection, run_id)
        episodes = select(EpisodeRow.id).where(EpisodeRow.run_id == run_id)
        dropped = connection.execute(
            update(StepContentRow)
            .where(
                StepContentRow.episode_id.in_(episodes), StepContentRow.action_tokens.is_not(None)
            )
            .values(
                prompt_tokens=None,
                action_tokens=None,
                behavior_logprobs=None,
                policy_logprobs=None,
                token_values=None,
                token_advantages=None,
            )
        )
        return dropped.rowcount


def delete_run(engine: Engine, *, run_id: str, force: bool = False) -> None:
    """Delete a run and everything that hangs on it.

    Messages and tasks that no run uses any more stay until `collect_garbage`.

    Args:
        engine: Of a store.
        run_id: The run.
        force: Delete it although it seems to be running.

    Raises:
        LookupError: There is no such run.
        StoreError: It is running and `force` is False.
    """
    with write_transaction(engine) as connection:
        row = _require_run(connection, run_id)
        status, heartbeat_at = row
        if status == "running" and time.time() - heartbeat_at < _ALIVE_SECONDS and not force:
            raise StoreError(f"run {run_id!r} is running: cancel it first")
        _forget_text(connection, run_id)
        connection.execute(delete(RunRow).where(RunRow.id == run_id))


def collect_garbage(engine: Engine) -> None:
    """Delete messages, tasks and panels that no run uses, and give free space back to the disk.

    Reads the whole store, and on SQLite needs as much free disk as the store has data;
    writers wait meanwhile.

    Raises:
        StoreError: The store is in use, or the disk is full.
    """
    with write_transaction(engine) as connection:
        listed = "SELECT j.value FROM step_contents, json_each(message_hashes_json) j"
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": GARBAGE_LOCK})
            listed = "SELECT json_array_elements_text(message_hashes_json::json) FROM step_contents"
        for statement in (
            f"DELETE FROM messages WHERE hash NOT IN ({listed})",
            "DELETE FROM panel_tasks WHERE content_hash NOT IN (SELECT content_hash FROM panels)",
            "DELETE FROM tasks WHERE hash NOT IN (SELECT task_hash FROM episodes)"
            " AND hash NOT IN (SELECT task_hash FROM groups)"
            " AND hash NOT IN (SELECT task_hash FROM panel_tasks)",
        ):
            connection.execute(text(statement))
    with autocommit(engine) as connection:
        connection.exec_driver_sql("VACUUM")


def index_text(engine: Engine, *, run_id: str | None = None) -> int:
    """Make observations and replies findable by `queries.search_steps`.

    The writer does not do it: it would cost it a third of its speed for text that few
    runs are searched for. Only what is not indexed yet is added, so calling it again
    after a run has gone on is cheap.

    Args:
        engine: Of a store.
        run_id: Only this run; None means all.

    Returns:
        The number of steps added.
    """
    document = "to_tsvector('simple', c.observation || ' ' || c.reply)"
    statement = f"""
        INSERT INTO step_search (id, document)
        SELECT c.id, {document} FROM step_contents c JOIN episodes e ON e.id = c.episode_id
        WHERE (CAST(:run_id AS text) IS NULL OR e.run_id = :run_id)
        AND c.id NOT IN (SELECT id FROM step_search)
    """
    if engine.dialect.name == "sqlite":
        # The index has no text of its own: its table of documents says what is in it.
        statement = """
            INSERT INTO step_search (rowid, observation, reply)
            SELECT c.id, c.observation, c.reply
            FROM step_contents c JOIN episodes e ON e.id = c.episode_id
            WHERE (CAST(:run_id AS text) IS NULL OR e.run_id = :run_id)
            AND c.id NOT IN (SELECT id FROM step_search_docsize)
        """
    with write_transaction(engine) as connection:
        return connection.execute(text(statement), {"run_id": run_id}).rowcount


def _alive(run: RunSummary, now: float) -> bool:
    return run.status == "running" and now - run.heartbeat_at < _ALIVE_SECONDS


def _require_run(connection: Connection, run_id: str) -> tuple[str, float]:
    row = connection.execute(
        select(RunRow.status, RunRow.heartbeat_at).where(RunRow.id == run_id)
    ).one_or_none()
    if row is None:
        raise LookupError(f"there is no run {run_id!r} in the store")
    return row.status, row.heartbeat_at


def _forget_text(connection: Connection, run_id: str) -> None:
    """Take a run out of the text index; PostgreSQL's goes with its rows."""
    if connection.dialect.name != "sqlite":
        return
    connection.execute(
        text(
            """
            INSERT INTO step_search (step_search, rowid, observation, reply)
            SELECT 'delete', c.id, c.observation, c.reply
            FROM step_contents c JOIN episodes e ON e.id = c.episode_id
            WHERE e.run_id = :run_id AND c.id IN (SELECT id FROM step_search_docsize)
            """
        ),
        {"run_id": run_id},
    )
