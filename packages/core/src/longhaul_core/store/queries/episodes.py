"""Episodes: lists of them, and one with every step."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import Session

from longhaul_core.store.models import (
    EpisodeRow,
    FailureRow,
    LabelRow,
    MessageRow,
    StepContentRow,
    StepRow,
    TaskRow,
)
from longhaul_core.store.packing import unpack_logprobs, unpack_tokens
from longhaul_core.types import Message, Role

__all__ = [
    "EpisodeDetail",
    "EpisodeFilter",
    "EpisodePage",
    "EpisodeSort",
    "EpisodeSummary",
    "Failure",
    "LabelDetail",
    "StepDetail",
    "episodes_of_group",
    "failures",
    "get_episode",
    "list_episodes",
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


class EpisodeSummary(NamedTuple):
    """An episode in a list."""

    episode_id: str
    run_id: str
    attempt: int
    phase: str
    training_step: int
    group_index: int
    sample_index: int
    retry: int
    environment: str
    task_id: str
    split: str
    goal: str
    failed: bool
    failure_cause: str | None
    failure_message: str | None
    success: bool | None
    """None if failed, as are stop_reason, terminated, truncated and episode_return."""
    stop_reason: str | None
    terminated: bool | None
    truncated: bool | None
    episode_return: float | None
    num_steps: int
    horizon: int
    num_prompt_tokens: int
    num_action_tokens: int
    num_invalid_actions: int
    started_at: float
    """Unix time."""
    duration_seconds: float
    superseded: bool
    trained: bool
    episode_advantage: float | None
    optimizer_step_index: int | None


class EpisodePage(NamedTuple):
    """Part of a list of episodes."""

    total: int
    """Matching episodes in all."""
    rows: tuple[EpisodeSummary, ...]


class Failure(NamedTuple):
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


class StepDetail(NamedTuple):
    """Everything about one step. Credit is None before the update, tokens None once pruned."""

    step_index: int
    observation: str
    anchor_state: str | None
    anchor_hash: str
    admissible_actions: tuple[str, ...] | None
    messages: tuple[Message, ...]
    reply: str
    action: str
    action_valid: bool
    reward: float
    shaped_reward: float | None
    value: float | None
    return_to_go: float | None
    episode_advantage: float | None
    step_advantage: float | None
    advantage: float | None
    loss_weight: float | None
    trained: bool
    split_reason: str | None
    policy_version: int
    reply_cut: bool
    dropped_exchanges: int
    queue_seconds: float
    generate_seconds: float
    environment_seconds: float
    num_prompt_tokens: int
    num_action_tokens: int
    prompt_tokens: tuple[int, ...] | None
    action_tokens: tuple[int, ...] | None
    behavior_logprobs: tuple[float, ...] | None
    policy_logprobs: tuple[float, ...] | None


class LabelDetail(NamedTuple):
    """A remark on an episode."""

    step_index: int | None
    name: str
    value: str
    author: str
    created_at: float


class EpisodeDetail(NamedTuple):
    """One episode with every step."""

    summary: EpisodeSummary
    environment_version: str
    task_seed: int
    seed: int
    """Seeds the sampling of the actions."""
    final_observation: str | None
    steps: tuple[StepDetail, ...]
    labels: tuple[LabelDetail, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFilter:
    """Which episodes are meant; a field that is None does not restrict."""

    run_id: str | None = None
    phase: str | None = None
    min_training_step: int | None = None
    max_training_step: int | None = None
    group_index: int | None = None
    failed: bool | None = None
    success: bool | None = None
    trained: bool | None = None
    stop_reason: str | None = None
    environment: str | None = None
    task_id: str | None = None
    min_return: float | None = None
    max_return: float | None = None
    superseded: bool | None = False
    """False: the surviving line; True: what was taken back; None: both."""


def list_episodes(
    session: Session,
    *,
    where: EpisodeFilter | None = None,
    sort: EpisodeSort = "training_step",
    descending: bool = True,
    limit: int = 50,
    offset: int = 0,
) -> EpisodePage:
    """A page of the episodes that match.

    Episodes without a value (a failed one has no return) come last in either direction;
    equals are in order of phase, training step, group, sample_index and retry.

    Args:
        session: Only read from.
        where: Which episodes; None means every surviving one.
        sort: The column that orders them.
        descending: Largest first.
        limit: Rows of a page.
        offset: Rows before it.
    """
    asked = where or EpisodeFilter()
    matching = select(EpisodeRow.id).where(*_conditions(asked))
    if asked.environment is not None or asked.task_id is not None:
        matching = matching.join(TaskRow, TaskRow.hash == EpisodeRow.task_hash)
    count = matching.with_only_columns(func.count(), maintain_column_froms=True)
    column = _SORT_COLUMNS[sort]
    order = ((column.desc() if descending else column.asc()).nulls_last(), *_TIE_BREAKERS)
    # Ids alone are sorted; the wide rows, their tasks and failures are read for the page only.
    page = matching.order_by(*order).limit(limit).offset(offset).subquery()
    rows = session.execute(_summaries().join(page, page.c.id == EpisodeRow.id).order_by(*order))
    return EpisodePage(
        total=session.execute(count).scalar_one(),
        rows=tuple(EpisodeSummary(*row) for row in rows),
    )


def episodes_of_group(
    session: Session,
    *,
    run_id: str,
    attempt: int,
    phase: str,
    training_step: int,
    group_index: int,
) -> tuple[EpisodeSummary, ...]:
    """All episodes of one group, failed tries included, by sample_index and retry; maybe none."""
    rows = session.execute(
        _summaries()
        .where(
            EpisodeRow.run_id == run_id,
            EpisodeRow.attempt == attempt,
            EpisodeRow.phase == phase,
            EpisodeRow.training_step == training_step,
            EpisodeRow.group_index == group_index,
        )
        .order_by(EpisodeRow.sample_index, EpisodeRow.retry)
    )
    return tuple(EpisodeSummary(*row) for row in rows)


def get_episode(session: Session, *, episode_id: str) -> EpisodeDetail:
    """One episode with every step: prompts, tokens, logprobs, credit.

    Raises:
        LookupError: There is no such episode.
    """
    row = session.execute(
        _summaries()
        .add_columns(TaskRow.version, TaskRow.seed, EpisodeRow.seed, EpisodeRow.final_observation)
        .where(EpisodeRow.id == episode_id)
    ).one_or_none()
    if row is None:
        raise LookupError(f"there is no episode {episode_id!r} in the store")
    labels = session.execute(
        select(
            LabelRow.step_index, LabelRow.name, LabelRow.value, LabelRow.author, LabelRow.created_at
        )
        .where(LabelRow.episode_id == episode_id)
        .order_by(LabelRow.step_index, LabelRow.name, LabelRow.author)
    )
    version, task_seed, seed, final_observation = row[-4:]
    return EpisodeDetail(
        summary=EpisodeSummary(*row[:-4]),
        environment_version=version,
        task_seed=task_seed,
        seed=seed,
        final_observation=final_observation,
        steps=_steps(session, episode_id),
        labels=tuple(
            LabelDetail(None if label.step_index == -1 else label.step_index, *label[1:])
            for label in labels
        ),
    )


def failures(
    session: Session,
    *,
    run_id: str,
    cause: str | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[Failure]:
    """Failed episodes of the run's surviving line, the newest training step first.

    Args:
        session: Only read from.
        run_id: The run asked about.
        cause: Only those with this `FailureCause`.
        limit: At most so many.
        offset: Leave out so many.
    """
    statement = (
        select(
            EpisodeRow.id,
            EpisodeRow.phase,
            EpisodeRow.training_step,
            EpisodeRow.group_index,
            EpisodeRow.sample_index,
            EpisodeRow.retry,
            TaskRow.environment,
            TaskRow.task_id,
            FailureRow.cause,
            FailureRow.message,
            EpisodeRow.num_steps,
        )
        .join(FailureRow, FailureRow.episode_id == EpisodeRow.id)
        .join(TaskRow, TaskRow.hash == EpisodeRow.task_hash)
        .where(EpisodeRow.run_id == run_id, ~EpisodeRow.superseded)
        .order_by(EpisodeRow.training_step.desc(), EpisodeRow.id)
    )
    if cause is not None:
        statement = statement.where(FailureRow.cause == cause)
    return [Failure(*row) for row in session.execute(statement.limit(limit).offset(offset))]


_SORT_COLUMNS: dict[EpisodeSort, ColumnElement[Any]] = {
    "training_step": EpisodeRow.training_step.expression,
    "episode_return": EpisodeRow.episode_return.expression,
    "num_steps": EpisodeRow.num_steps.expression,
    "num_action_tokens": EpisodeRow.num_action_tokens.expression,
    "num_invalid_actions": EpisodeRow.num_invalid_actions.expression,
    "duration_seconds": EpisodeRow.duration_seconds.expression,
    "started_at": EpisodeRow.started_at.expression,
}
_TIE_BREAKERS = (
    EpisodeRow.run_id,
    EpisodeRow.phase,
    EpisodeRow.training_step,
    EpisodeRow.group_index,
    EpisodeRow.sample_index,
    EpisodeRow.retry,
    EpisodeRow.attempt,
)


def _summaries() -> Select[*tuple[Any, ...]]:
    """Columns in the order of `EpisodeSummary`'s fields."""
    return (
        select(
            EpisodeRow.id,
            EpisodeRow.run_id,
            EpisodeRow.attempt,
            EpisodeRow.phase,
            EpisodeRow.training_step,
            EpisodeRow.group_index,
            EpisodeRow.sample_index,
            EpisodeRow.retry,
            TaskRow.environment,
            TaskRow.task_id,
            TaskRow.split,
            TaskRow.goal,
            EpisodeRow.failed,
            FailureRow.cause,
            FailureRow.message,
            EpisodeRow.success,
            EpisodeRow.stop_reason,
            EpisodeRow.terminated,
            EpisodeRow.truncated,
            EpisodeRow.episode_return,
            EpisodeRow.num_steps,
            EpisodeRow.horizon,
            EpisodeRow.num_prompt_tokens,
            EpisodeRow.num_action_tokens,
            EpisodeRow.num_invalid_actions,
            EpisodeRow.started_at,
            EpisodeRow.duration_seconds,
            EpisodeRow.superseded,
            EpisodeRow.trained,
            EpisodeRow.episode_advantage,
            EpisodeRow.optimizer_step_index,
        )
        .join(TaskRow, TaskRow.hash == EpisodeRow.task_hash)
        .outerjoin(FailureRow, FailureRow.episode_id == EpisodeRow.id)
    )


