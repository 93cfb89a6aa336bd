"""Runs: which there are, how far they are, whether they are alive."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, case, false, func, select
from sqlalchemy.orm import Session

from longhaul_core.store.models import AttemptRow, EpisodeRow, MetricRow, RunRow
from longhaul_core.store.queries.base import Answer, columns
from longhaul_core.store.queries.expressions import (
    MEAN_RETURN,
    NUM_ENDED,
    NUM_FAILED,
    NUM_STEPS,
    SUCCESS_RATE,
)
from longhaul_core.store.queries.keyset import after_key, key_order

__all__ = [
    "Attempt",
    "RunDetail",
    "RunSummary",
    "SparkPoint",
    "get_run",
    "is_silent",
    "list_runs",
    "newest_attempt",
    "sparklines",
]

_IN_LIST = 500
"""Values per IN list; see `queries.metrics`."""


@dataclass(frozen=True, slots=True)
class RunSummary(Answer):
    """A run in a list. Counts are of the lineage."""

    run_id: str
    name: str
    kind: str
    """`train`, `evaluate`, `demonstrate`, `imported`, `play` or `branch`."""
    attempt: int
    """0, or how often it was resumed."""
    status: str
    """`running`, `finished`, `failed` or `cancelled`. A run that was killed still says `running`:
    its heartbeat_at no longer moves."""
    message: str
    """Why it failed, else empty."""
    started_at: float
    """Unix time, as are all times here."""
    ended_at: float | None
    heartbeat_at: float
    """Last sign of life."""
    host: str | None
    pid: int | None
    cancel_requested: bool
    num_training_steps: int | None
    """Planned; None where the run has none."""
    num_training_steps_done: int
    """Those whose metrics are there, the last that a training step leaves."""
    num_episodes: int
    """Episodes that ended; failed ones are counted apart."""
    num_failed_episodes: int
    num_steps: int
    num_prompt_tokens: int
    """Read by our engine, over all calls."""
    num_action_tokens: int
    """Sampled by our engine, over all calls."""
    last_mean_return: float | None
    """Over the episodes of the newest training step; None before the first."""
    last_success_rate: float | None
    """In [0, 1]."""


@dataclass(frozen=True, slots=True)
class Attempt(Answer):
    """One process's try at a run."""

    attempt: int
    resumes_after_training_step: int | None
    """The checkpoint that it went on from; None for the first attempt."""
    status: str
    message: str
    started_at: float
    ended_at: float | None
    host: str | None
    pid: int | None
    provenance_json: str
    """What is needed to repeat it, as JSON text."""


@dataclass(frozen=True, slots=True)
class RunDetail(Answer):
    """All about one run but its episodes."""

    summary: RunSummary
    config_json: str
    """The resolved configuration as JSON text, without credentials."""
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class SparkPoint(Answer):
    """The training episodes of one training step, for a small curve."""

    training_step: int
    mean_return: float | None
    """Undiscounted; None if every episode failed."""
    success_rate: float | None
    """In [0, 1]."""


def list_runs(
    session: Session,
    *,
    status: str | None = None,
    kind: str | None = None,
    after: str | None = None,
    limit: int = 100,
) -> list[RunSummary]:
    """Runs, newest first.

    Args:
        session: Only read from.
        status: Only runs that say so: running, finished, failed or cancelled.
        kind: Only runs of this kind, a `RunKind`.
        after: Id of the last run of the page before; None begins.
        limit: At most so many.

    Raises:
        LookupError: There is no run `after`.
    """
    order = (RunRow.started_at.expression, RunRow.id.expression)
    page = select(RunRow.id).order_by(*key_order(order, descending=True)).limit(limit)
    if status is not None:
        page = page.where(RunRow.status == status)
    if kind is not None:
        page = page.where(RunRow.kind == kind)
    if after is not None:
        started_at = session.scalar(select(RunRow.started_at).where(RunRow.id == after))
        if started_at is None:
            raise LookupError(f"there is no run {after!r} in the store")
        page = page.where(after_key(order, (started_at, after), descending=True))
    run_ids = session.scalars(page).all()
    found: list[RunSummary] = []
    for start in range(0, len(run_ids), _IN_LIST):
        some = run_ids[start : start + _IN_LIST]
        rows = session.execute(
            _summaries(EpisodeRow.run_id.in_(some))
            .where(RunRow.id.in_(some))
            .order_by(*key_order(order, descending=True))
        )
        found += [RunSummary(*row) for row in rows]
    return found


