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

from sqlalchemy import Connection, Engine, bindparam, delete, func, select, text, update
from sqlalchemy.orm import Session

from longhaul_core.errors import StoreError
from longhaul_core.store.addresses import describe_store, store_errors
from longhaul_core.store.models import (
    CallRow,
    EpisodeMediaRow,
    EpisodeRow,
    EvaluationRow,
    GroupRow,
    MediaRow,
    PanelTaskRow,
    RunRow,
    TaskRow,
)
from longhaul_core.store.queries.runs import RunSummary, is_silent, list_runs
from longhaul_core.store.session import autocommit, write_transaction
from longhaul_core.store.writer import GARBAGE_LOCK

__all__ = [
    "PruneRule",
    "cancel_requested",
    "collect_garbage",
    "delete_run",
    "delete_unused_pictures",
    "drop_tokens",
    "forget_text",
    "index_text",
    "request_cancel",
    "runs_to_prune",
]

Key = TypeVar("Key", str, int)

_EPISODES_PER_BATCH = 100
_ROWS_PER_BATCH = 5_000
_PICTURES_PER_BATCH = 200
"""A batch of any takes a fraction of a second: a writer waits for no more."""
_MOST_AT_ONCE = 1_000_000
"""Keys of rows that are kept in memory: a tenth of a gigabyte."""
# A tsvector has a megabyte at most, and takes up to 3.4 bytes a byte of text (a list of short
# URLs); 65,536 characters are 256 KiB at most.
_POSTGRESQL_TEXT = """
CASE WHEN octet_length(t.observation) + octet_length(t.replies) < 262144
     THEN t.replies || ' ' || t.observation
     ELSE left(left(t.replies, 65536) || ' ' || t.observation, 65536) END
"""
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


def drop_tokens(engine: Engine, *, run_id: str) -> int:
    """Empty the tokens and logprobs of a run's calls; text, numbers and credit stay.

    Returns:
        The number of calls that had tokens. The file shrinks at the next
        `collect_garbage`.

    Raises:
        LookupError: There is no such run.
        StoreError: The store refused.
    """
    with engine.connect() as connection:
        _require_run(connection, run_id)
        of_run = select(EpisodeRow.id).where(EpisodeRow.run_id == run_id)
        episode_ids = connection.scalars(of_run.order_by(EpisodeRow.id)).all()
    num_dropped = 0
    for some in _batches(episode_ids, _EPISODES_PER_BATCH):
        with _short_transaction(engine) as connection:
            dropped = connection.execute(
                update(CallRow)
                .where(CallRow.episode_id.in_(some), CallRow.tokens.is_not(None))
                .values(
                    tokens=None,
                    behavior_logprobs=None,
                    policy_logprobs=None,
                    token_values=None,
                    token_advantages=None,
                )
            )
            num_dropped += dropped.rowcount
    return num_dropped


