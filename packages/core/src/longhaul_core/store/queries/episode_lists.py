"""Lists of episodes: filtered, sorted, page by page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NewType, get_args

from sqlalchemy import Column, ColumnElement, Select, func, select
from sqlalchemy.orm import Session

from longhaul_core.errors import ConfigError
from longhaul_core.store.models import EpisodeRow, FailureRow, TaskRow
from longhaul_core.store.queries.base import Answer, columns
from longhaul_core.store.queries.episode_pages import ids_by_value
from longhaul_core.store.queries.keyset import after_key, decoded_key, encoded_key, key_order
from longhaul_core.store.queries.search import episodes_with_text

__all__ = [
    "EpisodeFilter",
    "EpisodeKey",
    "EpisodePage",
    "EpisodeSort",
    "EpisodeSummary",
    "Failure",
    "FailureKey",
    "FailurePage",
    "GroupId",
    "count_episodes",
    "episode_conditions",
    "episode_summaries",
    "episodes_of_group",
    "failures",
    "list_episodes",
    "unknown_episode",
]

EpisodeSort = Literal[
    "training_step",
    "episode_return",
    "num_steps",
    "num_action_tokens",
    "num_invalid_actions",
    "duration_seconds",
    "started_at",
]


@dataclass(frozen=True, slots=True)
class GroupId:
    """What names one group of the store."""

    run_id: str
    phase: str
    """`train`, `baseline`, `validation`, `test`, `play` or `branch`."""
    training_step: int
    """The one that played it."""
    group_index: int
    """0-based place of the task in the training step's batch, or in the panel."""
    attempt: int | None = None
    """Of the run; None means the one on the lineage, else the newest."""


@dataclass(frozen=True, slots=True)
class EpisodeSummary(Answer):
    """An episode in a list."""

    episode_id: str
    """`run/attempt/phase/training step/group/sample_index/retry`."""
    run_id: str
    attempt: int
    phase: str
    """`train`, `baseline`, `validation`, `test`, `play` or `branch`."""
    training_step: int
    group_index: int
    sample_index: int
    """0-based place in its group."""
    retry: int
    environment: str
    task_id: str
    """Unique within the environment."""
    split: str
    goal: str
    failed: bool
    """Something broke: no return, no success, in no baseline."""
    failure_cause: str | None
    failure_message: str | None
    success: bool | None
    """Whether the environment says the task was solved; None if it failed, as are stop_reason,
    terminated, truncated and episode_return."""
    stop_reason: str | None
    terminated: bool | None
    """The task itself ended."""
    truncated: bool | None
    """A limit cut it short."""
    episode_return: float | None
    """Undiscounted sum of rewards."""
    num_steps: int
    horizon: int
    """The step limit in force."""
    num_calls: int
    """Calls of models, summed over the steps."""
    num_prompt_tokens: int
    num_action_tokens: int
    num_invalid_actions: int
    oldest_policy_version: int | None
    """Of the weights that sampled it; None where no engine of ours did."""
    newest_policy_version: int | None
    """Larger than the oldest where new weights came while it was played."""
    started_at: float
    """Unix time."""
    duration_seconds: float
    rolled_back: bool
    """A resume went on from before it."""
    trained: bool
    """Whether it was in the loss."""
    episode_advantage: float | None
    optimizer_step_index: int | None
    branched_from: str | None
    """Id of the episode that it continues; None if it began at its task."""
    branched_at_step: int | None
    """The first step that is its own; those before are that episode's."""
    branched_action: str | None
    """The action that was given there; None if whoever went on chose it."""
    retention: str | None
    """`removed` if the run's retention removed its text, pictures and tokens, `sampled` if it keeps
    them for good; None before retention has decided."""

    @property
    def group_id(self) -> GroupId:
        """What names its group."""
        return GroupId(self.run_id, self.phase, self.training_step, self.group_index, self.attempt)


EpisodeKey = NewType("EpisodeKey", str)
"""Where a page of episodes ended, as text that may stand in an address."""


@dataclass(frozen=True, slots=True)
class EpisodePage(Answer):
    """Part of a list of episodes."""

    rows: tuple[EpisodeSummary, ...]
    next_key: EpisodeKey | None
    """Where the next page begins; None on the last one."""
    total: int | None
    """Matching episodes, counted no further than was asked; None where it was not."""


@dataclass(frozen=True, slots=True)
class Failure(Answer):
    """An episode that broke, and why."""

    episode_id: str
    phase: str
    training_step: int
    group_index: int
    sample_index: int
    retry: int
    environment: str
    task_id: str
    cause: str
    message: str
    num_steps: int
    """Finished before it broke."""


FailureKey = NewType("FailureKey", str)
"""Where a page of failures ended, as text that may stand in an address."""


