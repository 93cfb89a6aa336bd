"""From an episode to verl's rows.

verl trains on rows: a prompt, a response, a mask. What an advantage needs to know of a row's
steps travels beside it as their `StepNote`s.
"""

from __future__ import annotations

from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics

from longhaul_core.types import Trajectory
from longhaul_trainer.verl.merging import RowForm, cut_into_rows, notes_of
from longhaul_trainer.verl.notes import NOTES, GroupName, written


def to_rows(
    trajectory: Trajectory,
    *,
    group: GroupName,
    retry: int,
    optimizer_steps_per_training_step: int,
    form: RowForm,
    max_row_tokens: int | None = None,
    greedy: bool = False,
) -> list[AgentLoopOutput]:
    """The rows of `trajectory`, in step order; see `cut_into_rows`.

    verl overwrites each row's reward by the last row's, so the step rewards travel in the
    notes and the row carries the episode's return.
    """
    rows = cut_into_rows(trajectory.steps, form=form, max_row_tokens=max_row_tokens)
    updates = optimizer_steps_per_training_step
    return [
        AgentLoopOutput(
            prompt_ids=list(row.prompt_tokens),
            response_ids=row.response_tokens,
            response_mask=row.response_mask,
            response_logprobs=row.response_logprobs,
            reward_score=trajectory.episode_return,
            num_turns=len(trajectory.steps),
            metrics=AgentLoopMetrics(
                generate_sequences=sum(step.timings.generate_seconds for step in row.steps),
                tool_calls=sum(step.timings.environment_seconds for step in row.steps),
            ),
            extra_fields={
                NOTES: written(
                    [
                        note._replace(greedy=greedy)
                        for note in notes_of(
                            row,
                            trajectory,
                            group=group,
                            retry=retry,
                        )
                    ]
                ),
                "reward_extra_info": {},
                # verl counts staleness in training steps, we in optimizer steps.
                "min_global_steps": min(s.policy_version for s in row.steps) // updates,
                "max_global_steps": max(s.policy_version for s in row.steps) // updates,
            },
        )
        for row in rows
    ]
