"""The numbers of an episode: all steps and calls in columns, without a prompt or a reply."""

import hashlib
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from longhaul_core.store.models import (
    CallRow,
    CallTokensRow,
    EpisodeRow,
    LabelRow,
    ObservationRow,
    StepRow,
    TaskRow,
)
from longhaul_core.store.queries.base import Answer, columns
from longhaul_core.store.queries.episode_lists import (
    EpisodeSummary,
    episode_summaries,
    unknown_episode,
)
from longhaul_core.store.queries.episodes import LabelDetail
from longhaul_core.store.queries.messages import texts_of

__all__ = [
    "CallColumns",
    "EpisodeOutline",
    "StepColumns",
    "episode_outline",
    "outline_version",
    "require_episode",
]

ACTION_CHARACTERS = 200
"""Of an action in an outline; the step has it whole."""


@dataclass(frozen=True, slots=True)
class StepColumns(Answer):
    """One entry per step, in order. Credit is None before the update."""

    action: tuple[str, ...]
    """Its first 200 characters."""
    action_valid: tuple[bool, ...]
    reward: tuple[float, ...]
    shaped_reward: tuple[float | None, ...]
    value: tuple[float | None, ...]
    """The critic's; None without one."""
    return_to_go: tuple[float | None, ...]
    episode_advantage: tuple[float | None, ...]
    step_advantage: tuple[float | None, ...]
    advantage: tuple[float | None, ...]
    loss_weight: tuple[float | None, ...]
    trained: tuple[bool, ...]
    act_call_index: tuple[int | None, ...]
    environment_seconds: tuple[float, ...]
    anchor_hash: tuple[str, ...]
    """Equal where the state was the same."""
    pictures: tuple[tuple[str, ...], ...]
    """Hashes of the pictures of the observation."""


@dataclass(frozen=True, slots=True)
class CallColumns(Answer):
    """One entry per call, in the order they were made."""

    step_index: tuple[int, ...]
    call_index: tuple[int, ...]
    purpose: tuple[str, ...]
    agent: tuple[str, ...]
    model: tuple[str, ...]
    """Empty for the policy that is trained."""
    conversation: tuple[int, ...]
    continuation: tuple[str | None, ...]
    finish_reason: tuple[str, ...]
    policy_version: tuple[int | None, ...]
    dropped_exchanges: tuple[int, ...]
    """Left out by the memory to make the prompt fit."""
    queue_seconds: tuple[float, ...]
    generate_seconds: tuple[float, ...]
    num_prompt_tokens: tuple[int | None, ...]
    num_action_tokens: tuple[int | None, ...]
    num_cached_tokens: tuple[int | None, ...]
    num_shared_prompt_tokens: tuple[int | None, ...]
    """Leading prompt tokens that the call before in its stream had too."""
    trained: tuple[bool, ...]
    credit_share: tuple[float, ...]
    credited_by: tuple[str, ...]
    advantage: tuple[float | None, ...]
    loss_weight: tuple[float | None, ...]
    split_reason: tuple[str | None, ...]
    """Why a new row of the learner begins here; None where the call goes on with one."""
    cost_usd: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class EpisodeOutline(Answer):
    """An episode without its prompts and replies."""

    summary: EpisodeSummary
    environment_version: str
    task_seed: int
    task_data: str
    """What a program was given to work on, a JSON object; empty without one."""
    seed: int
    """Seeds the sampling of the actions."""
    trained_training_step: int | None
    """The training step whose update it was in; None if untrained."""
    final_pictures: tuple[str, ...]
    """Hashes of the pictures seen after the last action."""
    steps: StepColumns
    calls: CallColumns
    labels: tuple[LabelDetail, ...]
    """Of the whole episode first, then by step."""