def sparklines(
    session: Session, run_ids: Collection[str], *, phase: str = "train"
) -> dict[str, list[SparkPoint]]:
    """A small curve of each run, of its lineage, in one query; an unknown run has an empty one.

    Args:
        session: Only read from.
        run_ids: Which.
        phase: train, baseline, validation or test.
    """
    curves: dict[str, list[SparkPoint]] = {run_id: [] for run_id in run_ids}
    rows = session.execute(
        select(EpisodeRow.run_id, EpisodeRow.training_step, MEAN_RETURN, SUCCESS_RATE)
        .where(
            EpisodeRow.run_id.in_(list(curves)),
            EpisodeRow.rolled_back == false(),
            EpisodeRow.phase == phase,
        )
        .group_by(EpisodeRow.run_id, EpisodeRow.training_step)
        .order_by(EpisodeRow.run_id, EpisodeRow.training_step)
    )
    for run_id, *point in rows:
        curves[run_id].append(SparkPoint(*point))
    return curves


def get_run(session: Session, *, run_id: str) -> RunDetail:
    """One run with its configuration and attempts.

    Raises:
        LookupError: There is no such run.
    """
    row = session.execute(
        _summaries(EpisodeRow.run_id == run_id)
        .add_columns(RunRow.config_json)
        .where(RunRow.id == run_id)
    ).one_or_none()
    if row is None:
        raise LookupError(f"there is no run {run_id!r} in the store")
    attempts = session.execute(
        select(*columns(Attempt, AttemptRow))
        .where(AttemptRow.run_id == run_id)
        .order_by(AttemptRow.attempt)
    )
    return RunDetail(
        summary=RunSummary(*row[:-1]),
        config_json=row.config_json,
        attempts=tuple(Attempt(*attempt) for attempt in attempts),
    )


def newest_run_called(session: Session, name: str) -> str | None:
    """Id of the run of this id, else of the newest run of this name; None where there is none."""
    by_id = (RunRow.id == name).desc()
    return session.scalar(
        select(RunRow.id)
        .where((RunRow.id == name) | (RunRow.name == name))
        .order_by(by_id, RunRow.started_at.desc(), RunRow.id.desc())
        .limit(1)
    )


SILENT_SECONDS = 120.0
"""A running run beats every few seconds; one that is silent for longer was probably killed."""


def is_silent(status: str, heartbeat_at: float, *, now: float) -> bool:
    """Whether a run that should be running has given no sign of life for two minutes.

    Args:
        status: The run's.
        heartbeat_at: Its last sign of life, Unix time.
        now: Unix time.
    """
    return status == "running" and now - heartbeat_at > SILENT_SECONDS


def newest_attempt(session: Session, *, run_id: str) -> int | None:
    """The number of a run's newest attempt; None if the run is not in the store."""
    return session.scalar(select(func.max(AttemptRow.attempt)).where(AttemptRow.run_id == run_id))


def _summaries(*only: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    """Rows of `RunSummary`.

    Args:
        only: Conditions on the episodes to count, so that one run does not count all runs'.
    """
    counts = (
        select(
            EpisodeRow.run_id,
            func.max(case((EpisodeRow.phase == "train", EpisodeRow.training_step))).label("newest"),
            NUM_ENDED.label("num_episodes"),
            NUM_FAILED.label("num_failed"),
            NUM_STEPS.label("num_steps"),
            func.sum(EpisodeRow.num_prompt_tokens).label("num_prompt_tokens"),
            func.sum(EpisodeRow.num_action_tokens).label("num_action_tokens"),
        )
        .where(EpisodeRow.rolled_back == false(), *only)
        .group_by(EpisodeRow.run_id)
        .subquery()
    )
    newest = (
        EpisodeRow.run_id == RunRow.id,
        EpisodeRow.phase == "train",
        EpisodeRow.training_step == counts.c.newest,
        EpisodeRow.rolled_back == false(),
    )
    # Of what stands, a later attempt has the later training steps.
    done = (
        select(MetricRow.training_step)
        .where(MetricRow.run_id == RunRow.id, ~MetricRow.rolled_back)
        .order_by(MetricRow.attempt.desc(), MetricRow.training_step.desc())
        .limit(1)
        .scalar_subquery()
    )
    return (
        select(
            *columns(
                RunSummary,
                RunRow,
                run_id=RunRow.id,
                cancel_requested=RunRow.cancel_requested_at.is_not(None),
                num_training_steps_done=func.coalesce(done, 0),
                num_episodes=func.coalesce(counts.c.num_episodes, 0),
                num_failed_episodes=func.coalesce(counts.c.num_failed, 0),
                num_steps=func.coalesce(counts.c.num_steps, 0),
                num_prompt_tokens=func.coalesce(counts.c.num_prompt_tokens, 0),
                num_action_tokens=func.coalesce(counts.c.num_action_tokens, 0),
                last_mean_return=select(MEAN_RETURN).where(*newest).scalar_subquery(),
                last_success_rate=select(SUCCESS_RATE).where(*newest).scalar_subquery(),
            )
        )
        .select_from(RunRow)
        .outerjoin(counts, counts.c.run_id == RunRow.id)
    )