@dataclass(frozen=True, slots=True)
class FailurePage(Answer):
    """Part of a list of failures."""

    rows: tuple[Failure, ...]
    next_key: FailureKey | None
    """Where the next page begins; None on the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFilter:
    """Which episodes are meant; a field that is None does not restrict.

    Both ends of a range are in it.
    """

    run_id: str | None = None
    phase: str | None = None
    min_training_step: int | None = None
    max_training_step: int | None = None
    group_index: int | None = None
    failed: bool | None = None
    success: bool | None = None
    trained: bool | None = None
    stop_reason: str | None = None
    failure_cause: str | None = None
    """A `FailureCause` value."""
    environment: str | None = None
    task_id: str | None = None
    min_return: float | None = None
    max_return: float | None = None
    min_steps: int | None = None
    max_steps: int | None = None
    policy_version: int | None = None
    """Sampled, at least in part, by these weights."""
    text: str | None = None
    """Words that one step of the episode has, as `search_steps` finds them."""
    rolled_back: bool | None = False
    """False: the lineage; True: what was taken back; None: both."""


def list_episodes(
    session: Session,
    *,
    where: EpisodeFilter | None = None,
    sort: EpisodeSort = "training_step",
    descending: bool = True,
    after: EpisodeKey | None = None,
    limit: int = 50,
    count_up_to: int | None = None,
) -> EpisodePage:
    """A page of the episodes that match, the newest training step first.

    Equals are in the order of training step, phase, group, sample_index and id, in the same
    direction, so that the list of the other direction is this one read from its end. Episodes
    without a value (a failed one has no return) come last in either direction.

    Args:
        session: Only read from.
        where: Which episodes; None means every one of a lineage.
        sort: The column that orders them.
        descending: Largest first.
        after: `next_key` of the page before; None begins.
        limit: Rows of a page.
        count_up_to: Count what matches, but no further; None counts nothing, which is fastest.

    Raises:
        ConfigError: `after` is no key, or of a list with another order.
    """
    asked = where or EpisodeFilter()
    conditions = episode_conditions(session, asked)
    order = (_SORT_COLUMNS[sort], *(each for each in _PLACE if each is not _SORT_COLUMNS[sort]))
    ordered = _order(order, descending=descending)
    place = None if after is None else _after(after, sort)
    # The wide rows, their tasks and failures are read for the page only: what is in it is found in
    # an index that has all columns of filters.
    if sort not in _OFTEN_EQUAL or asked.text is not None or limit > _MOST_BY_VALUE:
        matching = select(EpisodeRow.id).where(*conditions)
        if place is not None:
            matching = matching.where(after_key(order, place, descending=descending))
        page = matching.order_by(*ordered).limit(limit + 1).subquery()
        of_page = episode_summaries().join(page, page.c.id == EpisodeRow.id)
    else:
        ids = ids_by_value(
            session,
            conditions=conditions,
            value=order[0],
            place=order[1:],
            descending=descending,
            after=place,
            limit=limit + 1,
        )
        of_page = episode_summaries().where(EpisodeRow.id.in_(ids))
    found = session.execute(of_page.order_by(*ordered))
    rows = tuple(EpisodeSummary(*row) for row in found)
    return EpisodePage(
        rows=rows[:limit],
        next_key=_key(rows[limit - 1], sort) if len(rows) > limit else None,
        total=None
        if count_up_to is None
        else count_episodes(session, where=asked, up_to=count_up_to),
    )


def count_episodes(
    session: Session, *, where: EpisodeFilter | None = None, up_to: int | None = None
) -> int:
    """How many episodes match.

    Args:
        session: Only read from.
        where: Which episodes; None means every one of a lineage.
        up_to: Count no further; None counts all.
    """
    matching = select(EpisodeRow.id).where(*episode_conditions(session, where or EpisodeFilter()))
    counted = select(func.count()).select_from(matching.limit(up_to).subquery())
    return session.execute(counted).scalar_one()


def unknown_episode(episode_id: str) -> LookupError:
    """The error that the store has no such episode."""
    return LookupError(f"there is no episode {episode_id!r} in the store")


def episodes_of_group(session: Session, group: GroupId) -> tuple[EpisodeSummary, ...]:
    """All episodes of one group, failed tries included, by sample_index and retry; maybe none."""
    rows = session.execute(
        episode_summaries()
        .where(
            EpisodeRow.run_id == group.run_id,
            EpisodeRow.attempt == group.attempt,
            EpisodeRow.phase == group.phase,
            EpisodeRow.training_step == group.training_step,
            EpisodeRow.group_index == group.group_index,
        )
        .order_by(EpisodeRow.sample_index, EpisodeRow.retry)
    )
    return tuple(EpisodeSummary(*row) for row in rows)


def failures(
    session: Session,
    *,
    run_id: str,
    cause: str | None = None,
    after: FailureKey | None = None,
    limit: int = 100,
) -> FailurePage:
    """A page of the failed episodes of the run's lineage, in the order of `list_episodes`.

    Args:
        session: Only read from.
        run_id: The run asked about.
        cause: Only those with this `FailureCause`.
        after: `next_key` of the page before; None begins.
        limit: Rows of a page.

    Raises:
        ConfigError: `after` is no key of such a list.
    """
    statement = (
        select(*columns(Failure, FailureRow, EpisodeRow, TaskRow))
        .join(FailureRow, FailureRow.episode_id == EpisodeRow.id)
        .join(TaskRow, TaskRow.hash == EpisodeRow.task_hash)
        .where(EpisodeRow.run_id == run_id, ~EpisodeRow.rolled_back, EpisodeRow.failed)
    )
    if cause is not None:
        statement = statement.where(FailureRow.cause == cause)
    if after is not None:
        place = decoded_key(after, int, str, int, int, str)
        statement = statement.where(after_key(_PLACE, place, descending=True))
    found = session.execute(
        statement.order_by(*key_order(_PLACE, descending=True)).limit(limit + 1)
    )
    rows = tuple(Failure(*row) for row in found)
    last = rows[limit - 1] if len(rows) > limit else None
    return FailurePage(
        rows=rows[:limit], next_key=None if last is None else FailureKey(encoded_key(*_place(last)))
    )


_SORT_COLUMNS: dict[EpisodeSort, ColumnElement[Any]] = {
    sort: EpisodeRow.__table__.columns[sort] for sort in get_args(EpisodeSort)
}
_OFTEN_EQUAL: frozenset[EpisodeSort] = frozenset(
    {"episode_return", "num_steps", "num_invalid_actions"}
)
"""Of the other columns hardly two episodes have the same value: there is nothing to gain."""
_MOST_BY_VALUE = 1_000
"""Rows of a page whose ids are found first; those of a longer one are too many parameters."""
_PLACE: tuple[ColumnElement[Any], ...] = tuple(
    EpisodeRow.__table__.columns[name]
    for name in ("training_step", "phase", "group_index", "sample_index", "id")
)


def _order(columns: Sequence[ColumnElement[Any]], *, descending: bool) -> tuple[Any, ...]:
    first, *others = key_order(columns, descending=descending)
    if isinstance(columns[0], Column) and not columns[0].nullable:
        return (first, *others)
    return (first.nulls_last(), *others)


def _after(key: EpisodeKey, sort: EpisodeSort) -> list[Any]:
    """The values of the columns of a list's order, of its key."""
    sorted_by, *values = decoded_key(key, str, float, int, str, int, int, str)
    if sorted_by != sort:
        raise ConfigError(f"the key is of a list sorted by {sorted_by}, not by {sort}")
    # A training step would stand there twice.
    return values[1:] if sort == "training_step" else values


