"""From an episode to verl's rows.

verl trains on rows: a prompt, a reply, a mask. An episode becomes one row per step, in
step order; what an advantage needs to know of a step travels beside the row as a `RowNote`.
"""

from __future__ import annotations

from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics

from longhaul_core.types import Trajectory
from longhaul_trainer.verl.notes import NOTE, RowNote


def to_rows(
    trajectory: Trajectory, *, group_index: int, retry: int, optimizer_steps_per_training_step: int
) -> list[AgentLoopOutput]:
    """One verl row per step of `trajectory`, in step order.

    verl overwrites each row's reward by the last row's, so the step rewards travel in the
    note and the row carries the episode's return.
    """
    rows: list[AgentLoopOutput] = []
    for step in trajectory.steps:
        note = RowNote(
            task_id=trajectory.task.task_id,
            group_index=group_index,
            position=trajectory.position,
            retry=retry,
            horizon=trajectory.horizon,
            step=step.index,
            num_steps=len(trajectory.steps),
            reward=step.reward,
            action_valid=step.action_valid,
            anchor=step.observation.anchor,
            success=trajectory.success,
            episode_return=trajectory.episode_return,
            prompt_tokens=len(step.prompt_tokens),
            action_tokens=len(step.action_tokens),
        )
        rows.append(
            AgentLoopOutput(
                prompt_ids=list(step.prompt_tokens),
                response_ids=list(step.action_tokens),
                response_mask=[1] * len(step.action_tokens),
                response_logprobs=list(step.behavior_logprobs),
                reward_score=trajectory.episode_return,
                num_turns=len(trajectory.steps),
                metrics=AgentLoopMetrics(
                    generate_sequences=step.timings.generate_seconds,
                    tool_calls=step.timings.environment_seconds,
                ),
                extra_fields={
                    NOTE: note._asdict(),
                    "reward_extra_info": {},
                    # verl counts staleness in training steps, we in optimizer steps.
                    "min_global_steps": step.policy_version // optimizer_steps_per_training_step,
                    "max_global_steps": step.policy_version // optimizer_steps_per_training_step,
                },
            )
        )
    return rows
