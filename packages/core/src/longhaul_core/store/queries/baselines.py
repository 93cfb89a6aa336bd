"""Greedy episodes that groups were compared with, for an audit of them.

All of it is of the surviving line.
"""

from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from longhaul_core.store.models import EpisodeRow, StepContentRow, StepRow

__all__ = ["FirstReply", "first_replies", "task_of_groups"]


class FirstReply(NamedTuple):
    """The first step of an episode that did not fail; None where it was pruned."""

    episode_id: str
    phase: str
    group_index: int
    prompt_tokens: bytes | None
    """Packed int32."""
    action_tokens: bytes | None
    """Packed int32."""
    behavior_logprobs: bytes | None
    """Packed float32."""


def first_replies(session: Session, *, run_id: str, training_step: int) -> list[FirstReply]:
    """First steps of the sampled and the greedy episodes of a training step, by group."""
    rows = session.execute(
        select(
            EpisodeRow.id,
            EpisodeRow.phase,
            EpisodeRow.group_index,
            StepContentRow.prompt_tokens,
            StepContentRow.action_tokens,
            StepContentRow.behavior_logprobs,
        )
        .join(StepRow, StepRow.episode_id == EpisodeRow.id)
        .join(
            StepContentRow,
            (StepContentRow.episode_id == StepRow.episode_id)
            & (StepContentRow.step_index == StepRow.step_index),
        )
        .where(
            EpisodeRow.run_id == run_id,
            EpisodeRow.phase.in_(("train", "baseline")),
            EpisodeRow.training_step == training_step,
            ~EpisodeRow.superseded,
            ~EpisodeRow.failed,
            StepRow.step_index == 0,
        )
        .order_by(EpisodeRow.group_index, EpisodeRow.phase, EpisodeRow.position)
    )
    return [FirstReply(*row) for row in rows]


def task_of_groups(
    session: Session, *, run_id: str, training_step: int, phase: str
) -> dict[int, str]:
    """Hash of the task that each group's episodes were played on.

    Args:
        session: Only read from.
        run_id: The run asked about.
        training_step: Which.
        phase: train or baseline.
    """
    rows = session.execute(
        select(EpisodeRow.group_index, EpisodeRow.task_hash)
        .where(
            EpisodeRow.run_id == run_id,
            EpisodeRow.phase == phase,
            EpisodeRow.training_step == training_step,
            ~EpisodeRow.superseded,
        )
        .order_by(EpisodeRow.id.desc())
    )
    return {row.group_index: row.task_hash for row in rows}
