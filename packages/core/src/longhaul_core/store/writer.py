"""Puts records into the store: the only code that commits what a run leaves.

`StoreWriter.write` is one transaction: all of its records are in the store afterwards, or
none. It may be called again with the same records, by the same or another process: natural
keys make a second write change nothing. An episode's steps go in with the episode, so an
episode that is there is there whole, and is skipped before its tokens are packed.

The one decision to know: nothing known to be in the store is remembered between batches.
The database decides what is new, so a retry, a second writer and a pruned store are all
the same case.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.engine import URL

from longhaul_core.errors import StoreError
from longhaul_core.store.addresses import LOCK_WAIT_SECONDS, describe_store
from longhaul_core.store.records import (
    Audit,
    CriticLossInputs,
    EpisodeCredit,
    EpisodeRecord,
    Evaluation,
    GroupDecision,
    Heartbeat,
    Label,
    LeaseRecord,
    LossInputs,
    Metrics,
    PanelTasks,
    PolicyVersion,
    Record,
    RunEnded,
    RunStarted,
    TokenPieces,
)
from longhaul_core.store.session import autocommit, checkpoint, open_store, write_transaction
from longhaul_core.store.writing import episodes, measurements, runs
from longhaul_core.store.writing.changes import write_changes

__all__ = ["StoreWriter", "as_writer"]

logger = logging.getLogger(__name__)

RecordT = TypeVar("RecordT", bound=Record)

GARBAGE_LOCK = 0x10D6_4A02
"""PostgreSQL: writers hold it together; the collection of what is unused, and the text index while
it looks for the newest row, alone."""

CONTENT_TABLE = "longhaul_content"
"""Of an archive or a backup: a hash of each run's rows, until a run goes on in it."""

_CHECKPOINTED = (RunStarted, Metrics, Heartbeat, RunEnded)
"""Records after which the file alone shall hold what was written: a run's begin, each of its
training steps, its signs of life and its end."""

_PAUSE_SECONDS = 0.1
"""Between two looks whether the readers have ended."""