def _key(row: EpisodeSummary, sort: EpisodeSort) -> EpisodeKey:
    return EpisodeKey(encoded_key(sort, getattr(row, sort), *_place(row)))


def _place(row: EpisodeSummary | Failure) -> tuple[int, str, int, int, str]:
    """Values of `_PLACE`."""
    return (row.training_step, row.phase, row.group_index, row.sample_index, row.episode_id)


def episode_conditions(session: Session, where: EpisodeFilter) -> list[ColumnElement[bool]]:
    """Of a SELECT from `episodes` alone."""
    equals = {
        EpisodeRow.run_id: where.run_id,
        EpisodeRow.phase: where.phase,
        EpisodeRow.group_index: where.group_index,
        EpisodeRow.failed: where.failed,
        EpisodeRow.success: where.success,
        EpisodeRow.trained: where.trained,
        EpisodeRow.stop_reason: where.stop_reason,
        EpisodeRow.rolled_back: where.rolled_back,
    }
    at_least = {
        EpisodeRow.training_step: where.min_training_step,
        EpisodeRow.episode_return: where.min_return,
        EpisodeRow.num_steps: where.min_steps,
        EpisodeRow.newest_policy_version: where.policy_version,
    }
    at_most = {
        EpisodeRow.training_step: where.max_training_step,
        EpisodeRow.episode_return: where.max_return,
        EpisodeRow.num_steps: where.max_steps,
        EpisodeRow.oldest_policy_version: where.policy_version,
    }
    of_task = {TaskRow.environment: where.environment, TaskRow.task_id: where.task_id}
    tasks = [column == wanted for column, wanted in of_task.items() if wanted is not None]
    conditions = [
        *(column == wanted for column, wanted in equals.items() if wanted is not None),
        *(column >= least for column, least in at_least.items() if least is not None),
        *(column <= most for column, most in at_most.items() if most is not None),
    ]
    if tasks:
        conditions.append(EpisodeRow.task_hash.in_(select(TaskRow.hash).where(*tasks)))
    if where.failure_cause is not None:
        failed = select(FailureRow.episode_id).where(FailureRow.cause == where.failure_cause)
        conditions.append(EpisodeRow.id.in_(failed))
    if where.text is not None:
        conditions.append(episodes_with_text(session, where.text, run_id=where.run_id))
    return conditions


def episode_summaries() -> Select[*tuple[Any, ...]]:
    """Columns in the order of `EpisodeSummary`'s fields."""
    return (
        select(
            *columns(
                EpisodeSummary,
                EpisodeRow,
                TaskRow,
                episode_id=EpisodeRow.id,
                failure_cause=FailureRow.cause,
                failure_message=FailureRow.message,
            )
        )
        .join(TaskRow, TaskRow.hash == EpisodeRow.task_hash)
        .outerjoin(FailureRow, FailureRow.episode_id == EpisodeRow.id)
    )
