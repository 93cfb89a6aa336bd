"""Runs and their attempts: start, resume, sign of life, end."""

from collections.abc import Collection
from typing import NamedTuple, Protocol, get_args

from sqlalchemy import Connection, Select, exists, func, select, text, union, update
from sqlalchemy.orm import aliased

from longhaul_core.errors import StoreError
from longhaul_core.redaction import redacted
from longhaul_core.store.models import (
    AttemptRow,
    EpisodeRow,
    EvaluationRow,
    GroupRow,
    MetricRow,
    PolicyVersionRow,
    RunRow,
    StepRow,
)
from longhaul_core.store.packing import storable_message
from longhaul_core.store.records import FATE_OF_GROUP, Heartbeat, Phase, RunEnded, RunStarted
from longhaul_core.store.rows import Row, row_of
from longhaul_core.store.writing.limits import require_storable
from longhaul_core.store.writing.statements import insert_new
from longhaul_core.text import storable_text

__all__ = [
    "Lineages",
    "beat",
    "end_run",
    "lock_lineages",
    "read_lineages",
    "roll_back",
    "start_run",
]

LINEAGE_LOCK = 0x10D6_4A03
"""PostgreSQL: a run's id, hashed with it, is held together by those that write of the run, and
alone by a start or a resume."""

# Named in a query, they let the database go by training step in an index that has the phase first.
_PHASES: tuple[Phase, ...] = get_args(Phase)


_OF_THE_FIRST = {"id", "name", "kind", "started_at"}
"""What a run keeps of its first attempt."""


class _OfAnAttempt(Protocol):
    """A record of one attempt."""

    @property
    def run_id(self) -> str: ...
    @property
    def attempt(self) -> int: ...


class _OfATrainingStep(_OfAnAttempt, Protocol):
    """A record of one attempt and training step."""

    @property
    def training_step(self) -> int: ...


class _Attempt(NamedTuple):
    attempt: int
    resumes_after: int | None


class Lineages:
    """Which rows of each run a later attempt has taken back."""

    def __init__(self, attempts: dict[str, list[_Attempt]]) -> None:
        self._attempts = attempts

    def rolled_back(self, record: _OfATrainingStep, *, training_step: int | None = None) -> bool:
        """True for a late row of an attempt that was given up before its training step.

        Args:
            record: What is to be written.
            training_step: Instead of the record's own.

        Raises:
            StoreError: The record's attempt was never started.
        """
        number = record.training_step if training_step is None else training_step
        return any(number > after for after in self._resumes_since(record))

    def given_up(self, record: _OfAnAttempt) -> bool:
        """True for a late row of an attempt that a later one went on from.

        Raises:
            StoreError: The record's attempt was never started.
        """
        return bool(self._resumes_since(record))

    def _resumes_since(self, record: _OfAnAttempt) -> list[int]:
        known = self._attempts[record.run_id]
        if all(other.attempt != record.attempt for other in known):
            raise StoreError(
                f"attempt {record.attempt} of run {record.run_id!r} is not in the store: "
                "write its RunStarted first"
            )
        return [
            other.resumes_after
            for other in known
            if other.attempt > record.attempt and other.resumes_after is not None
        ]


def lock_lineages(
    connection: Connection, run_ids: Collection[str], *, to_change: Collection[str]
) -> None:
    """Keep the lineages of the runs as they are until the transaction ends.

    A resume that came between the reading of a line and the rows that are marked by it would leave
    those unmarked. In SQLite nobody else writes during a write transaction.

    Args:
        connection: In a write transaction that has locked no row yet.
        run_ids: Runs that rows are written of; other writers of them need not wait.
        to_change: those of them whose lineages this transaction changes: all writers of them wait.
    """
    if connection.dialect.name != "postgresql":
        return
    for run_id in sorted(run_ids):  # in one order, or two would wait for each other
        lock = "pg_advisory_xact_lock" + ("" if run_id in to_change else "_shared")
        connection.execute(
            text(f"SELECT {lock}(hashtextextended(:run_id, :seed))"),
            {"run_id": run_id, "seed": LINEAGE_LOCK},
        )