class StoreWriter:
    """Writes records to a store, synchronously. Not for use by two threads at once.

    Several writers, in one or many processes, may work on one store.
    """

    def __init__(self, store: str | Path | URL) -> None:
        """Open the store, creating or upgrading it.

        Raises:
            StoreError: See `open_store`.
        """
        self._engine = open_store(store)
        self._closed = False

    def write(self, records: Iterable[Record]) -> None:
        """Put `records` into the store in one transaction.

        The order inside a batch does not matter, except that `RunStarted` must have come
        in this batch or before, and an episode before or with its group's decision, its credit
        and what the loss read of it.

        Raises:
            StoreError: The store refused, or a record cannot be kept; nothing was written.
        """
        batch = list(records)
        if not batch:
            return
        with write_transaction(self._engine) as connection:
            as_writer(connection)
            starting = _of(RunStarted, batch)
            run_ids = {each.run_id for each in batch if not isinstance(each, Label)}
            runs.lock_lineages(connection, run_ids, to_change={each.run_id for each in starting})
            for started in starting:
                runs.start_run(connection, started)
            if starting:
                connection.execute(text(f"DROP TABLE IF EXISTS {CONTENT_TABLE}"))
            lineages = runs.read_lineages(connection, run_ids)
            new_episodes = episodes.write_episodes(connection, _of(EpisodeRecord, batch), lineages)
            episodes.write_decisions(connection, _of(GroupDecision, batch), lineages)
            episodes.write_credit(connection, _of(EpisodeCredit, batch), lineages)
            episodes.write_loss_inputs(connection, _of(LossInputs, batch))
            episodes.write_loss_inputs(connection, _of(CriticLossInputs, batch))
            measurements.write_metrics(connection, _of(Metrics, batch), lineages)
            measurements.write_evaluations(connection, _of(Evaluation, batch), lineages)
            measurements.write_policy_versions(connection, _of(PolicyVersion, batch), lineages)
            measurements.write_panels(connection, _of(PanelTasks, batch))
            measurements.write_token_pieces(connection, _of(TokenPieces, batch))
            measurements.write_labels(connection, _of(Label, batch))
            measurements.write_audits(connection, _of(Audit, batch))
            measurements.write_leases(connection, _of(LeaseRecord, batch))
            for heartbeat in _of(Heartbeat, batch):
                runs.beat(connection, heartbeat)
            for ended in _of(RunEnded, batch):
                runs.end_run(connection, ended)
            write_changes(connection, batch, new_episodes=new_episodes)
        if any(isinstance(each, _CHECKPOINTED) for each in batch):
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Let a copy of a SQLite file alone have what was written, if no reader is in the way.

        The records are in the store already: what this cannot do is no error of theirs, and the
        next sign of life tries again.
        """
        try:
            checkpoint(self._engine)
        except StoreError as error:
            logger.warning("the store's log stays as it is, trying again later: %s", error)

    def flush(self) -> None:
        """Return once everything written would survive the loss of power.

        A commit survives the death of the process at once; in SQLite its way to the disk
        is not waited for. Call this before a checkpoint that refers to the episodes. Readers do
        not hold it up; another writer does.

        Raises:
            StoreError: The store refused.
        """
        if self._engine.dialect.name == "sqlite":
            with autocommit(self._engine) as connection:
                # A checkpoint would wait for readers, and may then have synced nothing. A commit
                # in this mode syncs the write-ahead log, with all that stands before it there.
                connection.exec_driver_sql("PRAGMA synchronous = FULL")
                try:
                    connection.exec_driver_sql("PRAGMA user_version = 0")  # always writes its page
                finally:
                    connection.exec_driver_sql("PRAGMA synchronous = NORMAL")

    def close(self, *, patience_seconds: float = LOCK_WAIT_SECONDS) -> None:
        """Leave a SQLite file whole, and release the connections. Safe to call twice.

        Args:
            patience_seconds: How long to wait for readers whose transactions keep what was written
                in the log.
        """
        if not self._closed:
            self._closed = True
            if self._engine.dialect.name == "sqlite":
                with suppress(StoreError):  # a store that is held goes without
                    self._count_rows()
                self._bring_in(patience_seconds)
        self._engine.dispose()

    def _count_rows(self) -> None:
        """Count what SQLite chooses its indexes by.

        Not `PRAGMA optimize`: it takes the tables that this connection has asked about, and others
        ask about others.
        """
        with autocommit(self._engine) as connection:
            connection.exec_driver_sql("PRAGMA busy_timeout = 0")
            connection.exec_driver_sql("PRAGMA analysis_limit = 1000")  # rows of each index
            connection.exec_driver_sql("ANALYZE")

    def _bring_in(self, patience_seconds: float) -> None:
        """Bring everything into the file itself.

        SQLite empties its write-ahead log when the last connection closes, and that may be a
        reader's, which cannot.
        """
        where = describe_store(self._engine.url)
        give_up = time.monotonic() + patience_seconds
        try:
            while not checkpoint(self._engine, empty=True):
                if time.monotonic() > give_up:
                    logger.warning(
                        "%s: a reader keeps what was written last in %s-wal: copy both, or copy "
                        "the store by `trainer runs backup`",
                        where,
                        where,
                    )
                    return
                time.sleep(_PAUSE_SECONDS)
        except StoreError as error:
            logger.warning("what was written last stays in %s-wal: %s", where, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def as_writer(connection: Connection) -> None:
    """Until the transaction ends, let no collection begin, and no text index go beyond its rows.

    Args:
        connection: In a write transaction that has locked no row yet. In SQLite nobody else writes
            during one.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock_shared(:key)"), {"key": GARBAGE_LOCK})


def _of(kind: type[RecordT], batch: Sequence[Record]) -> list[RecordT]:
    return [record for record in batch if isinstance(record, kind)]
