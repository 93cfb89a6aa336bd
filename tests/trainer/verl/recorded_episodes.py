"""Recorded episodes whose prompts go on from each other, as rows of either form.

Importing this imports no verl.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from longhaul_core.types import Observation, Step, Trajectory
from longhaul_trainer.config import AlgorithmConfig
from longhaul_trainer.training.columns import token_weights
from longhaul_trainer.training.credit import TrainedCall
from longhaul_trainer.training.merging import Row, RowForm, beside_rows, cut_into_rows, metadata_of
from longhaul_trainer.training.spans import FloatArray
from longhaul_trainer.training.step_metadata import GroupName, RowMetadata
from longhaul_trainer.training.training_step import TrainingStep
from row_metadata import in_response
from steps import sampled_of, with_call
from store_samples import make_trajectory
from trainer.verl.updates import ReadRow, reply_logprobs

JUNK = -3.25
"""What old and reference logprobs are in a gap: the learner computes them, and nobody may care."""


class Recorded:
    """Episodes of one group, with the logprobs that the rows of an update carry."""

    def __init__(
        self,
        plain: Any,  # noqa: ANN401
        num_steps: Sequence[int],
        *,
        on_policy: bool = False,
        breaks: bool = True,
    ) -> None:
        """Play episodes of random tokens.

        Args:
            plain: The model.
            num_steps: Of each episode.
            on_policy: Whether the old logprobs are the model's own.
            breaks: Whether some prompts do not go on from the step before.
        """
        self._draw = torch.Generator().manual_seed(7)
        self._logprobs: dict[tuple[int, int], tuple[FloatArray, FloatArray]] = {}
        self.trajectories = [
            self._play(plain, sample_index, number, on_policy=on_policy, breaks=breaks)
            for sample_index, number in enumerate(num_steps)
        ]

    def _play(
        self,
        plain: Any,  # noqa: ANN401
        sample_index: int,
        num_steps: int,
        *,
        on_policy: bool,
        breaks: bool,
    ) -> Trajectory:
        made = make_trajectory(rewards=(0.0,) * num_steps, sample_index=sample_index)
        steps: list[Step] = []
        for step in made.steps:
            before = sampled_of(steps[-1]) if steps else None
            known = before.prompt_tokens + before.action_tokens if before else ()
            if breaks and step.index % 4 == 3:
                known = ()
            prompt = known + self._tokens(self._number(1 if known else 5, 6))
            if known and step.index % 3 == 2:
                prompt = known  # no gap at all
            action = self._tokens(self._number(1, 6))
            with torch.no_grad():
                now = reply_logprobs(plain, prompt, action)[0].double().numpy()
            shifts = np.array([self._number(-6, 7) / 10 for _ in action])
            old = now if on_policy else now - shifts
            self._logprobs[sample_index, step.index] = old, now + shifts[::-1] / 2
            behavior = old - np.array([self._number(-5, 6) / 10 for _ in action])
            steps.append(
                replace(
                    with_call(
                        step,
                        prompt_tokens=prompt,
                        action_tokens=action,
                        behavior_logprobs=tuple(behavior.tolist()),
                    ),
                    observation=Observation(text="here", anchor_state=f"state {step.index % 3}"),
                    reward=self._number(-2, 3) / 2,
                )
            )
        return replace(made, steps=tuple(steps))

    def _number(self, low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=self._draw))

    def _tokens(self, number: int) -> tuple[int, ...]:
        return tuple(torch.randint(5, 4096, (number,), generator=self._draw).tolist())

    def credit(
        self, form: RowForm, algorithm: AlgorithmConfig, *, max_row_tokens: int | None = None
    ) -> TrainingStep:
        """What the trainer makes of the episodes."""
        rows = {
            f"train-1-0_{trajectory.sample_index}_{number}": row
            for trajectory in self.trajectories
            for number, row in enumerate(
                beside(
                    cut_into_rows(trajectory.steps, form=form, max_row_tokens=max_row_tokens),
                    trajectory,
                )
            )
        }
        return TrainingStep.of(
            rows, number=1, algorithm=algorithm, num_optimizer_steps=1, groups=["train-1-0"]
        ).credited()

    def rows(
        self, form: RowForm, algorithm: AlgorithmConfig, *, max_row_tokens: int | None = None
    ) -> list[ReadRow]:
        """The rows of the update, as the worker reads them."""
        credit = self.credit(form, algorithm, max_row_tokens=max_row_tokens)
        read: list[ReadRow] = []
        for trajectory in self.trajectories:
            cut = cut_into_rows(trajectory.steps, form=form, max_row_tokens=max_row_tokens)
            for number, (row, metadata) in enumerate(
                zip(cut, beside(cut, trajectory), strict=True)
            ):
                (calls,) = credit.calls_of([f"train-1-0_{trajectory.sample_index}_{number}"])
                gaps = 1 - np.array(row.response_mask)
                old, reference = (
                    self._placed(trajectory.sample_index, calls, which, num_tokens=len(gaps))
                    for which in (0, 1)
                )
                read.append(
                    ReadRow(
                        prompt=row.prompt_tokens,
                        response=row.response_tokens,
                        mask=row.response_mask,
                        old_logprobs=(old + JUNK * gaps).tolist(),
                        behavior_logprobs=row.response_logprobs,
                        reference_logprobs=(reference + JUNK * gaps).tolist(),
                        advantages=_spread(calls, len(gaps), lambda c: c.token_advantages),
                        weights=_spread(calls, len(gaps), token_weights),
                        metadata=metadata,
                    )
                )
        return read

    def _placed(
        self, sample_index: int, calls: Sequence[TrainedCall], which: int, *, num_tokens: int
    ) -> FloatArray:
        values = [self._logprobs[sample_index, call.span.step][which] for call in calls]
        return in_response([call.span for call in calls], values, num_tokens=num_tokens)


def beside(rows: Sequence[Row], trajectory: Trajectory) -> list[RowMetadata]:
    """What travels beside the rows of the episode."""
    return beside_rows(rows, metadata_of(trajectory, group=GroupName(1, 0), retry=0))


def _spread(
    calls: Sequence[TrainedCall], num_tokens: int, values: Callable[[TrainedCall], FloatArray]
) -> list[float]:
    placed = in_response(
        [call.span for call in calls], [values(call) for call in calls], num_tokens=num_tokens
    )
    return placed.tolist()