def read_lineages(connection: Connection, run_ids: Collection[str]) -> Lineages:
    """Which rows of the runs are of their lineages.

    Raises:
        StoreError: A run is not in the store.
    """
    attempts: dict[str, list[_Attempt]] = {run_id: [] for run_id in run_ids}
    columns = (AttemptRow.run_id, AttemptRow.attempt, AttemptRow.resumes_after_training_step)
    for run_id, attempt, after in connection.execute(
        select(*columns).where(AttemptRow.run_id.in_(run_ids))
    ):
        attempts[run_id].append(_Attempt(attempt, after))
    unknown = sorted(run_id for run_id, known in attempts.items() if not known)
    if unknown:
        raise StoreError(f"run {unknown[0]!r} is not in the store: write its RunStarted first")
    return Lineages(attempts)


def start_run(connection: Connection, record: RunStarted) -> None:
    """Put a run or a further attempt in; roll back what the checkpoint does not hold."""
    begun = row_of(
        RunRow,
        record,
        id=record.run_id,
        status="running",
        message="",
        ended_at=None,
        heartbeat_at=float(record.started_at),
        cancel_requested_at=None,
        config_json=redacted(storable_text(record.config_json)),
    )
    insert_new(connection, RunRow, [begun])
    connection.execute(
        update(RunRow)
        .where(RunRow.id == record.run_id, RunRow.attempt < record.attempt)
        .values({name: begun[name] for name in begun.keys() - _OF_THE_FIRST})
    )
    attempt = row_of(
        AttemptRow,
        record,
        resumes_after_training_step=None,
        status="running",
        message="",
        ended_at=None,
        provenance_json=redacted(storable_text(record.provenance_json)),
    )
    insert_new(connection, AttemptRow, [attempt])
    if record.resumes_after_training_step is not None:
        roll_back(
            connection,
            record.run_id,
            attempt=record.attempt,
            after=record.resumes_after_training_step,
        )


def roll_back(connection: Connection, run_id: str, *, attempt: int, after: int) -> None:
    """Mark rows of attempts before `attempt` that are beyond training step `after`.

    A training episode is beyond it if no training step up to `after` decided on its group: a group
    of asynchronous rollout that waited at the checkpoint is played again, and so is the greedy
    episode beside it.

    What lies up to `after` is not read, but for the groups of greedy episodes: one that stands
    alone may be anywhere.

    Raises:
        StoreError: `attempt` is the first, or went on from another training step.
    """
    if attempt == 0:
        raise StoreError(
            f"run {run_id!r} has no earlier attempt to roll back: write the RunStarted of the "
            "resumed attempt first, with attempt 1 or more"
        )
    require_storable(AttemptRow, [{"resumes_after_training_step": after}])
    this = (AttemptRow.run_id == run_id, AttemptRow.attempt == attempt)
    known = connection.scalar(select(AttemptRow.resumes_after_training_step).where(*this))
    if known not in {None, after}:
        raise StoreError(
            f"attempt {attempt} of run {run_id!r} already went on from training step {known}, "
            f"not from {after}"
        )
    connection.execute(update(AttemptRow).where(*this).values(resumes_after_training_step=after))
    earlier = select(AttemptRow.attempt).where(
        AttemptRow.run_id == run_id, AttemptRow.attempt < attempt
    )
    for model in (MetricRow, EvaluationRow, PolicyVersionRow):
        connection.execute(
            update(model)
            .where(model.run_id == run_id, model.attempt.in_(earlier), model.training_step > after)
            .values(rolled_back=True)
        )
    _roll_back_groups(connection, run_id, earlier=earlier, after=after)
    _roll_back_episodes(connection, run_id, earlier=earlier, after=after)


