"""What a list of runs shows of each, asked for many runs at once."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from longhaul_core.health import METRICS, HealthWarning, warnings_of
from longhaul_core.store.models import (
    AuditRow,
    EpisodeRow,
    EvaluationRow,
    FailureRow,
    MetricRow,
    RunRow,
    TaskRow,
)
from longhaul_core.store.queries.base import Answer
from longhaul_core.store.queries.panels import num_unplayed, planned_episodes

__all__ = [
    "PanelScore",
    "RunSettings",
    "audit_findings",
    "environments",
    "failure_causes",
    "health_warnings",
    "panel_scores",
    "run_settings",
]


@dataclass(frozen=True, slots=True)
class RunSettings(Answer):
    """What a run was asked to do, from its stored configuration; empty where that does not say."""

    model: str
    environment: str
    """Its environments, or the programs that play; separated by commas."""
    algorithm: str
    seed: int | None


@dataclass(frozen=True, slots=True)
class PanelScore(Answer):
    """The newest evaluation of a run on a panel, beside its first on the same."""

    panel: str
    training_step: int
    """Training steps behind the weights."""
    success_rate: float
    """In [0, 1]."""
    first_success_rate: float
    """Of the first evaluation on this panel; the same if there was one only."""
    num_episodes: int
    """Episodes of the newest one that ended; its success rate is theirs."""
    num_unplayed: int | None
    """As of an `EvaluationResult`."""


def run_settings(session: Session, *, run_ids: Collection[str]) -> dict[str, RunSettings]:
    """The settings of each run, by its id."""
    rows = session.execute(select(RunRow.id, RunRow.config_json).where(RunRow.id.in_(run_ids)))
    return {run_id: _settings(json.loads(config_json)) for run_id, config_json in rows}


def panel_scores(session: Session, *, run_ids: Collection[str]) -> dict[str, PanelScore]:
    """The newest evaluation on a validation panel of each run that has one.

    Of a panel that was scored by environment too, that of the whole panel.
    """
    rows = session.execute(
        select(
            EvaluationRow.run_id,
            EvaluationRow.panel,
            EvaluationRow.training_step,
            EvaluationRow.success_rate,
            EvaluationRow.num_episodes,
        )
        .where(
            EvaluationRow.run_id.in_(run_ids),
            EvaluationRow.split == "validation",
            ~EvaluationRow.rolled_back,
        )
        # The last row is kept: a part of a panel is named after it, and so stands before it here.
        .order_by(EvaluationRow.training_step, EvaluationRow.attempt, EvaluationRow.panel.desc())
    )
    planned = planned_episodes(session, run_ids=run_ids)
    first: dict[tuple[str, str], float] = {}
    newest: dict[str, PanelScore] = {}
    for run_id, panel, training_step, success_rate, num_episodes in rows:
        newest[run_id] = PanelScore(
            panel=panel,
            training_step=training_step,
            success_rate=success_rate,
            first_success_rate=first.setdefault((run_id, panel), success_rate),
            num_episodes=num_episodes,
            num_unplayed=num_unplayed(
                planned, run_id=run_id, panel=panel, split="validation", num_episodes=num_episodes
            ),
        )
    return newest


def health_warnings(
    session: Session, *, run_ids: Collection[str]
) -> dict[str, tuple[int, list[HealthWarning]]]:
    """What the newest training step of each run gives reason to look at.

    Returns:
        By run, that training step and its warnings; runs without metrics are absent.
    """
    newest = (
        select(MetricRow.run_id, func.max(MetricRow.training_step).label("training_step"))
        .where(MetricRow.run_id.in_(run_ids), MetricRow.name.in_(METRICS), ~MetricRow.rolled_back)
        .group_by(MetricRow.run_id)
        .subquery()
    )
    rows = session.execute(
        select(MetricRow.run_id, MetricRow.training_step, MetricRow.name, MetricRow.value)
        .join(
            newest,
            and_(
                newest.c.run_id == MetricRow.run_id,
                newest.c.training_step == MetricRow.training_step,
            ),
        )
        .where(MetricRow.name.in_(METRICS), ~MetricRow.rolled_back)
    )
    values: dict[str, dict[str, float]] = {}
    steps: dict[str, int] = {}
    for run_id, training_step, name, value in rows:
        if value is None:
            continue
        values.setdefault(run_id, {})[name] = value
        steps[run_id] = training_step
    return {run_id: (steps[run_id], warnings_of(metrics)) for run_id, metrics in values.items()}


def audit_findings(session: Session, *, run_ids: Collection[str]) -> dict[str, int]:
    """Findings of the newest audit of each run that was audited."""
    rows = session.execute(
        select(AuditRow.run_id, AuditRow.num_findings)
        .where(AuditRow.run_id.in_(run_ids))
        .order_by(AuditRow.audited_at)
    )
    return {row.run_id: row.num_findings for row in rows}


def environments(session: Session, *, run_id: str) -> list[str]:
    """The environments that the run's episodes were played in, in alphabetical order."""
    played = select(EpisodeRow.task_hash).where(EpisodeRow.run_id == run_id).distinct()
    statement = select(TaskRow.environment).where(TaskRow.hash.in_(played)).distinct()
    return list(session.scalars(statement.order_by(TaskRow.environment)))


def failure_causes(session: Session, *, run_id: str) -> dict[str, int]:
    """Failed episodes of the run's lineage by their cause, the most frequent first."""
    count = func.count()
    rows = session.execute(
        select(FailureRow.cause, count.label("number"))
        .join(EpisodeRow, EpisodeRow.id == FailureRow.episode_id)
        .where(EpisodeRow.run_id == run_id, EpisodeRow.failed, ~EpisodeRow.rolled_back)
        .group_by(FailureRow.cause)
        .order_by(count.desc(), FailureRow.cause)
    )
    return {row.cause: row.number for row in rows}


def _settings(config: Mapping[str, Any]) -> RunSettings:
    model, algorithm = _section(config, "model"), _section(config, "algorithm")
    seed = config.get("seed")
    return RunSettings(
        model=str(model.get("path", "")),
        environment=", ".join(_environments(config)),
        algorithm=str(algorithm.get("name", "")),
        seed=seed if isinstance(seed, int) else None,
    )


def _environments(config: Mapping[str, Any]) -> list[str]:
    many = cast("Sequence[object]", config.get("environments") or ())
    tables = [_section(config, "environment"), *(_table(each) for each in many)]
    named = [table.get("id") for table in tables]
    known = [str(name) for name in named if name]
    agent = _section(config, "agent")
    command = cast("Sequence[Any]", agent.get("command") or ())
    if not known and (program := agent.get("function") or " ".join(str(word) for word in command)):
        known = [str(program)]
    return known


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return _table(config.get(name))


def _table(found: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}
