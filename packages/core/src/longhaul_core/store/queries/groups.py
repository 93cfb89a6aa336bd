"""Groups: the attempts at one task, compared with each other."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, NewType

from sqlalchemy import ColumnElement, Row, Select, and_, case, func, or_, select
from sqlalchemy.orm import Session

from longhaul_core.store.models import EpisodeRow, GroupRow, TaskRow
from longhaul_core.store.queries.base import Answer
from longhaul_core.store.queries.episode_lists import EpisodeSummary, GroupId, episodes_of_group
from longhaul_core.store.queries.keyset import after_key, decoded_key, encoded_key, key_order

__all__ = [
    "GroupDetail",
    "GroupFilter",
    "GroupKey",
    "GroupOutcomes",
    "GroupPage",
    "GroupSummary",
    "get_group",
    "list_groups",
]


@dataclass(frozen=True, slots=True)
class GroupSummary(Answer):
    """A group in a list. Returns are of the episodes that ended."""

    run_id: str
    attempt: int
    """Of the run: 0, or how often it had been resumed."""
    phase: str
    training_step: int
    """The one that played it."""
    group_index: int
    """Place of the task in the training step's batch, or in the panel."""
    environment: str
    task_id: str
    goal: str
    group_size: int | None
    """Episodes requested."""
    rolled_back: bool
    """Whether a resume went on from before this group."""
    resolved_training_step: int | None
    """The training step that decided: took the group for its update or discarded it. None while it
    waits, and of an evaluation."""
    update_index: int | None
    """0-based place in that update; None if it was discarded or waits."""
    discard_reason: str | None
    """`stale`, `no_signal`, `too_small`, `surplus` or `stopped_early`; None if it was taken."""
    max_abs_advantage: float | None
    """Largest |advantage| of a step, a mean where tokens have their own. 0: nothing in the group
    was better or worse than what it was compared with, so the policy loss learned nothing from
    it. None: no step was given credit. Equal returns alone do not say so: credit is given for
    shaped rewards, and by steps."""
    has_signal: bool | None
    """Whether `max_abs_advantage` is above 0; None without credit."""
    num_episodes: int
    """That ended."""
    num_failed_episodes: int
    """Failed tries, retried ones included."""
    returns: tuple[float, ...]
    """Of the episodes that ended, by sample_index."""
    mean_return: float | None
    min_return: float | None
    max_return: float | None
    success_rate: float | None
    """In [0, 1]."""

    @property
    def group_id(self) -> GroupId:
        """What names it."""
        return GroupId(self.run_id, self.phase, self.training_step, self.group_index, self.attempt)


GroupKey = NewType("GroupKey", str)
"""Where a page of groups ended, as text that may stand in an address."""


@dataclass(frozen=True, slots=True)
class GroupPage(Answer):
    """Part of a list of groups."""

    rows: tuple[GroupSummary, ...]
    next_key: GroupKey | None
    """Where the next page begins; None on the last one."""