def _roll_back_groups(
    connection: Connection, run_id: str, *, earlier: Select[int], after: int
) -> None:
    """Mark the groups, each kind of them through an index of its own."""
    sampled = aliased(GroupRow)
    kept = exists().where(
        sampled.run_id == run_id,
        sampled.attempt == GroupRow.attempt,
        sampled.phase == "train",
        sampled.training_step == GroupRow.training_step,
        sampled.group_index == GroupRow.group_index,
        ~sampled.rolled_back,
    )
    for beyond in (
        (GroupRow.phase.in_(_PHASES), GroupRow.training_step > after),
        (GroupRow.phase == "train", GroupRow.resolved_training_step > after),
        (GroupRow.phase == "train", GroupRow.resolved_training_step.is_(None)),
        (GroupRow.phase.in_(FATE_OF_GROUP[1:]), ~kept),
    ):
        connection.execute(
            update(GroupRow)
            .where(GroupRow.run_id == run_id, GroupRow.attempt.in_(earlier), *beyond)
            .values(rolled_back=True)
        )


def _roll_back_episodes(
    connection: Connection, run_id: str, *, earlier: Select[int], after: int
) -> None:
    """Mark the episodes of groups that were rolled back; none of them is trained any more."""
    group = aliased(GroupRow)
    taken_back = (group.run_id == run_id, group.rolled_back)
    played_ahead = union(
        select(group.training_step).where(*taken_back, group.resolved_training_step > after),
        select(group.training_step).where(
            *taken_back, group.resolved_training_step.is_(None), group.phase.in_(FATE_OF_GROUP)
        ),
    )
    of_rolled_back_group = exists().where(
        *taken_back,
        group.attempt == EpisodeRow.attempt,
        group.phase == EpisodeRow.phase,
        group.training_step == EpisodeRow.training_step,
        group.group_index == EpisodeRow.group_index,
    )
    for beyond in (
        (EpisodeRow.phase.in_(_PHASES), EpisodeRow.training_step > after),
        (
            EpisodeRow.phase.in_(FATE_OF_GROUP),
            EpisodeRow.training_step.in_(played_ahead),
            of_rolled_back_group,
        ),
    ):
        lost = (EpisodeRow.run_id == run_id, EpisodeRow.attempt.in_(earlier), *beyond)
        trained = select(EpisodeRow.id).where(*lost, EpisodeRow.trained)
        connection.execute(
            update(StepRow).where(StepRow.episode_id.in_(trained)).values(trained=False)
        )
        connection.execute(
            update(EpisodeRow)
            .where(*lost)
            .values(rolled_back=True, trained=False, trained_training_step=None)
        )


def end_run(connection: Connection, record: RunEnded) -> None:
    """Note how an attempt ended, and the run with it if the attempt is its newest."""
    end: Row = {
        "status": record.status,
        "message": storable_message(redacted(record.message)),
        "ended_at": float(record.ended_at),
    }
    require_storable(RunRow, [end])
    connection.execute(
        update(AttemptRow)
        .where(AttemptRow.run_id == record.run_id, AttemptRow.attempt == record.attempt)
        .values(end)
    )
    connection.execute(
        update(RunRow)
        .where(RunRow.id == record.run_id, RunRow.attempt == record.attempt)
        .values(end | {"heartbeat_at": float(record.ended_at)})
    )


def beat(connection: Connection, record: Heartbeat) -> None:
    """Note a sign of life of the newest attempt."""
    sign: Row = {"heartbeat_at": float(record.at), "host": _host(record), "pid": record.pid}
    require_storable(RunRow, [sign])
    connection.execute(
        update(RunRow)
        .where(
            RunRow.id == record.run_id,
            RunRow.attempt == record.attempt,
            RunRow.heartbeat_at <= record.at,
        )
        .values(
            heartbeat_at=sign["heartbeat_at"],
            host=func.coalesce(sign["host"], RunRow.host),
            pid=func.coalesce(sign["pid"], RunRow.pid),
        )
    )


def _host(record: RunStarted | Heartbeat) -> str | None:
    return None if record.host is None else storable_text(record.host)
