"""From an episode to verl's rows.

verl trains on rows: a prompt, a response, a mask. What the trainer needs to know of the episode and
of the calls in a row travels beside it as a `RowMetadata`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics

from longhaul_core.types import Picture, Trajectory
from longhaul_trainer.rendering.pictures import PictureReader
from longhaul_trainer.training.merging import Row, RowForm, beside_rows, cut_into_rows
from longhaul_trainer.training.step_metadata import METADATA, EpisodeMetadata, RowMetadata, packed


def to_rows(
    trajectory: Trajectory,
    *,
    metadata: EpisodeMetadata,
    training_step_of: Callable[[int], int],
    form: RowForm,
    max_row_tokens: int | None = None,
    pictures: PictureReader | None = None,
    trains: bool = True,
) -> list[AgentLoopOutput]:
    """The rows of `trajectory`, in the order of their first calls; see `cut_into_rows`.

    A truncated episode whose final prompt was composed has one row more, for the critic alone.

    verl overwrites each row's reward by the last row's, so the step rewards travel in the
    metadata, with the first row, and every row carries the episode's return.

    Args:
        trajectory: The episode.
        metadata: Of it; see `metadata_of`.
        training_step_of: Gives the training step that a policy version came out of.
        form: See `cut_into_rows`.
        max_row_tokens: See there.
        pictures: Of a model that reads them: verl's worker makes patches of a row's pictures, by
            the same processor. None where the rows are of text alone.
        trains: Whether the episode is learned from. One of validation counts though no call of it
            is trained; it has one row without a call then, since verl carries nothing else.

    Raises:
        ValueError: If no call of an episode that is learned from is trained.
    """
    rows = cut_into_rows(trajectory.steps, form=form, max_row_tokens=max_row_tokens)
    if not rows and not trains:
        return [_row_that_counts(trajectory, metadata)]
    if not rows:
        raise ValueError(
            f"no call of the episode of task {trajectory.task.task_id!r} is trained: the trainer "
            "cannot learn from it, nor count it; leave `Call.trained` true for one at least"
        )
    made = [
        AgentLoopOutput(
            prompt_ids=list(row.prompt_tokens),
            response_ids=row.response_tokens,
            response_mask=row.response_mask,
            response_logprobs=row.response_logprobs,
            multi_modal_data=_shown(row.pictures, pictures),
            reward_score=trajectory.episode_return,
            num_turns=len(trajectory.steps),
            metrics=_metrics(row),
            extra_fields={
                METADATA: packed(beside),
                "reward_extra_info": {},
                # verl counts staleness in training steps, we in optimizer steps.
                "min_global_steps": training_step_of(
                    min(call.tokens.policy_version for call in row.calls)
                ),
                "max_global_steps": training_step_of(
                    max(call.tokens.policy_version for call in row.calls)
                ),
            },
        )
        for row, beside in zip(rows, beside_rows(rows, metadata), strict=True)
    ]
    if trajectory.final_prompt_tokens is not None:
        tokens, shown = trajectory.final_prompt_tokens, trajectory.final_prompt_pictures
        if pictures is not None:
            tokens, shown = pictures.whole_at_the_end(tokens, shown)
        made.append(
            _row_without_call(
                tokens,
                trajectory,
                beside=_beside_no_call(metadata),
                extra_fields=made[-1].extra_fields,
                multi_modal_data=_shown(shown, pictures),
            )
        )
    return made


def _shown(shown: Sequence[Picture], pictures: PictureReader | None) -> dict[str, Any] | None:
    """A row's pictures by verl's name; None without any."""
    if pictures is None or not shown:
        return None
    return {"images": [pictures.image(picture) for picture in shown]}


def _metrics(row: Row) -> AgentLoopMetrics:
    """Seconds of a row; the environment's are counted where the action was chosen."""
    return AgentLoopMetrics(
        generate_sequences=sum(trained.call.generate_seconds for trained in row.calls),
        tool_calls=sum(
            trained.step.environment_seconds
            for trained in row.calls
            if trained.call is trained.step.act
        ),
    )


def _row_that_counts(trajectory: Trajectory, metadata: EpisodeMetadata) -> AgentLoopOutput:
    """A row that carries what is known of an episode, and no token that anybody reads."""
    return _row_without_call(
        (0,),
        trajectory,
        beside=replace(_beside_no_call(metadata), episode=metadata),
        extra_fields={
            "reward_extra_info": {},
            "min_global_steps": metadata.training_step,
            "max_global_steps": metadata.training_step,
        },
    )


def _beside_no_call(metadata: EpisodeMetadata) -> RowMetadata:
    return RowMetadata(
        training_step=metadata.training_step,
        group_index=metadata.group_index,
        sample_index=metadata.sample_index,
        retry=metadata.retry,
        spans=(),
        episode=None,
    )


def _row_without_call(
    prompt_tokens: tuple[int, ...],
    trajectory: Trajectory,
    *,
    beside: RowMetadata,
    extra_fields: Mapping[str, Any],
    multi_modal_data: dict[str, Any] | None = None,
) -> AgentLoopOutput:
    """A row of a prompt alone, such as the final observation's, which the critic reads.

    verl has no rows without a response, so one token stands there that nothing reads.
    """
    return AgentLoopOutput(
        prompt_ids=list(prompt_tokens),
        response_ids=[prompt_tokens[-1]],
        response_mask=[0],
        response_logprobs=[0.0],
        multi_modal_data=multi_modal_data,
        reward_score=trajectory.episode_return,
        num_turns=len(trajectory.steps),
        metrics=AgentLoopMetrics(),
        extra_fields={**extra_fields, METADATA: packed(beside)},
    )