def _conditions(where: EpisodeFilter) -> list[ColumnElement[bool]]:
    equals = {
        EpisodeRow.run_id: where.run_id,
        EpisodeRow.phase: where.phase,
        EpisodeRow.group_index: where.group_index,
        EpisodeRow.failed: where.failed,
        EpisodeRow.success: where.success,
        EpisodeRow.trained: where.trained,
        EpisodeRow.stop_reason: where.stop_reason,
        EpisodeRow.superseded: where.superseded,
        TaskRow.environment: where.environment,
        TaskRow.task_id: where.task_id,
    }
    conditions = [column == wanted for column, wanted in equals.items() if wanted is not None]
    if where.min_training_step is not None:
        conditions.append(EpisodeRow.training_step >= where.min_training_step)
    if where.max_training_step is not None:
        conditions.append(EpisodeRow.training_step <= where.max_training_step)
    if where.min_return is not None:
        conditions.append(EpisodeRow.episode_return >= where.min_return)
    if where.max_return is not None:
        conditions.append(EpisodeRow.episode_return <= where.max_return)
    return conditions


def _steps(session: Session, episode_id: str) -> tuple[StepDetail, ...]:
    pairs = session.execute(
        select(StepRow, StepContentRow)
        .join(
            StepContentRow,
            (StepContentRow.episode_id == StepRow.episode_id)
            & (StepContentRow.step_index == StepRow.step_index),
        )
        .where(StepRow.episode_id == episode_id)
        .order_by(StepRow.step_index)
    ).all()
    hashes = [_strings(content.message_hashes_json) for _, content in pairs]
    messages = _messages(session, sorted({each for prompt in hashes for each in prompt}))
    steps: list[StepDetail] = []
    prompt_tokens: tuple[int, ...] | None = ()
    for (step, content), prompt in zip(pairs, hashes, strict=True):
        prompt_tokens = _prompt_tokens(content, previous=prompt_tokens)
        steps.append(
            _step_detail(
                step,
                content,
                messages=tuple(messages[each] for each in prompt),
                prompt_tokens=prompt_tokens,
            )
        )
    return tuple(steps)


