"""How an episode is cut into rows: one row per step, or steps that extend each other in one.

A step continues the row of the step before it where its prompt begins with that step's
prompt and action, token by token. What the engine read and wrote is then one sequence, and
the learner reads it once instead of once per step. Nothing is tokenised again: where the
tokens differ, for whatever reason, a new row begins and says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal, TypeVar

from longhaul_core.types import SplitReason, Step, Trajectory
from longhaul_trainer.training.step_metadata import GroupName, StepMetadata

RowForm = Literal["step", "merged"]

T = TypeVar("T", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Consecutive steps of an episode, each of which extends the one before it."""

    reason: SplitReason
    """Why the row begins with its first step."""
    steps: tuple[Step, ...]

    @property
    def prompt_tokens(self) -> tuple[int, ...]:
        """The prompt of the first step."""
        return self.steps[0].prompt_tokens

    @property
    def response_tokens(self) -> list[int]:
        """The first action, the gap before the second, the second action, and so on."""
        last = self.steps[-1]
        whole = last.prompt_tokens + last.action_tokens
        return list(whole[len(self.prompt_tokens) :])

    @property
    def starts(self) -> list[int]:
        """0-based place in the response of each action's first token."""
        return [len(step.prompt_tokens) - len(self.prompt_tokens) for step in self.steps]

    @property
    def response_mask(self) -> list[int]:
        """1 where a token was sampled, 0 in a gap."""
        return self._in_actions([[1] * len(step.action_tokens) for step in self.steps], gap=0)

    @property
    def response_logprobs(self) -> list[float]:
        """Behavior logprobs; 0 in a gap."""
        return self._in_actions([step.behavior_logprobs for step in self.steps], gap=0.0)

    def _in_actions(self, values: Sequence[Sequence[T]], *, gap: T) -> list[T]:
        ends = [
            s + len(step.action_tokens) for s, step in zip(self.starts, self.steps, strict=True)
        ]
        gaps = [0, *(start - end for end, start in zip(ends, self.starts[1:], strict=False))]
        return [
            value
            for length, of_step in zip(gaps, values, strict=True)
            for value in chain([gap] * length, of_step)
        ]


def cut_into_rows(
    steps: Sequence[Step], *, form: RowForm, max_row_tokens: int | None = None
) -> list[Row]:
    """The rows of an episode, in step order; each step is in one of them.

    Args:
        steps: Of one episode, at least one, in order.
        form: One row per step, or merged rows.
        max_row_tokens: Longest row of several steps, prompt and gaps included; None for no
            such limit. A step that is longer by itself has a row of its own. A merged row is
            as long as the prompt and action of its last step.
    """
    reasons = [SplitReason.FIRST_STEP] + [
        split_reason(before, step, form=form, max_row_tokens=max_row_tokens)
        for before, step in pairwise(steps)
    ]
    places = [place for place, reason in enumerate(reasons) if reason is not None]
    return [
        Row(reason=reason, steps=tuple(steps[start:stop]))
        for start, stop in pairwise([*places, len(steps)])
        if (reason := reasons[start]) is not None
    ]


def split_reason(
    before: Step, step: Step, *, form: RowForm, max_row_tokens: int | None
) -> SplitReason | None:
    """Why `step` cannot continue the row that ends with `before`; None if it can.

    Of several reasons the first in this order: form, prompt, policy, length.
    """
    if form == "step":
        return SplitReason.ONE_ROW_PER_STEP
    read_and_written = before.prompt_tokens + before.action_tokens
    if step.prompt_tokens[: len(read_and_written)] != read_and_written:
        return SplitReason.PROMPT_CHANGED
    if step.policy_version != before.policy_version:
        return SplitReason.POLICY_CHANGED
    num_tokens = len(step.prompt_tokens) + len(step.action_tokens)
    if max_row_tokens is not None and num_tokens > max_row_tokens:
        return SplitReason.ROW_FULL
    return None


def notes_of(
    row: Row, trajectory: Trajectory, *, group: GroupName, retry: int
) -> tuple[StepMetadata, ...]:
    """What the trainer is told of the steps of a row of `trajectory`."""
    return tuple(
        StepMetadata(
            environment=trajectory.task.environment,
            task_id=trajectory.task.task_id,
            training_step=group.training_step,
            group_index=group.group_index,
            policy_version=step.policy_version,
            sample_index=trajectory.sample_index,
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
            start=start,
            split_reason=None if place else row.reason.value,
            truncated=trajectory.stop_reason.truncated,
            final_anchor=trajectory.final_observation.anchor
            if step is trajectory.steps[-1]
            else "",
        )
        for place, (step, start) in enumerate(zip(row.steps, row.starts, strict=True))
    )