def episode_outline(session: Session, *, episode_id: str) -> EpisodeOutline:
    """What an episode's strip, its time and its credit are drawn from.

    Raises:
        LookupError: There is no such episode.
    """
    row = session.execute(
        episode_summaries()
        .add_columns(
            TaskRow.version,
            TaskRow.seed,
            TaskRow.data,
            EpisodeRow.seed,
            EpisodeRow.trained_training_step,
            EpisodeRow.final_picture_hashes_json,
        )
        .where(EpisodeRow.id == episode_id)
    ).one_or_none()
    if row is None:
        raise unknown_episode(episode_id)
    version, task_seed, task_data, seed, trained_training_step, final_pictures = row[-6:]
    pictures = {
        step_index: texts_of(listed)
        for step_index, listed in session.execute(
            select(ObservationRow.step_index, ObservationRow.picture_hashes_json).where(
                ObservationRow.episode_id == episode_id,
                ObservationRow.picture_hashes_json.is_not(None),
            )
        )
    }
    of_steps = session.execute(
        select(
            func.substr(StepRow.action, 1, ACTION_CHARACTERS),
            *columns_but(StepColumns, StepRow, "action", "pictures"),
        )
        .where(StepRow.episode_id == episode_id)
        .order_by(StepRow.step_index)
    ).all()
    of_calls = session.execute(
        select(*columns_but(CallColumns, CallRow))
        .where(CallRow.episode_id == episode_id)
        .order_by(CallRow.step_index, CallRow.call_index)
    ).all()
    labels = session.execute(
        select(*columns(LabelDetail, LabelRow))
        .where(LabelRow.episode_id == episode_id)
        .order_by(LabelRow.step_index, LabelRow.name, LabelRow.author)
    )
    return EpisodeOutline(
        summary=EpisodeSummary(*row[:-6]),
        environment_version=version,
        task_seed=task_seed,
        task_data=task_data,
        seed=seed,
        trained_training_step=trained_training_step,
        final_pictures=texts_of(final_pictures),
        steps=_packed(
            StepColumns,
            [(*each, pictures.get(place, ())) for place, each in enumerate(of_steps)],
        ),
        calls=_packed(CallColumns, of_calls),
        labels=tuple(
            replace(label, step_index=None if label.step_index == -1 else label.step_index)
            for label in (LabelDetail(*each) for each in labels)
        ),
    )


def outline_version(session: Session, *, episode_id: str) -> str | None:
    """Names what the store holds of a credited episode: equal names, equal answers.

    Once an episode has its credit, only a roll back, retention, pruning and people's labels
    change what is read of it, and each changes the name.

    Returns:
        Hexadecimal text; None while the episode may still be credited, or has none to come.

    Raises:
        LookupError: There is no such episode.
    """
    row = session.execute(
        select(
            EpisodeRow.trained_training_step,
            EpisodeRow.episode_advantage,
            EpisodeRow.optimizer_step_index,
            EpisodeRow.trained,
            EpisodeRow.rolled_back,
            EpisodeRow.retention,
        ).where(EpisodeRow.id == episode_id)
    ).one_or_none()
    if row is None:
        raise unknown_episode(episode_id)
    if row.episode_advantage is None:
        return None
    labels = session.execute(
        select(LabelRow.step_index, LabelRow.name, LabelRow.author, LabelRow.created_at)
        .where(LabelRow.episode_id == episode_id)
        .order_by(LabelRow.step_index, LabelRow.name, LabelRow.author)
    ).all()
    whole = session.scalar(
        select(CallTokensRow.step_index).where(CallTokensRow.episode_id == episode_id).limit(1)
    )
    told = repr((episode_id, tuple(row), [tuple(each) for each in labels], whole is None))
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def require_episode(session: Session, episode_id: str) -> None:
    """Return if there is such an episode.

    Raises:
        LookupError: There is none.
    """
    if session.scalar(select(EpisodeRow.id).where(EpisodeRow.id == episode_id)) is None:
        raise unknown_episode(episode_id)


ColumnsT = TypeVar("ColumnsT", StepColumns, CallColumns)


def columns_but(answer: type[ColumnsT], model: type[Any], *others: str) -> list[Any]:
    """The columns of an answer's fields, but for those that are read otherwise."""
    return [getattr(model, each.name) for each in fields(answer) if each.name not in others]


def _packed(answer: type[ColumnsT], rows: Any) -> ColumnsT:  # noqa: ANN401
    """Rows turned into columns."""
    turned = [tuple(column) for column in zip(*rows, strict=True)]
    return answer(*(turned or ((),) * len(fields(answer))))
