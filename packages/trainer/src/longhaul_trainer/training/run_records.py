"""What the trainer puts into the store of a run, beside what its workers and episodes put there.

Each method makes records and writes nothing. Nothing here knows about verl.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import cast

import torch

from longhaul_core.store.records import (
    CallCredit,
    DiscardReason,
    EpisodeCredit,
    Evaluation,
    GroupDecision,
    Metrics,
    PolicyVersion,
)
from longhaul_core.types import Split
from longhaul_trainer.run.context import RunContext
from longhaul_trainer.run.directory import PanelScore
from longhaul_trainer.training.credit import TrainedCall, TrainedEpisode
from longhaul_trainer.training.preferences import logprob_sum
from longhaul_trainer.training.spans import of_call
from longhaul_trainer.training.step_metadata import GroupName


@dataclass(frozen=True, slots=True)
class RunRecords:
    """Makes the records of one attempt at a run: what it decided, trained and measured."""

    run_context: RunContext

    def decisions(
        self,
        training_step: int,
        *,
        taken: Sequence[GroupName] = (),
        thrown_away: Mapping[GroupName, DiscardReason],
    ) -> list[GroupDecision]:
        """Which groups a training step took, in their order, and which it threw away, and why."""
        fates: list[tuple[GroupName, int | None, DiscardReason | None]] = [
            *((group, place, None) for place, group in enumerate(taken)),
            *((group, None, reason) for group, reason in thrown_away.items()),
        ]
        return [
            GroupDecision(
                run_id=self.run_context.run_id,
                attempt=self.run_context.attempt,
                training_step=group.training_step,
                group_index=group.group_index,
                resolved_training_step=training_step,
                update_index=place,
                discard_reason=reason,
            )
            for group, place, reason in fates
        ]

    def credit(
        self,
        training_step: int,
        *,
        episodes: Sequence[TrainedEpisode],
        policy_logprobs: Mapping[str, torch.Tensor],
        policy_entropies: Mapping[str, torch.Tensor],
        reference_logprobs: Mapping[str, torch.Tensor] | None = None,
    ) -> list[EpisodeCredit]:
        """What the episodes of an update are trained with.

        Args:
            training_step: Of the update.
            episodes: Those that it trains.
            policy_logprobs: Row key → natural log of each token of its response, under the policy
                before the update.
            policy_entropies: Row key → entropy, in nats, of its distribution at each token of the
                response.
            reference_logprobs: Row key → natural log of each token of its response, under the
                weights that the run starts from; None unless pairs of episodes are trained.
        """
        trained = training_step > self.run_context.config.critic.warmup_training_steps
        return [
            EpisodeCredit(
                run_id=self.run_context.run_id,
                attempt=self.run_context.attempt,
                phase="demonstration" if episode.metadata.demonstration else "train",
                training_step=episode.metadata.training_step,
                trained_training_step=training_step,
                group_index=episode.metadata.group_index,
                sample_index=episode.metadata.sample_index,
                retry=episode.metadata.retry,
                episode_advantage=episode.credit.episode_advantage,
                step_advantages=episode.credit.step_advantages,
                shaped_rewards=episode.shaped_rewards,
                returns_to_go=episode.credit.returns_to_go,
                advantages=episode.credit.advantages,
                loss_weights=episode.loss_weights,
                calls=tuple(
                    call_credit(
                        call,
                        policy_logprobs=_floats(of_call(call.span, policy_logprobs[call.row])),
                        # Rounding takes the entropy of a certain token below 0.
                        policy_entropies=_floats(
                            of_call(call.span, policy_entropies[call.row]).clamp(min=0)
                        ),
                        by_token=episode.credit.token_advantages is not None,
                        reference_logprob_sum=None
                        if reference_logprobs is None
                        else logprob_sum(call.span, reference_logprobs[call.row]),
                    )
                    for call in episode.calls
                ),
                trained=trained,
                optimizer_step_index=episode.optimizer_step,
                values=episode.step_values,
                value_targets=episode.credit.value_targets,
                final_value=episode.final_value,
            )
            for episode in episodes
        ]

    def policy_version(self, training_step: int) -> PolicyVersion:
        """The weights that a training step left, which sample from now on."""
        return PolicyVersion(
            run_id=self.run_context.run_id,
            attempt=self.run_context.attempt,
            version=self.run_context.config.policy_version(training_step),
            training_step=training_step,
            created_at=time.time(),
        )

    def metrics(self, training_step: int, metrics: Mapping[str, object]) -> Metrics:
        """The metrics of a training step that are finite numbers."""
        return Metrics(
            run_id=self.run_context.run_id,
            attempt=self.run_context.attempt,
            training_step=training_step,
            values={
                name: float(value)
                for name, value in metrics.items()
                if isinstance(value, Real) and math.isfinite(value)
            },
        )

    def score(
        self, training_step: int, score: PanelScore, *, panel: str, split: Split
    ) -> Evaluation:
        """The score on a panel of the weights after a training step."""
        return Evaluation(
            run_id=self.run_context.run_id,
            attempt=self.run_context.attempt,
            training_step=training_step,
            panel=panel,
            split=split,
            num_episodes=score.num_episodes,
            mean_return=score.mean_return,
            success_rate=score.success_rate,
        )


def call_credit(
    call: TrainedCall,
    *,
    policy_logprobs: tuple[float, ...],
    policy_entropies: tuple[float, ...],
    by_token: bool,
    reference_logprob_sum: float | None = None,
) -> CallCredit:
    """What the store keeps of a call; `by_token` where tokens have advantages of their own."""
    return CallCredit(
        step_index=call.span.step,
        call_index=call.span.call,
        advantage=call.advantage,
        loss_weight=call.loss_weight,
        policy_logprobs=policy_logprobs,
        policy_entropies=policy_entropies,
        split_reason=call.span.split_reason,
        token_values=tuple(call.token_values.tolist())
        if by_token and len(call.token_values)
        else None,
        token_advantages=tuple(call.token_advantages.tolist()) if by_token else None,
        reference_logprob_sum=reference_logprob_sum,
    )


def _floats(tokens_T: torch.Tensor) -> tuple[float, ...]:
    return tuple(cast("list[float]", tokens_T.tolist()))
