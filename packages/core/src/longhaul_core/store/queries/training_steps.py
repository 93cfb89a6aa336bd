"""Training steps: the stored rows that an audit of one reads.

A training step here is its update: the groups it took, whichever training step played them.
All queries are over the lineage. `rows_of_episodes` reads any table that belongs to episodes.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    CompoundSelect,
    SQLColumnExpression,
    UniqueConstraint,
    bindparam,
    case,
    false,
    func,
    literal,
    or_,
    select,
    union,
)
from sqlalchemy.orm import Session, aliased

from longhaul_core.store.models import (
    Base,
    CallRow,
    CallTokensRow,
    CriticLossInputRow,
    EpisodeMediaRow,
    EpisodeRow,
    FailureRow,
    GroupRow,
    LossInputRow,
    MessageRow,
    MetricRow,
    ObservationRow,
    StepRow,
    TaskRow,
)
from longhaul_core.store.queries.base import columns
from longhaul_core.store.queries.group_steps import in_parts
from longhaul_core.store.records import FATE_OF_GROUP
from longhaul_core.types import FailureCause

__all__ = [
    "IN_GROUP",
    "EpisodeNumbers",
    "GroupNumbers",
    "HorizonOutcomes",
    "TableOfEpisodes",
    "episodes_of_update",
    "episodes_that_spell",
    "groups_of_training_step",
    "has_loss_inputs",
    "horizon_outcomes",
    "metrics_of_training_step",
    "of_update",
    "rows_of_episodes",
    "settled_episodes",
    "training_steps",
]

TableOfEpisodes = Literal[
    "calls",
    "call_tokens",
    "critic_loss_inputs",
    "episode_media",
    "episodes",
    "loss_inputs",
    "messages",
    "observations",
    "steps",
]
_TABLES: dict[TableOfEpisodes, type[Base]] = {
    "calls": CallRow,
    "call_tokens": CallTokensRow,
    "critic_loss_inputs": CriticLossInputRow,
    "episode_media": EpisodeMediaRow,
    "episodes": EpisodeRow,
    "loss_inputs": LossInputRow,
    "messages": MessageRow,
    "observations": ObservationRow,
    "steps": StepRow,
}
RowT = TypeVar("RowT", bound=tuple[object, ...])

_SAME_PLACE = (
    (EpisodeRow.run_id == GroupRow.run_id)
    & (EpisodeRow.training_step == GroupRow.training_step)
    & (EpisodeRow.group_index == GroupRow.group_index)
    & (EpisodeRow.attempt == GroupRow.attempt)
)
IN_GROUP = _SAME_PLACE & (EpisodeRow.phase == GroupRow.phase)
"""Of an episode and its group."""
_IN_OR_BESIDE_GROUP = _SAME_PLACE & EpisodeRow.phase.in_(FATE_OF_GROUP)
"""Of an episode and its group, or of a greedy episode and the group that is compared with it, whose
fate it shares."""


_LEFT_OUT = ("no_signal", "too_small")
"""Discard reasons of groups whose outcomes count all the same."""


class GroupNumbers(NamedTuple):
    """A group of a training step, and what became of it."""

    training_step: int
    """Which played it."""
    group_index: int
    """0-based place in the training step that played it."""
    group_size: int | None
    """Episodes requested; None if the trainer gave no number."""
    resolved_training_step: int | None
    """Which took it or threw it away; None while it waits."""
    update_index: int | None
    """0-based place in the update that took it; None if none did."""
    discard_reason: str | None
    num_ended: int
    """Episodes that did not fail."""
    num_stopped: int
    """Episodes that were stopped before their end."""
    num_trained: int
    """Episodes that were trained, also where the group was thrown away."""
    least_return: float | None
    """Of the ended episodes, added up from the rewards of their steps; None without any."""
    greatest_return: float | None
    first_episode_id: str | None
    """None without episodes."""


class EpisodeNumbers(NamedTuple):
    """An episode that ended or failed, failed tries included."""

    episode_id: str
    phase: str
    """`train`; of those beside a group, `baseline` for the greedy one, or `demonstration`."""
    task_hash: str
    played_training_step: int
    trained_training_step: int | None
    """None if untrained."""
    group_index: int
    """0-based place of its group in the update."""
    sample_index: int
    retry: int
    failed: bool
    stop_reason: str | None
    """None if failed, as is episode_return."""
    episode_return: float | None
    success: bool | None
    """None if failed."""
    final_anchor_hash: str | None
    """Of the anchor state of the final observation; None if failed."""
    num_steps: int
    num_action_tokens: int
    horizon: int
    trained: bool
    episode_advantage: float | None
    optimizer_step_index: int | None
    final_value: float | None
    retention: str | None
    """`removed` where its text, pictures and tokens are gone."""
    environment: str
    """Of its task."""


class HorizonOutcomes(NamedTuple):
    """Outcomes of the episodes of a training step that were begun at one horizon."""

    training_step: int
    horizon: int
    num_successes: int
    num_episodes: int
    """That ended; failures are not counted."""


def training_steps(session: Session, *, run_id: str) -> list[int]:
    """Numbers of the training steps that played groups or decided on some, rising."""
    rows = session.execute(
        select(GroupRow.training_step, GroupRow.resolved_training_step)
        .where(GroupRow.run_id == run_id, GroupRow.phase == "train", ~GroupRow.rolled_back)
        .distinct()
    )
    return sorted({number for row in rows for number in row if number is not None})


def horizon_outcomes(
    session: Session, *, run_id: str, of_played: bool = False
) -> list[HorizonOutcomes]:
    """Outcomes of groups by training step and horizon.

    Args:
        session: Only read from.
        run_id: The run asked about.
        of_played: Of the groups that each training step played to their end, instead of those
            that it took, or looked at and left out.
    """
    training_step = GroupRow.training_step if of_played else GroupRow.resolved_training_step
    counted = (
        func.coalesce(GroupRow.discard_reason, "") != FailureCause.STOPPED_EARLY.value
        if of_played
        else GroupRow.update_index.is_not(None) | GroupRow.discard_reason.in_(_LEFT_OUT)
    )
    rows = session.execute(
        select(
            training_step,
            EpisodeRow.horizon,
            func.sum(case((EpisodeRow.success.is_(True), 1), else_=0)),
            func.count(),
        )
        .join(EpisodeRow, IN_GROUP)
        .where(
            GroupRow.run_id == run_id,
            GroupRow.phase == "train",
            counted,
            ~GroupRow.rolled_back,
            ~EpisodeRow.failed,
        )
        .group_by(training_step, EpisodeRow.horizon)
        .order_by(training_step, EpisodeRow.horizon)
    )
    return [HorizonOutcomes(*row) for row in rows]


def groups_of_training_step(
    session: Session, *, run_id: str, training_step: int
) -> list[GroupNumbers]:
    """Groups that a training step played, took or threw away, by when they were played."""
    returns = (
        select(EpisodeRow.id.label("id"), func.sum(StepRow.reward).label("total"))
        .join(StepRow, StepRow.episode_id == EpisodeRow.id)
        .where(
            EpisodeRow.run_id == run_id,
            EpisodeRow.phase == "train",
            EpisodeRow.training_step.in_(_played_for(run_id, training_step)),
            ~EpisodeRow.rolled_back,
            ~EpisodeRow.failed,
        )
        .group_by(EpisodeRow.id)
        .subquery()
    )
    counted = columns(
        GroupNumbers,
        GroupRow,
        num_ended=func.sum(case((EpisodeRow.failed.is_(False), 1), else_=0)),
        num_stopped=func.sum(
            case((FailureRow.cause == FailureCause.STOPPED_EARLY.value, 1), else_=0)
        ),
        num_trained=func.sum(case((EpisodeRow.trained, 1), else_=0)),
        least_return=func.min(returns.c.total),
        greatest_return=func.max(returns.c.total),
        first_episode_id=func.min(EpisodeRow.id),
    )
    rows = session.execute(
        select(*counted)
        .outerjoin(EpisodeRow, IN_GROUP)
        .outerjoin(returns, returns.c.id == EpisodeRow.id)
        .outerjoin(FailureRow, FailureRow.episode_id == EpisodeRow.id)
        .where(
            GroupRow.run_id == run_id,
            GroupRow.phase == "train",
            (GroupRow.training_step == training_step)
            | (GroupRow.resolved_training_step == training_step),
            ~GroupRow.rolled_back,
            GroupRow.training_step.in_(_played_for(run_id, training_step)),
        )
        .group_by(*GroupRow.__table__.primary_key)
        .order_by(GroupRow.training_step, GroupRow.group_index)
    )
    return [GroupNumbers(*row) for row in rows]


def episodes_of_update(
    session: Session, *, run_id: str, training_step: int
) -> list[EpisodeNumbers]:
    """Episodes of a training step's update, and those beside their groups.

    They are by group, sample_index and retry.
    """
    rows = session.execute(
        select(
            *columns(
                EpisodeNumbers,
                EpisodeRow,
                episode_id=EpisodeRow.id,
                played_training_step=EpisodeRow.training_step,
                group_index=GroupRow.update_index,
                environment=TaskRow.environment,
            )
        )
        .join(GroupRow, _IN_OR_BESIDE_GROUP)
        .join(TaskRow, TaskRow.hash == EpisodeRow.task_hash)
        .where(*of_update(run_id, training_step))
        .order_by(
            GroupRow.update_index, EpisodeRow.sample_index, EpisodeRow.retry, EpisodeRow.phase
        )
    )
    return [EpisodeNumbers(*row) for row in rows]


def settled_episodes(session: Session, *, run_id: str, training_step: int) -> list[str]:
    """Ids of the episodes of groups that a training step took, threw away, or left waiting.

    Those that wait are groups that it played.
    """
    rows = session.scalars(
        select(EpisodeRow.id)
        .join(GroupRow, IN_GROUP)
        .where(
            GroupRow.run_id == run_id,
            GroupRow.phase == "train",
            (GroupRow.resolved_training_step == training_step)
            | (
                GroupRow.resolved_training_step.is_(None)
                & (GroupRow.training_step == training_step)
            ),
            ~GroupRow.rolled_back,
            EpisodeRow.training_step.in_(_played_for(run_id, training_step)),
        )
        .order_by(EpisodeRow.id)
    )
    return list(rows)


def rows_of_episodes(
    session: Session, answer: type[RowT], table: TableOfEpisodes, *, episode_ids: Iterable[str]
) -> Iterator[RowT]:
    """The rows of a table that belong to some episodes, by episode and place, read while iterated.

    Args:
        session: Only read from.
        answer: A named tuple whose fields are the columns to read.
        table: Which.
        episode_ids: Of the episodes, in any order.

    Raises:
        TypeError: A field is no column of the table.
    """
    stored = Base.metadata.tables[table]
    episode_id = stored.c["id" if table == "episodes" else "episode_id"]
    unique = [each for each in stored.constraints if isinstance(each, UniqueConstraint)]
    for part in in_parts(sorted(episode_ids)):
        rows = session.execute(
            select(*columns(answer, _TABLES[table]))
            .where(episode_id.in_(part))
            .order_by(*(unique[0] if unique else stored.primary_key).columns)
        )
        for row in rows:
            yield answer(*row)


def episodes_that_spell(
    session: Session,
    names: Collection[str],
    *,
    in_replies: Collection[str],
    episode_ids: Iterable[str],
) -> list[str]:
    """Episodes with an observation, a reply or a message that has one of the names, by id.

    Args:
        session: Only read from.
        names: Without quotes, backslashes and line ends.
        in_replies: Those that are looked for in replies, and in an assistant's messages.
        episode_ids: Of the episodes asked about, in any order.
    """
    if not names:
        return []
    statement = _that_spell(frozenset(names), frozenset(in_replies))
    return sorted(
        episode_id
        for part in in_parts(sorted(episode_ids))
        for episode_id in session.scalars(statement, {"episode_ids": part})
    )


@lru_cache(maxsize=16)
def _that_spell(names: frozenset[str], in_replies: frozenset[str]) -> CompoundSelect[str]:
    """The statement, whose making takes longer than its answer for a small run."""
    asked: BindParameter[Any] = bindparam("episode_ids", expanding=True)
    of_message = (
        MessageRow.own_lines
        + func.coalesce(MessageRow.pieces_json, "")
        + func.coalesce(MessageRow.above, "")
        + func.coalesce(MessageRow.below, "")
        + func.coalesce(MessageRow.parts_json, "")
    )

    def spells(text: SQLColumnExpression[Any], among: frozenset[str]) -> ColumnElement[bool]:
        # `replace` minds the case in both databases, and `LIKE` in one of them alone.
        return or_(false(), *(func.replace(text, name, "") != text for name in sorted(among)))

    replied = MessageRow.role == "assistant"
    return union(
        select(ObservationRow.episode_id).where(
            ObservationRow.episode_id.in_(asked), spells(ObservationRow.text, names)
        ),
        select(CallRow.episode_id).where(
            CallRow.episode_id.in_(asked), spells(CallRow.reply, in_replies)
        ),
        select(MessageRow.episode_id).where(
            MessageRow.episode_id.in_(asked),
            (replied & spells(of_message, in_replies)) | (~replied & spells(of_message, names)),
        ),
    )


def has_loss_inputs(session: Session, *, run_id: str) -> bool:
    """Whether the store holds a loss input of any call of the run."""
    statement = (
        select(LossInputRow.step_index)
        .join(EpisodeRow, EpisodeRow.id == LossInputRow.episode_id)
        .where(EpisodeRow.run_id == run_id)
        .limit(1)
    )
    return session.scalar(statement) is not None


def metrics_of_training_step(
    session: Session, *, run_id: str, training_step: int, names: Collection[str] | None = None
) -> dict[str, float | None]:
    """Metrics of a training step, keyed by name; empty until it is over.

    Args:
        session: Only read from.
        run_id: The run asked about.
        training_step: Which.
        names: Only these; None means all.
    """
    conditions = [
        MetricRow.run_id == run_id,
        MetricRow.training_step == training_step,
        ~MetricRow.rolled_back,
    ]
    if names is not None:
        conditions.append(MetricRow.name.in_(names))
    rows = session.execute(select(MetricRow.name, MetricRow.value).where(*conditions))
    return {row.name: row.value for row in rows}


def of_update(run_id: str, training_step: int) -> tuple[ColumnElement[bool], ...]:
    """Episodes of groups that the update took."""
    return (
        GroupRow.run_id == run_id,
        GroupRow.phase == "train",
        GroupRow.resolved_training_step == training_step,
        GroupRow.update_index.is_not(None),
        ~GroupRow.rolled_back,
        EpisodeRow.training_step.in_(_played_for(run_id, training_step)),
    )


def _played_for(run_id: str, training_step: int) -> CompoundSelect[int]:
    """Training steps that played what `training_step` decided on, and itself.

    They follow from the other conditions. Without these hints, a database without statistics would
    begin with all episodes of the run.
    """
    group = aliased(GroupRow)
    return (
        select(group.training_step)
        .where(group.run_id == run_id, group.resolved_training_step == training_step)
        .union(select(literal(training_step)))
    )
