"""Groups: the attempts at one task, compared with each other."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, SQLColumnExpression, and_, func, select
from sqlalchemy.orm import Session, aliased

from longhaul_core.store.models import EpisodeRow, GroupRow, StepRow, TaskRow
from longhaul_core.store.queries.answers import Answer, columns
from longhaul_core.store.queries.episodes import EpisodeSummary, episodes_of_group
from longhaul_core.store.queries.expressions import (
    MEAN_RETURN,
    NUM_ENDED,
    NUM_FAILED,
    SUCCESS_RATE,
)

__all__ = ["GroupDetail", "GroupPage", "GroupSummary", "get_group", "list_groups"]


@dataclass(frozen=True, slots=True)
class GroupSummary(Answer):
    """A group in a list. Returns are of the episodes that ended."""

    run_id: str
    attempt: int
    """Of the run: 0, or how often it had been resumed."""
    phase: str
    training_step: int
    group_index: int
    """Place of the task in the training step's batch, or in the panel."""
    environment: str
    task_id: str
    goal: str
    group_size: int | None
    """Episodes requested."""
    rolled_back: bool
    """Whether a resume went on from before this group."""
    num_episodes: int
    """That ended."""
    num_failed_episodes: int
    """Failed tries, retried ones included."""
    mean_return: float | None
    min_return: float | None
    max_return: float | None
    success_rate: float | None
    """In [0, 1]."""
    max_abs_advantage: float | None
    """Largest |advantage| of a step, a mean where tokens have their own. 0: nothing in the group
    was better or worse than what it was compared with, so the policy loss learned nothing from
    it. None: no step was given credit. Equal returns alone do not say so: credit is given for
    shaped rewards, and by steps."""


@dataclass(frozen=True, slots=True)
class GroupPage(Answer):
    """Part of a list of groups."""

    total: int
    """Matching groups in all."""
    rows: tuple[GroupSummary, ...]


@dataclass(frozen=True, slots=True)
class GroupDetail(Answer):
    """A group and its episodes, failed tries included, by sample_index and retry."""

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
    """A page of the groups of the run's lineage, the newest training step first.

    Args:
        session: Only read from.
        run_id: The run asked about.
        phase: Only train, baseline, validation or test.
        training_step: Only of this one.
        limit: Rows of a page.
        offset: Rows before it.
    """
    conditions = [GroupRow.run_id == run_id, ~GroupRow.rolled_back]
    if phase is not None:
        conditions.append(GroupRow.phase == phase)
    if training_step is not None:
        conditions.append(GroupRow.training_step == training_step)
    order = (GroupRow.training_step.desc(), GroupRow.phase, GroupRow.group_index)
    page = select(GroupRow).where(*conditions).order_by(*order).limit(limit).offset(offset)
    rows = _summaries(session, page)
    total = session.scalar(select(func.count()).select_from(GroupRow).where(*conditions))
    return GroupPage(total=total or 0, rows=tuple(rows))


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
        attempt: Which; None means the one on the lineage, else the newest.

    Raises:
        LookupError: There is no such group.
    """
    statement = select(GroupRow).where(
        GroupRow.run_id == run_id,
        GroupRow.phase == phase,
        GroupRow.training_step == training_step,
        GroupRow.group_index == group_index,
    )
    if attempt is not None:
        statement = statement.where(GroupRow.attempt == attempt)
    found = _summaries(
        session, statement.order_by(GroupRow.rolled_back, GroupRow.attempt.desc()).limit(1)
    )
    if not found:
        raise LookupError(
            f"there is no group {group_index} of {phase} step {training_step} in run {run_id!r}"
        )
    (summary,) = found
    return GroupDetail(
        summary=summary,
        members=episodes_of_group(
            session,
            run_id=run_id,
            attempt=summary.attempt,
            phase=phase,
            training_step=training_step,
            group_index=group_index,
        ),
    )


def _summaries(session: Session, groups: Select[GroupRow]) -> list[GroupSummary]:
    """What `groups` selects, in the order of a list; episodes are read for these groups only."""
    wanted = aliased(GroupRow, groups.subquery())
    largest_of_episode = (
        select(func.max(func.abs(StepRow.advantage)))
        .where(StepRow.episode_id == EpisodeRow.id)
        .scalar_subquery()
    )
    described: tuple[SQLColumnExpression[Any], ...] = (
        wanted.run_id,
        wanted.attempt,
        wanted.phase,
        wanted.training_step,
        wanted.group_index,
        TaskRow.environment,
        TaskRow.task_id,
        TaskRow.goal,
        wanted.group_size,
        wanted.rolled_back,
    )
    rows = session.execute(
        select(
            *columns(
                GroupSummary,
                **{column.key: column for column in described},
                num_episodes=NUM_ENDED,
                num_failed_episodes=NUM_FAILED,
                mean_return=MEAN_RETURN,
                min_return=func.min(EpisodeRow.episode_return),
                max_return=func.max(EpisodeRow.episode_return),
                success_rate=SUCCESS_RATE,
                max_abs_advantage=func.max(largest_of_episode),
            )
        )
        .join(TaskRow, TaskRow.hash == wanted.task_hash)
        .join(
            EpisodeRow,
            and_(
                EpisodeRow.run_id == wanted.run_id,
                EpisodeRow.attempt == wanted.attempt,
                EpisodeRow.phase == wanted.phase,
                EpisodeRow.training_step == wanted.training_step,
                EpisodeRow.group_index == wanted.group_index,
            ),
        )
        .group_by(*described)
        .order_by(wanted.training_step.desc(), wanted.phase, wanted.group_index)
    )
    return [GroupSummary(*row) for row in rows]