def _prompt_tokens(
    content: StepContentRow, *, previous: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """The whole prompt: what it shares with the step before, then its own."""
    if content.prompt_tokens is None or previous is None:
        return None
    return previous[: content.num_shared_prompt_tokens] + unpack_tokens(content.prompt_tokens)


def _step_detail(
    step: StepRow,
    content: StepContentRow,
    *,
    messages: tuple[Message, ...],
    prompt_tokens: tuple[int, ...] | None,
) -> StepDetail:
    def logprobs(blob: bytes | None) -> tuple[float, ...] | None:
        return None if blob is None else unpack_logprobs(blob)

    admissible = content.admissible_actions_json
    tokens = content.action_tokens
    return StepDetail(
        step_index=step.step_index,
        observation=content.observation,
        anchor_state=content.anchor_state,
        anchor_hash=step.anchor_hash,
        admissible_actions=None if admissible is None else tuple(_strings(admissible)),
        messages=messages,
        reply=content.reply,
        action=step.action,
        action_valid=step.action_valid,
        reward=step.reward,
        shaped_reward=step.shaped_reward,
        value=step.value,
        return_to_go=step.return_to_go,
        episode_advantage=step.episode_advantage,
        step_advantage=step.step_advantage,
        advantage=step.advantage,
        loss_weight=step.loss_weight,
        trained=step.trained,
        split_reason=step.split_reason,
        policy_version=step.policy_version,
        reply_cut=step.reply_cut,
        dropped_exchanges=step.dropped_exchanges,
        queue_seconds=step.queue_seconds,
        generate_seconds=step.generate_seconds,
        environment_seconds=step.environment_seconds,
        num_prompt_tokens=step.num_prompt_tokens,
        num_action_tokens=step.num_action_tokens,
        prompt_tokens=prompt_tokens,
        action_tokens=None if tokens is None else unpack_tokens(tokens),
        behavior_logprobs=logprobs(content.behavior_logprobs),
        policy_logprobs=logprobs(content.policy_logprobs),
    )


def _strings(list_json: str) -> list[str]:
    return [str(each) for each in json.loads(list_json)]


def _messages(session: Session, hashes: Sequence[str]) -> dict[str, Message]:
    found: dict[str, Message] = {}
    for start in range(0, len(hashes), 500):
        statement = select(MessageRow.hash, MessageRow.role, MessageRow.content).where(
            MessageRow.hash.in_(hashes[start : start + 500])
        )
        for key, role, content in session.execute(statement):
            found[key] = Message(role=cast("Role", role), content=content)
    return found
