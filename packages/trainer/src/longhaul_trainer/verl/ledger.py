"""What the trainer tells the store of a run, beside what its workers and episodes tell.

Nothing here knows about verl, but that records go through the run's `Recorder`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import torch

from longhaul_core.store.records import (
    DiscardReason,
    EpisodeCredit,
    Evaluation,
    GroupDecision,
    Metrics,
    PolicyVersion,
)
from longhaul_core.types import Split
from longhaul_trainer.run_directory import PanelScore
from longhaul_trainer.training.credit import TrainedEpisode
from longhaul_trainer.training.run_context import RunContext
from longhaul_trainer.training.spans import of_action
from longhaul_trainer.training.step_metadata import GroupName
from longhaul_trainer.verl.recorder import Recorder


class Ledger:
    """Writes down what one attempt at a run decided, trained and measured."""

    def __init__(self, run_context: RunContext, recorder: Recorder) -> None:
        self._run_context = run_context
        self._run = run_context.config
        self._recorder = recorder

    def decisions(
        self,
        training_step: int,
        *,
        taken: Sequence[GroupName] = (),
        thrown_away: Mapping[GroupName, DiscardReason],
    ) -> None:
        """Which groups a training step took, in their order, and which it threw away, and why."""
        fates: list[tuple[GroupName, int | None, DiscardReason | None]] = [
            *((group, place, None) for place, group in enumerate(taken)),
            *((group, None, reason) for group, reason in thrown_away.items()),
        ]
        self._recorder.put(
            [
                GroupDecision(
                    run_id=self._run_context.run_id,
                    attempt=self._run_context.attempt,
                    training_step=group.training_step,
                    group_index=group.group_index,
                    resolved_training_step=training_step,
                    update_index=place,
                    discard_reason=reason,
                )
                for group, place, reason in fates
            ]
        )

    def credit(
        self,
        training_step: int,
        *,
        episodes: Sequence[TrainedEpisode],
        policy_logprobs: Mapping[str, torch.Tensor],
    ) -> None:
        """What the episodes of an update are trained with.

        Args:
            training_step: Of the update.
            episodes: Those that it trains.
            policy_logprobs: Row key → natural log of each token of its response, under the policy
                before the update.
        """
        self._recorder.put(
            [
                EpisodeCredit(
                    run_id=self._run_context.run_id,
                    attempt=self._run_context.attempt,
                    phase="train",
                    training_step=episode.notes[0].training_step,
                    trained_training_step=training_step,
                    group_index=episode.notes[0].group_index,
                    sample_index=episode.notes[0].sample_index,
                    retry=episode.notes[0].retry,
                    episode_advantage=episode.credit.episode_advantage,
                    step_advantages=episode.credit.step_advantages,
                    shaped_rewards=episode.shaped_rewards,
                    returns_to_go=episode.credit.returns_to_go,
                    advantages=episode.credit.advantages,
                    loss_weights=episode.loss_weights,
                    policy_logprobs=tuple(
                        tuple(of_action(step.note, policy_logprobs[step.row]).tolist())
                        for step in episode.steps
                    ),
                    split_reasons=tuple(note.split_reason for note in episode.notes),
                    trained=training_step > self._run.critic.warmup_training_steps,
                    optimizer_step_index=episode.optimizer_step,
                    values=episode.step_values,
                    value_targets=episode.credit.value_targets,
                    final_value=None if episode.values is None else episode.values.final,
                    token_values=episode.token_values,
                    token_advantages=episode.credit.token_advantages,
                )
                for episode in episodes
            ]
        )

    def policy_version(self, training_step: int) -> None:
        """The weights that a training step left, which sample from now on."""
        self._recorder.put(
            [
                PolicyVersion(
                    run_id=self._run_context.run_id,
                    attempt=self._run_context.attempt,
                    version=self._run.policy_version(training_step),
                    training_step=training_step,
                    created_at=time.time(),
                )
            ]
        )

    def metrics(self, training_step: int, metrics: Mapping[str, object]) -> dict[str, float]:
        """The metrics of a training step that are finite numbers; returns what it wrote."""
        values = {
            name: float(value)
            for name, value in metrics.items()
            if isinstance(value, (int, float, np.number)) and np.isfinite(value)
        }
        values["store/writer_seconds"] = self._recorder.processor_seconds
        self._recorder.put(
            [
                Metrics(
                    run_id=self._run_context.run_id,
                    attempt=self._run_context.attempt,
                    training_step=training_step,
                    values=values,
                )
            ]
        )
        return values

    def score(self, training_step: int, score: PanelScore, *, panel: str, split: Split) -> None:
        """What the weights after a training step came to on the panel of this name."""
        self._recorder.put(
            [
                Evaluation(
                    run_id=self._run_context.run_id,
                    attempt=self._run_context.attempt,
                    training_step=training_step,
                    panel=panel,
                    split=split,
                    **asdict(score),
                )
            ]
        )
