"""Stored episodes that are imitated beside the groups of a training step.

    L = L_RL + c · Σ w · (−log π),        Σ w = 1

over the tokens of the demonstrations of an optimizer step: their weights `w` are shared out by the
run's loss unit among them alone, so that neither sum depends on how many episodes the other has. A
demonstration belongs to the optimizer step of the group that it was played beside.

With `c = μ / (1 − μ)` it is CHORD's loss (arXiv:2508.11408) but for a factor of the whole.

Nothing here knows about verl.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Self

import torch

from longhaul_trainer.config.learning import AlgorithmConfig
from longhaul_trainer.training.columns import by_row, responses, token_weights
from longhaul_trainer.training.credit import (
    SelectedEpisode,
    TrainedCall,
    TrainedEpisode,
    credit_episodes,
    select_episodes,
)
from longhaul_trainer.training.preferences import logprob_sum
from longhaul_trainer.training.step_metadata import Rows, played_episodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrations:
    """What one update imitates beside its groups; nothing, where the coefficient is 0."""

    coefficient: float
    """`c`, by which the weights of their tokens are multiplied."""
    episodes: tuple[TrainedEpisode, ...]
    """With an advantage of 1, or the weight of their source."""
    parts: Mapping[int, tuple[str, ...]]
    """0-based optimizer step → keys of its rows, those that only fill up included."""

    def with_parts(self, parts: Mapping[int, Sequence[str]]) -> Self:
        """The same, with the rows of each optimizer step."""
        return replace(self, parts={part: tuple(keys) for part, keys in parts.items()})

    @classmethod
    def of(
        cls,
        rows: Rows,
        *,
        algorithm: AlgorithmConfig,
        num_optimizer_steps: int,
        groups: Sequence[str],
        purposes: Mapping[str, float],
        coefficient: float,
    ) -> Self:
        """Those whose rows these are.

        Args:
            rows: Of demonstrations alone.
            algorithm: Of the run; its loss unit and its discount are theirs too.
            num_optimizer_steps: See `select_episodes`, as of the next two.
            groups: Which the update took.
            purposes: Shares of the loss.
            coefficient: Of their loss, at least 0.

        Raises:
            ValueError: If an episode misses a row, or has a call in two.
        """
        if not rows or coefficient == 0:
            return cls(coefficient=coefficient, episodes=(), parts={})
        imitation = AlgorithmConfig(
            name="imitation",
            loss_unit=algorithm.loss_unit,
            tokens_per_episode=algorithm.tokens_per_episode,
            discount=algorithm.discount,
        )
        selection = select_episodes(
            played_episodes(rows),
            algorithm=imitation,
            num_optimizer_steps=num_optimizer_steps,
            groups=groups,
            purposes=purposes,
        )
        scaled = replace(
            selection, episodes=tuple(_scaled(one, coefficient) for one in selection.episodes)
        )
        return cls(
            coefficient=coefficient,
            episodes=credit_episodes(scaled, algorithm=imitation),
            parts={
                part: tuple(scaled.keys_of(part))
                for part in sorted({one.optimizer_step for one in scaled.episodes})
            },
        )

    @property
    def calls(self) -> list[TrainedCall]:
        """Of all of them, in order."""
        return [call for episode in self.episodes for call in episode.calls]

    def columns(self, keys: Sequence[str], lengths: Sequence[int]) -> dict[str, torch.Tensor]:
        """What the loss reads of each row, by verl's names; see `TrainingStep.columns`.

        The reference's log-probabilities are there for losses that read those of other rows.
        """
        of_rows = by_row(self.calls)
        rows = [of_rows.get(key, []) for key in keys]
        return {
            "advantages": responses(rows, lengths, lambda call: call.token_advantages),
            "loss_weights": responses(rows, lengths, token_weights),
            "ref_log_prob": responses([()] * len(keys), lengths, token_weights),
        }

    def report(self) -> dict[str, float]:
        """Metrics that are known before the learner reads a row; none where nothing is imitated."""
        if not self.episodes:
            return {}
        return {
            "imitation/coefficient": self.coefficient,
            "imitation/episodes": len(self.episodes),
            "imitation/tokens": sum(call.span.action_tokens for call in self.calls),
        }

    def loss_report(self, policy: Mapping[str, torch.Tensor]) -> dict[str, float]:
        """Their loss before the update, without the coefficient: the mean over optimizer steps.

        Args:
            policy: Row key → natural log of each token of its response, under the policy before
                the update.
        """
        if not self.episodes:
            return {}
        whole = fsum(
            -call.advantage * call.loss_weight * logprob_sum(call.span, policy[call.row])
            for call in self.calls
        )
        return {"imitation/loss": whole / self.coefficient / len(self.parts)}


NO_DEMONSTRATIONS = Demonstrations(coefficient=0.0, episodes=(), parts={})
"""Of a run that imitates nothing."""


def _scaled(episode: SelectedEpisode, factor: float) -> SelectedEpisode:
    return replace(
        episode,
        loss_weights=tuple(factor * weight for weight in episode.loss_weights),
        call_weights=tuple(factor * weight for weight in episode.call_weights),
    )
