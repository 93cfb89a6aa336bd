"""Groups: the attempts at one task, compared with each other."""

from typing import Any, NamedTuple

from sqlalchemy import Select, and_, func, select
from sqlalchemy.orm import Session

from longhaul_core.store.models import EpisodeRow, GroupRow, TaskRow
from longhaul_core.store.queries.episodes import EpisodeFilter, EpisodeSummary, list_episodes
from longhaul_core.store.queries.expressions import (
    MEAN_RETURN,
    NUM_ENDED,
    NUM_FAILED,
    SUCCESS_RATE,
)

__all__ = ["GroupDetail", "GroupPage", "GroupSummary", "get_group", "list_groups"]


class GroupSummary(NamedTuple):
    """A group in a list. Returns are of the episodes that ended."""

    run_id: str
    attempt: int
    phase: str
    training_step: int
    group_index: int
    environment: str
    task_id: str
    goal: str
    group_size: int | None
    """Episodes asked for."""
    superseded: bool
    num_episodes: int
    """That ended."""
    num_failed_episodes: int
    """Failed tries, retried ones included."""
    mean_return: float | None
    min_return: float | None
    max_return: float | None
    """Equal to min_return: the group carries no signal."""
    success_rate: float | None


class GroupPage(NamedTuple):
    """Part of a list of groups."""

    total: int
    rows: tuple[GroupSummary, ...]


class GroupDetail(NamedTuple):
    """A group and its episodes, failed tries included, by position and retry."""

    summary: GroupSummary
    members: tuple[EpisodeSummary, ...]


def list_groups(
    session: Session,
    *,
    run_id: str,
    phase: str | None = None,
    training_step: int | None = None,
    limit: int = 50,
    offset: int = 0,
) -> GroupPage:
    """A page of the run's surviving groups, the newest training step first.

    Args:
        session: Only read from.
        run_id: The run asked about.
        phase: Only train, baseline, validation or test.
        training_step: Only of this one.
        limit: Rows of a page.
        offset: Rows before it.
    """
    conditions = [GroupRow.run_id == run_id, ~GroupRow.superseded]
    if phase is not None:
        conditions.append(GroupRow.phase == phase)
    if training_step is not None:
        conditions.append(GroupRow.training_step == training_step)
    rows = session.execute(
        _summaries()
        .where(*conditions)
        .order_by(GroupRow.training_step.desc(), GroupRow.phase, GroupRow.group_index)
        .limit(limit)
        .offset(offset)
    )
    total = session.scalar(select(func.count()).select_from(GroupRow).where(*conditions))
    return GroupPage(total=total or 0, rows=tuple(GroupSummary(*row) for row in rows))


def get_group(
    session: Session,
    *,
    run_id: str,
    phase: str,
    training_step: int,
    group_index: int,
    attempt: int | None = None,
) -> GroupDetail:
    """One group with its episodes.

    Args:
        session: Only read from.
        run_id: The run asked about.
        phase: train, baseline, validation or test.
        training_step: When it was played.
        group_index: Place of the task in the training step's batch.
        attempt: Which; None means the one on the surviving line, else the newest.

    Raises:
        LookupError: There is no such group.
    """
    statement = _summaries().where(
        GroupRow.run_id == run_id,
        GroupRow.phase == phase,
        GroupRow.training_step == training_step,
        GroupRow.group_index == group_index,
    )
    if attempt is not None:
        statement = statement.where(GroupRow.attempt == attempt)
    row = session.execute(
        statement.order_by(GroupRow.superseded, GroupRow.attempt.desc()).limit(1)
    ).one_or_none()
    if row is None:
        raise LookupError(
            f"there is no group {group_index} of {phase} step {training_step} in run {run_id!r}"
        )
    summary = GroupSummary(*row)
    page = list_episodes(
        session,
        where=EpisodeFilter(
            run_id=run_id,
            phase=phase,
            min_training_step=training_step,
            max_training_step=training_step,
            group_index=group_index,
            superseded=summary.superseded,
        ),
        limit=10_000,
    )
    members = sorted(
        (row for row in page.rows if row.attempt == summary.attempt),
        key=lambda row: (row.position, row.retry),
    )
    return GroupDetail(summary=summary, members=tuple(members))


def _summaries() -> Select[*tuple[Any, ...]]:
    """Columns in the order of `GroupSummary`'s fields."""
    key = (GroupRow.run_id, GroupRow.attempt, GroupRow.phase, GroupRow.training_step)
    return (
        select(
            *key,
            GroupRow.group_index,
            TaskRow.environment,
            TaskRow.task_id,
            TaskRow.goal,
            GroupRow.group_size,
            GroupRow.superseded,
            NUM_ENDED,
            NUM_FAILED,
            MEAN_RETURN,
            func.min(EpisodeRow.episode_return),
            func.max(EpisodeRow.episode_return),
            SUCCESS_RATE,
        )
        .join(TaskRow, TaskRow.hash == GroupRow.task_hash)
        .join(
            EpisodeRow,
            and_(
                EpisodeRow.run_id == GroupRow.run_id,
                EpisodeRow.attempt == GroupRow.attempt,
                EpisodeRow.phase == GroupRow.phase,
                EpisodeRow.training_step == GroupRow.training_step,
                EpisodeRow.group_index == GroupRow.group_index,
            ),
        )
        .group_by(
            *key,
            GroupRow.group_index,
            TaskRow.environment,
            TaskRow.task_id,
            TaskRow.goal,
            GroupRow.group_size,
            GroupRow.superseded,
        )
    )
