"""Measurements over training: metrics, curves from the episodes, evaluations, token pieces."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import false, func, or_, select
from sqlalchemy.orm import Session

from longhaul_core.store.models import EpisodeRow, EvaluationRow, MetricRow, TokenPieceRow
from longhaul_core.store.queries.base import Answer, columns
from longhaul_core.store.queries.expressions import (
    INVALID_ACTION_RATE,
    MEAN_NUM_STEPS,
    MEAN_RETURN,
    NUM_ENDED,
    NUM_FAILED,
    NUM_STEPS,
    SUCCESS_RATE,
)
from longhaul_core.store.queries.panels import num_unplayed, planned_episodes
from longhaul_core.store.records import UNSCORED

__all__ = [
    "CurvePoint",
    "EvaluationResult",
    "MetricPoint",
    "evaluations",
    "metric_names",
    "metric_series",
    "token_ids_of",
    "token_pieces",
    "token_pieces_that_begin",
    "training_curve",
]

_IN_LIST = 500
"""Values per IN list; SQLite takes 32,766 in a statement, parsing them costs more than asking."""


@dataclass(frozen=True, slots=True)
class MetricPoint(Answer):
    """One value of a series."""

    training_step: int
    value: float | None
    """None where it was not a number."""


@dataclass(frozen=True, slots=True)
class CurvePoint(Answer):
    """The episodes of one training step and phase, taken together."""

    phase: str
    """`train`, `baseline`, `validation` or `test`; what a person played is in no curve."""
    training_step: int
    num_episodes: int
    """Episodes that ended; the means are over these."""
    num_failed_episodes: int
    mean_return: float | None
    """Undiscounted; None if every episode failed."""
    success_rate: float | None
    """In [0, 1]."""
    mean_num_steps: float | None
    num_steps: int
    num_action_tokens: int
    invalid_action_rate: float | None
    """Invalid actions per step, failed episodes included."""


@dataclass(frozen=True, slots=True)
class EvaluationResult(Answer):
    """Result on a panel."""

    training_step: int
    """Training steps behind the weights; 0 before training."""
    panel: str
    split: str
    num_episodes: int
    """Episodes that ended."""
    num_unplayed: int | None
    """Other episodes of the panel, which failed for good and are in no score; None where the run
    stored neither its panel nor `validation.samples_per_task`."""
    mean_return: float
    success_rate: float
    """In [0, 1], of the episodes that ended."""


def metric_names(session: Session, *, run_id: str) -> list[str]:
    """Names of all metrics of the run, in alphabetical order; none for an unknown run."""
    statement = (
        select(MetricRow.name).where(MetricRow.run_id == run_id).distinct().order_by(MetricRow.name)
    )
    return list(session.scalars(statement))


def metric_series(
    session: Session, *, run_id: str, names: Sequence[str] | None = None
) -> dict[str, list[MetricPoint]]:
    """The lineage of each metric, keyed by its name, in order of training step.

    Args:
        session: Only read from.
        run_id: The run asked about.
        names: Which; None means all. A name without values gives an empty list.
    """
    statement = (
        select(MetricRow.name, MetricRow.training_step, MetricRow.value)
        .where(MetricRow.run_id == run_id, ~MetricRow.rolled_back)
        .order_by(MetricRow.name, MetricRow.training_step, MetricRow.attempt)
    )
    if names is not None:
        statement = statement.where(MetricRow.name.in_(names))
    series: dict[str, list[MetricPoint]] = {name: [] for name in names or ()}
    for name, training_step, value in session.execute(statement):
        series.setdefault(name, []).append(MetricPoint(training_step, value))
    return series


def training_curve(session: Session, *, run_id: str, phase: str | None = None) -> list[CurvePoint]:
    """Return, success and length by training step, computed from the episodes of its lineage.

    Args:
        session: Only read from.
        run_id: The run asked about.
        phase: Only train, baseline, validation or test; None means all of these. `play` and
            `branch` have no points: neither is in a curve.
    """
    statement = (
        select(
            *columns(
                CurvePoint,
                phase=EpisodeRow.phase,
                training_step=EpisodeRow.training_step,
                num_episodes=NUM_ENDED,
                num_failed_episodes=NUM_FAILED,
                mean_return=MEAN_RETURN,
                success_rate=SUCCESS_RATE,
                mean_num_steps=MEAN_NUM_STEPS,
                num_steps=NUM_STEPS,
                num_action_tokens=func.sum(EpisodeRow.num_action_tokens),
                invalid_action_rate=INVALID_ACTION_RATE,
            )
        )
        .where(
            EpisodeRow.run_id == run_id,
            EpisodeRow.rolled_back == false(),
            EpisodeRow.phase.not_in(UNSCORED),
        )
        .group_by(EpisodeRow.phase, EpisodeRow.training_step)
        .order_by(EpisodeRow.phase, EpisodeRow.training_step)
    )
    if phase is not None:
        statement = statement.where(EpisodeRow.phase == phase)
    return [CurvePoint(*row) for row in session.execute(statement)]


def evaluations(
    session: Session, *, run_id: str, split: str | None = None
) -> list[EvaluationResult]:
    """Results on the run's panels in order of training step, the lineage.

    Args:
        session: Only read from.
        run_id: The run asked about.
        split: Only train, validation or test; None means all.
    """
    statement = (
        select(EvaluationRow)
        .where(EvaluationRow.run_id == run_id, ~EvaluationRow.rolled_back)
        .order_by(EvaluationRow.training_step, EvaluationRow.panel, EvaluationRow.attempt)
    )
    if split is not None:
        statement = statement.where(EvaluationRow.split == split)
    planned = planned_episodes(session, run_ids=[run_id])
    return [
        EvaluationResult(
            training_step=row.training_step,
            panel=row.panel,
            split=row.split,
            num_episodes=row.num_episodes,
            num_unplayed=num_unplayed(
                planned,
                run_id=run_id,
                panel=row.panel,
                split=row.split,
                num_episodes=row.num_episodes,
            ),
            mean_return=row.mean_return,
            success_rate=row.success_rate,
        )
        for row in session.scalars(statement)
    ]


def token_ids_of(session: Session, *, run_id: str, pieces: Collection[bytes]) -> list[int]:
    """The token ids that stand for exactly these bytes, ascending; those that the run named alone.

    Args:
        session: Only read from.
        run_id: The run whose tokenizer is meant.
        pieces: A few.
    """
    statement = (
        select(TokenPieceRow.token_id)
        .where(TokenPieceRow.run_id == run_id, TokenPieceRow.piece.in_(pieces))
        .order_by(TokenPieceRow.token_id)
    )
    return list(session.scalars(statement))


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


def token_pieces_that_begin(
    session: Session, *, run_id: str, letters: Collection[bytes]
) -> list[tuple[int, bytes]]:
    """Token ids with the bytes that they stand for, where these begin with one of the letters.

    Args:
        session: Only read from.
        run_id: The run whose tokenizer is meant.
        letters: A byte each, below 255.
    """
    piece = TokenPieceRow.piece
    begins = ((piece >= letter) & (piece < bytes([letter[0] + 1])) for letter in letters)
    statement = (
        select(TokenPieceRow.token_id, piece)
        .where(TokenPieceRow.run_id == run_id, or_(*begins))
        .order_by(TokenPieceRow.token_id)
    )
    return [(token_id, found) for token_id, found in session.execute(statement)]
