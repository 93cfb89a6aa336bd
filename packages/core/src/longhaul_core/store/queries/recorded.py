"""Stored episodes as the records that were written: what is imitated, and taken up again."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from longhaul_core.errors import StoreError
from longhaul_core.store.models import EpisodeRow, TaskRow
from longhaul_core.store.queries.base import Answer
from longhaul_core.store.queries.episode_lists import EpisodeFilter, episode_conditions
from longhaul_core.store.queries.episodes import CallDetail, StepDetail, get_episode, get_media
from longhaul_core.store.queries.messages import PromptMessage, StoredPicture
from longhaul_core.types import (
    Call,
    CreditedBy,
    FinishReason,
    Message,
    Observation,
    Part,
    Picture,
    SampledTokens,
    Split,
    Step,
    StopReason,
    Task,
    Trajectory,
)

__all__ = ["EndedEpisode", "ended_episodes", "recorded_episode"]

_Pictures = Callable[[Sequence[StoredPicture]], tuple[Picture, ...]]


@dataclass(frozen=True, slots=True)
class EndedEpisode(Answer):
    """An episode that ended, and its task."""

    episode_id: str
    episode_return: float
    num_steps: int
    removed: bool
    """Whether the retention of its run removed its texts."""
    task: Task


def ended_episodes(session: Session, where: EpisodeFilter) -> Iterator[EndedEpisode]:
    """The episodes that ended among those that a filter finds, in the order of their ids.

    Raises:
        ConfigError: The filter asks for what cannot be found, see `EpisodeFilter`.
    """
    rows = session.execute(
        select(
            EpisodeRow.id,
            EpisodeRow.episode_return,
            EpisodeRow.num_steps,
            EpisodeRow.retention,
            TaskRow,
        )
        .join(TaskRow, TaskRow.hash == EpisodeRow.task_hash)
        .where(*episode_conditions(session, where), EpisodeRow.failed.is_(False))
        .order_by(EpisodeRow.id)
    )
    for episode_id, episode_return, num_steps, retention, task in rows:
        assert episode_return is not None  # it ended
        removed = retention == "removed"
        yield EndedEpisode(episode_id, episode_return, num_steps, removed, _task(task))


def _task(row: TaskRow) -> Task:
    return Task(
        environment=row.environment,
        version=row.version,
        data_hash=row.data_hash,
        task_id=row.task_id,
        seed=row.seed,
        split=Split(row.split),
        goal=row.goal,
        data=row.data,
    )


def recorded_episode(session: Session, episode_id: str) -> Trajectory:
    """An episode that ended, with its texts, its pictures' bytes and its tokens.

    Calls are as they were asked and answered; what training made of them is left out.

    Args:
        session: Only read from.
        episode_id: Which.

    Raises:
        LookupError: There is no such episode.
        StoreError: It failed, or retention removed its texts.
    """
    detail = get_episode(session, episode_id=episode_id)
    summary = detail.summary
    if summary.stop_reason is None:
        raise StoreError(f"episode {episode_id} failed: it has no end that could be repeated")
    pictures = _bytes_of(session)
    of_episode = EpisodeRow.task_hash == TaskRow.hash
    task = session.execute(
        select(TaskRow).join(EpisodeRow, of_episode).where(EpisodeRow.id == episode_id)
    ).scalar_one()
    return Trajectory(
        task=_task(task),
        sample_index=summary.sample_index,
        seed=detail.seed,
        horizon=max(summary.horizon, len(detail.steps)),
        steps=tuple(_step(step, episode_id, pictures) for step in detail.steps),
        stop_reason=StopReason(summary.stop_reason),
        success=bool(summary.success),
        final_observation=Observation(
            text=detail.final_observation or "", pictures=pictures(detail.final_pictures)
        ),
        started_at=summary.started_at,
        duration_seconds=summary.duration_seconds,
    )


def _bytes_of(session: Session) -> _Pictures:
    def pictures(stored: Sequence[StoredPicture]) -> tuple[Picture, ...]:
        return tuple(
            Picture(
                media_type=each.media_type,
                content_hash=each.content_hash,
                data=get_media(session, content_hash=each.content_hash).data,
            )
            for each in stored
        )

    return pictures


def _step(step: StepDetail, episode_id: str, pictures: _Pictures) -> Step:
    if step.observation is None:
        raise StoreError(
            f"episode {episode_id} has no texts any more: the retention of its run removed them"
        )
    return Step(
        index=step.step_index,
        observation=Observation(
            text=step.observation,
            pictures=pictures(step.pictures),
            admissible_actions=step.admissible_actions,
            anchor_state=step.anchor_state,
        ),
        calls=tuple(_call(call, pictures) for call in step.calls),
        action=step.action,
        action_valid=step.action_valid,
        reward=step.reward,
        environment_seconds=step.environment_seconds,
    )


def _call(call: CallDetail, pictures: _Pictures) -> Call:
    tokens = call.tokens
    return Call(
        messages=tuple(_message(message, pictures) for message in call.messages),
        reply=call.reply or "",
        sampled=None
        if tokens is None
        else SampledTokens(
            prompt_tokens=tokens.prompt_tokens,
            action_tokens=tokens.action_tokens,
            behavior_logprobs=None if tokens.logprobs is None else tokens.behavior_logprobs,
            policy_version=call.policy_version or 0,
        ),
        purpose=call.purpose,
        agent=call.agent,
        model=call.model,
        finish_reason=FinishReason(call.finish_reason),
        tools=call.tools,
        tool_calls=call.tool_calls,
        trained=call.trained and tokens is not None,
        credit_share=call.credit_share,
        credited_by=CreditedBy(call.credited_by),
        recalled_steps=call.recalled_steps,
    )


def _message(message: PromptMessage, pictures: _Pictures) -> Message:
    parts: tuple[Part, ...] = tuple(
        part if isinstance(part, str) else pictures([part])[0] for part in message.parts
    )
    text = parts[0] if len(parts) == 1 else parts
    return Message(
        role=message.role,
        content=text if isinstance(text, str) else parts,
        tool_calls=message.tool_calls,
        tool_call_id=message.tool_call_id,
        reasoning=message.reasoning,
    )
