"""From an episode to verl's rows.

verl trains on rows: a prompt, a response, a mask. What an advantage needs to know of a row's
steps travels beside it as their `StepMetadata`s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics

from longhaul_core.types import Trajectory
from longhaul_trainer.training.merging import RowForm, cut_into_rows, notes_of
from longhaul_trainer.training.step_metadata import NOTES, GroupName, written


def to_rows(
    trajectory: Trajectory,
    *,
    group: GroupName,
    retry: int,
    training_step_of: Callable[[int], int],
    form: RowForm,
    max_row_tokens: int | None = None,
    greedy: bool = False,
) -> list[AgentLoopOutput]:
    """The rows of `trajectory`, in step order; see `cut_into_rows`.

    A truncated episode whose final prompt was composed has one row more, for the critic alone.

    verl overwrites each row's reward by the last row's, so the step rewards travel in the
    notes and the row carries the episode's return. `training_step_of` gives the training step
    that a policy version came out of.
    """
    rows = cut_into_rows(trajectory.steps, form=form, max_row_tokens=max_row_tokens)
    made = [
        AgentLoopOutput(
            prompt_ids=list(row.prompt_tokens),
            response_ids=row.response_tokens,
            response_mask=row.response_mask,
            response_logprobs=row.response_logprobs,
            reward_score=trajectory.episode_return,
            num_turns=len(trajectory.steps),
            metrics=AgentLoopMetrics(
                generate_sequences=sum(
                    call.generate_seconds for s in row.steps for call in s.calls
                ),
                tool_calls=sum(step.environment_seconds for step in row.steps),
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
                "min_global_steps": training_step_of(min(s.policy_version for s in row.steps)),
                "max_global_steps": training_step_of(max(s.policy_version for s in row.steps)),
            },
        )
        for row in rows
    ]
    if trajectory.final_prompt_tokens is not None:
        made.append(_final_row(trajectory.final_prompt_tokens, like=made[-1]))
    return made


def _final_row(prompt_tokens: tuple[int, ...], *, like: AgentLoopOutput) -> AgentLoopOutput:
    """A row for the critic alone: the final observation's prompt, and no step.

    verl has no rows without a response, so one token stands there that nothing reads.
    """
    return AgentLoopOutput(
        prompt_ids=list(prompt_tokens),
        response_ids=[prompt_tokens[-1]],
        response_mask=[0],
        response_logprobs=[0.0],
        reward_score=like.reward_score,
        num_turns=like.num_turns,
        metrics=AgentLoopMetrics(),
        extra_fields=like.extra_fields | {NOTES: written([])},
    )


def with_hook(
    rows: list[AgentLoopOutput], rewards: Sequence[float] | None, *, error: str
) -> list[AgentLoopOutput]:
    """`rows` of one episode, each step told what `algorithm.reward_shaping` gives it.

    Args:
        rows: Of `to_rows`.
        rewards: One for each step of the episode; None where the run has no such function.
        error: Why it gave nothing.
    """
    for row in rows:
        for note in row.extra_fields[NOTES]:
            note["hook_reward"] = None if rewards is None else rewards[note["step"]]
            note["hook_error"] = error
    return rows