GroupOutcomes = Literal["mixed", "solved", "unsolved"]
"""How the episodes of a group ended: not all alike in success or return; alike, and all solved; or
alike, and none solved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilter:
    """Which groups of a run are meant; a field that is None does not restrict.

    Both ends of a range are in it.
    """

    phase: str | None = None
    min_training_step: int | None = None
    max_training_step: int | None = None
    """Of the training step that played it."""
    environment: str | None = None
    task_id: str | None = None
    has_signal: bool | None = None
    """False: given credit, but no step had an advantage."""
    discard_reason: str | None = None
    outcomes: GroupOutcomes | None = None
    rolled_back: bool | None = False
    """False: the lineage; True: what was taken back; None: both."""


@dataclass(frozen=True, slots=True)
class GroupDetail(Answer):
    """A group and its episodes, failed tries included, by sample_index and retry."""

    summary: GroupSummary
    members: tuple[EpisodeSummary, ...]


def list_groups(
    session: Session,
    *,
    run_id: str,
    where: GroupFilter | None = None,
    descending: bool = True,
    after: GroupKey | None = None,
    limit: int = 50,
) -> GroupPage:
    """A page of the groups of a run, the newest training step first.

    Groups of a training step are in the order of phase, group and attempt, in the same direction.

    Args:
        session: Only read from.
        run_id: The run asked about.
        where: Which groups; None means all of the lineage.
        descending: The newest first.
        after: `next_key` of the page before; None begins.
        limit: Rows of a page.

    Raises:
        ConfigError: `after` is no key of such a list.
    """
    matching = select(GroupRow).where(*_conditions(run_id, where or GroupFilter()))
    if after is not None:
        place = decoded_key(after, int, str, int, int)
        matching = matching.where(after_key(_ORDER, place, descending=descending))
    order = key_order(_ORDER, descending=descending)
    rows = _summaries(session, matching.order_by(*order).limit(limit + 1))
    last = rows[limit - 1] if len(rows) > limit else None
    return GroupPage(
        rows=tuple(rows[:limit]),
        next_key=None
        if last is None
        else GroupKey(encoded_key(last.training_step, last.phase, last.group_index, last.attempt)),
    )


def get_group(
    session: Session,
    group: GroupId,
) -> GroupDetail:
    """One group with its episodes, without their steps.

    Args:
        session: Only read from.
        group: Which.

    Raises:
        LookupError: There is no such group.
    """
    statement = select(GroupRow).where(
        GroupRow.run_id == group.run_id,
        GroupRow.phase == group.phase,
        GroupRow.training_step == group.training_step,
        GroupRow.group_index == group.group_index,
    )
    if group.attempt is not None:
        statement = statement.where(GroupRow.attempt == group.attempt)
    found = _summaries(
        session, statement.order_by(GroupRow.rolled_back, GroupRow.attempt.desc()).limit(1)
    )
    if not found:
        raise LookupError(
            f"there is no group {group.group_index} of {group.phase} step {group.training_step} "
            f"in run {group.run_id!r}"
        )
    (summary,) = found
    return GroupDetail(
        summary=summary,
        members=episodes_of_group(session, replace(group, attempt=summary.attempt)),
    )


_ORDER: tuple[ColumnElement[Any], ...] = tuple(
    GroupRow.__table__.columns[name]
    for name in ("training_step", "phase", "group_index", "attempt")
)


def _conditions(run_id: str, where: GroupFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [GroupRow.run_id == run_id]
    equals = {
        GroupRow.rolled_back: where.rolled_back,
        GroupRow.phase: where.phase,
        GroupRow.discard_reason: where.discard_reason,
    }
    conditions += [column == wanted for column, wanted in equals.items() if wanted is not None]
    if where.outcomes is not None:
        conditions.append(_ended_so(where.outcomes))
    if where.min_training_step is not None:
        conditions.append(GroupRow.training_step >= where.min_training_step)
    if where.max_training_step is not None:
        conditions.append(GroupRow.training_step <= where.max_training_step)
    if where.has_signal is not None:
        signal = GroupRow.max_abs_advantage
        conditions.append(signal > 0 if where.has_signal else signal == 0)
    of_task = {TaskRow.environment: where.environment, TaskRow.task_id: where.task_id}
    tasks = [column == wanted for column, wanted in of_task.items() if wanted is not None]
    if tasks:
        conditions.append(GroupRow.task_hash.in_(select(TaskRow.hash).where(*tasks)))
    return conditions


def _ended_so(outcomes: GroupOutcomes) -> ColumnElement[bool]:
    """Whether the episodes of a group that ended did so; they are read by the index of groups."""
    solved = case((EpisodeRow.success.is_(True), 1), else_=0)
    spread = func.max(EpisodeRow.episode_return) > func.min(EpisodeRow.episode_return)
    mixed = or_(func.max(solved) > func.min(solved), spread)
    wanted = {
        "mixed": mixed,
        "solved": and_(~mixed, func.min(solved) == 1),
        "unsolved": and_(~mixed, func.max(solved) == 0),
    }[outcomes]
    episodes, groups = EpisodeRow.__table__.columns, GroupRow.__table__.columns
    return (
        select(wanted)
        .where(*(episodes[name] == groups[name] for name in _GROUP), ~EpisodeRow.failed)
        .correlate(GroupRow)
        .scalar_subquery()
    )


def _summaries(session: Session, groups: Select[GroupRow]) -> list[GroupSummary]:
    """What `groups` selects, in its order; episodes are read for these groups only."""
    described = session.execute(
        groups.add_columns(TaskRow.environment, TaskRow.task_id, TaskRow.goal).join(
            TaskRow, TaskRow.hash == GroupRow.task_hash
        )
    ).all()
    wanted = groups.subquery()
    outcomes: dict[tuple[Any, ...], list[_Outcome]] = defaultdict(list)
    of_groups = [wanted.c[name] == EpisodeRow.__table__.columns[name] for name in _GROUP]
    for row in session.execute(
        select(
            *(EpisodeRow.__table__.columns[name] for name in _GROUP),
            EpisodeRow.failed,
            EpisodeRow.success,
            EpisodeRow.episode_return,
        )
        .join(wanted, and_(*of_groups))
        .order_by(EpisodeRow.sample_index, EpisodeRow.retry)
    ):
        key = tuple(getattr(row, name) for name in _GROUP)
        outcomes[key].append(_Outcome(row.failed, row.success, row.episode_return))
    return [
        _summary(row, outcomes[tuple(getattr(row.GroupRow, name) for name in _GROUP)])
        for row in described
    ]


_GROUP = ("run_id", "attempt", "phase", "training_step", "group_index")


class _Outcome(NamedTuple):
    failed: bool
    success: bool | None
    episode_return: float | None


def _summary(row: Row[Any], outcomes: Sequence[_Outcome]) -> GroupSummary:
    group: GroupRow = row.GroupRow
    ended = [outcome for outcome in outcomes if not outcome.failed]
    returns = [each.episode_return for each in ended if each.episode_return is not None]
    signal = group.max_abs_advantage
    return GroupSummary(
        run_id=group.run_id,
        attempt=group.attempt,
        phase=group.phase,
        training_step=group.training_step,
        group_index=group.group_index,
        environment=row.environment,
        task_id=row.task_id,
        goal=row.goal,
        group_size=group.group_size,
        rolled_back=group.rolled_back,
        resolved_training_step=group.resolved_training_step,
        update_index=group.update_index,
        discard_reason=group.discard_reason,
        max_abs_advantage=signal,
        has_signal=None if signal is None else signal > 0,
        num_episodes=len(ended),
        num_failed_episodes=len(outcomes) - len(ended),
        returns=tuple(returns),
        mean_return=sum(returns) / len(returns) if returns else None,
        min_return=min(returns, default=None),
        max_return=max(returns, default=None),
        success_rate=sum(bool(each.success) for each in ended) / len(ended) if ended else None,
    )
