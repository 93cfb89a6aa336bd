"""Measurements over training: metrics, curves from the episodes, evaluations, token pieces."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from longhaul_core.store.models import EpisodeRow, EvaluationRow, MetricRow, TokenPieceRow
from longhaul_core.store.queries.expressions import (
    INVALID_ACTION_RATE,
    MEAN_NUM_STEPS,
    MEAN_RETURN,
    NUM_ENDED,
    NUM_FAILED,
    NUM_STEPS,
    SUCCESS_RATE,
)

__all__ = [
    "CurvePoint",
    "EvaluationResult",
    "MetricPoint",
    "evaluations",
    "metric_names",
    "metric_series",
    "token_pieces",
    "training_curve",
]

_IN_LIST = 500
"""Values per IN list; SQLite takes 32,766 in a statement, parsing them costs more than asking."""


class MetricPoint(NamedTuple):
    """One value of a series."""

    training_step: int
    value: float | None
    """None where it was not a number."""


class CurvePoint(NamedTuple):
    """The episodes of one training step and phase, taken together."""

    phase: str
    training_step: int
    num_episodes: int
    """That ended; means are over these."""
    num_failed_episodes: int
    mean_return: float | None
    """None if every episode failed."""
    success_rate: float | None
    mean_num_steps: float | None
    num_steps: int
    num_action_tokens: int
    invalid_action_rate: float | None
    """Invalid actions per step, failed episodes included."""


class EvaluationResult(NamedTuple):
    """Result on a panel."""

    training_step: int
    panel: str
    split: str
    num_episodes: int
    mean_return: float
    success_rate: float


def metric_names(session: Session, *, run_id: str) -> list[str]:
    """Names of all metrics of the run, in alphabetical order; none for an unknown run."""
    statement = (
        select(MetricRow.name).where(MetricRow.run_id == run_id).distinct().order_by(MetricRow.name)
    )
    return list(session.scalars(statement))


def metric_series(
    session: Session, *, run_id: str, names: Sequence[str] | None = None
) -> dict[str, list[MetricPoint]]:
    """The surviving line of each metric, by name, in order of training step.

    Args:
        session: Only read from.
        run_id: The run asked about.
        names: Which; None means all. A name without values gives an empty list.
    """
    statement = (
        select(MetricRow.name, MetricRow.training_step, MetricRow.value)
        .where(MetricRow.run_id == run_id, ~MetricRow.superseded)
        .order_by(MetricRow.name, MetricRow.training_step, MetricRow.attempt)
    )
    if names is not None:
        statement = statement.where(MetricRow.name.in_(names))
    series: dict[str, list[MetricPoint]] = {name: [] for name in names or ()}
    for name, training_step, value in session.execute(statement):
        series.setdefault(name, []).append(MetricPoint(training_step, value))
    return series


def training_curve(session: Session, *, run_id: str, phase: str | None = None) -> list[CurvePoint]:
    """Return, success and length by training step, computed from the surviving episodes.

    Args:
        session: Only read from.
        run_id: The run asked about.
        phase: Only train, baseline, validation or test; None means all.
    """
    statement = (
        select(
            EpisodeRow.phase,
            EpisodeRow.training_step,
            NUM_ENDED,
            NUM_FAILED,
            MEAN_RETURN,
            SUCCESS_RATE,
            MEAN_NUM_STEPS,
            NUM_STEPS,
            func.sum(EpisodeRow.num_action_tokens),
            INVALID_ACTION_RATE,
        )
        .where(EpisodeRow.run_id == run_id, ~EpisodeRow.superseded)
        .group_by(EpisodeRow.phase, EpisodeRow.training_step)
        .order_by(EpisodeRow.phase, EpisodeRow.training_step)
    )
    if phase is not None:
        statement = statement.where(EpisodeRow.phase == phase)
    return [CurvePoint(*row) for row in session.execute(statement)]


def evaluations(
    session: Session, *, run_id: str, split: str | None = None
) -> list[EvaluationResult]:
    """Results on the run's panels in order of training step, the surviving line.

    Args:
        session: Only read from.
        run_id: The run asked about.
        split: Only train, validation or test; None means all.
    """
    statement = (
        select(
            EvaluationRow.training_step,
            EvaluationRow.panel,
            EvaluationRow.split,
            EvaluationRow.num_episodes,
            EvaluationRow.mean_return,
            EvaluationRow.success_rate,
        )
        .where(EvaluationRow.run_id == run_id, ~EvaluationRow.superseded)
        .order_by(EvaluationRow.training_step, EvaluationRow.panel, EvaluationRow.attempt)
    )
    if split is not None:
        statement = statement.where(EvaluationRow.split == split)
    return [EvaluationResult(*row) for row in session.execute(statement)]


def token_pieces(session: Session, *, run_id: str, token_ids: Collection[int]) -> dict[int, bytes]:
    """The bytes that token ids stand for; ids that the run never named are absent.

    Args:
        session: Only read from.
        run_id: The run whose tokenizer is meant.
        token_ids: In any order, repetitions allowed.
    """
    wanted = sorted(set(token_ids))
    pieces: dict[int, bytes] = {}
    for start in range(0, len(wanted), _IN_LIST):
        statement = select(TokenPieceRow.token_id, TokenPieceRow.piece).where(
            TokenPieceRow.run_id == run_id,
            TokenPieceRow.token_id.in_(wanted[start : start + _IN_LIST]),
        )
        for token_id, piece in session.execute(statement):
            pieces[token_id] = piece
    return pieces