def delete_run(engine: Engine, *, run_id: str, force: bool = False) -> None:
    """Delete a run and everything that hangs on it, the run itself last.

    Pictures and tasks that no run uses any more stay until `collect_garbage`.

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
        with _short_transaction(engine) as connection:
            status, heartbeat_at = _require_run(connection, run_id)
            alive = status == "running" and not is_silent(status, heartbeat_at, now=time.time())
            if alive and not force:
                raise StoreError(f"run {run_id!r} is running: cancel it first")
            some = connection.scalars(of_run.limit(_EPISODES_PER_BATCH)).all()
            forget_text(connection, some)
            connection.execute(delete(EpisodeRow).where(EpisodeRow.id.in_(some)))
            there_are_more = len(some) == _EPISODES_PER_BATCH
            if not there_are_more:
                connection.execute(delete(RunRow).where(RunRow.id == run_id))


def collect_garbage(engine: Engine) -> None:
    """Delete pictures, tasks and panels that no run uses, and give the space back.

    Reads the whole store. Writers go on meanwhile, but for the end on SQLite: it writes the file
    anew, which needs as much free disk as the store has data, and lets nobody else write.

    Raises:
        StoreError: The store is in use, or the disk is full.
    """
    _collect_pictures(engine)
    with _short_transaction(engine) as connection:
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
        with _short_transaction(engine) as connection:
            _stop_writers(connection)
            connection.execute(delete(TaskRow).where(TaskRow.hash.in_(some), *unused))


def _collect_pictures(engine: Engine) -> None:
    """Delete the pictures that no episode refers to, in the same way."""
    with store_errors(describe_store(engine.url)), engine.connect() as connection:
        hashes = connection.scalars(select(MediaRow.content_hash).where(_UNUSED)).all()
    for some in _batches(hashes, _PICTURES_PER_BATCH):
        with _short_transaction(engine) as connection:
            delete_unused_pictures(connection, some)


_UNUSED = (
    ~select(EpisodeMediaRow.content_hash)
    .where(EpisodeMediaRow.content_hash == MediaRow.content_hash)
    .exists()
)


def delete_unused_pictures(connection: Connection, content_hashes: Collection[str]) -> None:
    """Delete the pictures among these that no episode refers to.

    Args:
        connection: In a write transaction; on PostgreSQL, writers wait until it ends.
        content_hashes: Which are asked about.
    """
    _stop_writers(connection)
    connection.execute(delete(MediaRow).where(MediaRow.content_hash.in_(content_hashes), _UNUSED))


def index_text(engine: Engine, *, run_id: str | None = None) -> int:
    """Make observations and replies findable by `queries.search_steps`.

    The writer does not do it: it would cost it a third of its speed for text that few
    runs are searched for. Only what is not indexed yet is added, so calling it again
    after a run has gone on is cheap.

    PostgreSQL's index has limits that SQLite's has not: of a step whose text is longer than 256 KiB
    it holds the first 65,536 characters, the reply's before the observation's, and no word of 2 KiB
    or more.

    Args:
        engine: Of a store.
        run_id: Only this run; None means all.

    Returns:
        The number of steps added.

    Raises:
        StoreError: The store refused.
    """
    sqlite = engine.dialect.name == "sqlite"
    # SQLite's index has no text of its own: its table of documents says what is in it.
    indexed = "step_search_docsize" if sqlite else "step_search"
    columns, values = (
        ("rowid, observation, replies", "t.id, t.observation, t.replies")
        if sqlite
        else ("id, document", f"t.id, to_tsvector('simple', {_POSTGRESQL_TEXT})")
    )
    source = "FROM {} t"
    if run_id is not None:
        source += " JOIN episodes e ON e.id = t.episode_id AND e.run_id = :run_id"
    missing = text(
        f"""
        SELECT t.id {source.format("observations")} WHERE t.id > :after
        AND NOT EXISTS (SELECT 1 FROM {indexed} s WHERE s.id = t.id)
        ORDER BY t.id LIMIT :most
        """
    )
    # Another program may have indexed some of them since. All is bounded on both sides, or
    # PostgreSQL may read the whole index for a batch.
    add = text(
        f"""
        INSERT INTO step_search ({columns}) SELECT {values} {source.format("step_texts")}
        WHERE t.id BETWEEN :first AND :last AND NOT EXISTS (
            SELECT 1 FROM {indexed} s WHERE s.id = t.id AND s.id BETWEEN :first AND :last
        )
        """
    )
    of_run = {} if run_id is None else {"run_id": run_id}
    num_added, after = 0, 0
    while True:
        with store_errors(describe_store(engine.url)), engine.connect() as connection:
            place = {"after": after, "most": _MOST_AT_ONCE}
            ids = connection.scalars(missing, place | of_run).all()
        for some in _batches(ids, _ROWS_PER_BATCH):
            with _short_transaction(engine) as connection:
                ends = {"first": some[0], "last": some[-1]}
                num_added += connection.execute(add, ends | of_run).rowcount
        if len(ids) < _MOST_AT_ONCE:
            return num_added
        after = ids[-1]


@contextmanager
def _short_transaction(engine: Engine) -> Generator[Connection]:
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


def _require_run(connection: Connection, run_id: str) -> tuple[str, float]:
    row = connection.execute(
        select(RunRow.status, RunRow.heartbeat_at).where(RunRow.id == run_id)
    ).one_or_none()
    if row is None:
        raise LookupError(f"there is no run {run_id!r} in the store")
    return row.status, row.heartbeat_at


def forget_text(connection: Connection, episode_ids: Collection[str]) -> None:
    """Remove episodes from the text index, before their text is removed.

    PostgreSQL removes index entries with their rows.
    """
    if connection.dialect.name != "sqlite":
        return
    connection.execute(
        text(
            """
            INSERT INTO step_search (step_search, rowid, observation, replies)
            SELECT 'delete', t.id, t.observation, t.replies FROM step_texts t
            WHERE t.episode_id IN :episode_ids
            AND EXISTS (SELECT 1 FROM step_search_docsize d WHERE d.id = t.id)
            """
        ).bindparams(bindparam("episode_ids", expanding=True)),
        {"episode_ids": episode_ids},
    )
