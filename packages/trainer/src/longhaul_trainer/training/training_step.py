"""One training step, between the moments at which verl asks for something of it.

A training step is made of the rows that were played for its update (`TrainingStep.of`): that
selects what is trained and drops the rest. When the learner has read the rows it gets the
critic's values and what the starting model makes of them (`with_values`, `with_reference_kl`,
`with_gains`), and `credited` computes the advantages of every call, once. `columns` are those
advantages and weights as the loss reads them.

Nothing here knows about verl.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch

from longhaul_core.advantages.preferences import PreferenceSettings
from longhaul_core.types import GroupOutcome
from longhaul_trainer.config.learning import AlgorithmConfig
from longhaul_trainer.losses.kl import KlKind
from longhaul_trainer.training.columns import by_row, responses, token_targets, token_weights
from longhaul_trainer.training.credit import (
    NO_SHARES,
    CriticValues,
    Selection,
    TrainedCall,
    TrainedEpisode,
    credit_episodes,
    select_episodes,
)
from longhaul_trainer.training.demonstrations import NO_DEMONSTRATIONS, Demonstrations
from longhaul_trainer.training.metrics import (
    agreement,
    baseline_metrics,
    episode_metrics,
    row_metrics,
)
from longhaul_trainer.training.preferences import gains_over_reference, preference_metrics
from longhaul_trainer.training.rewards import reference_divergences
from longhaul_trainer.training.spans import FloatArray
from longhaul_trainer.training.step_metadata import (
    Episode,
    EpisodeMetadata,
    PlayedEpisode,
    Rows,
    group_outcomes,
    played_episodes,
    without_final,
    without_greedy,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStep:
    """What one training step plays, selects, credits and trains."""

    number: int
    """1-based."""
    algorithm: AlgorithmConfig
    episodes: tuple[EpisodeMetadata, ...]
    """That ended and were taken for the update, greedy ones not among them."""
    reported: tuple[EpisodeMetadata, ...] = ()
    """That ended and whose outcomes this training step reports to schedules and task streams."""
    selection: Selection
    """What of them is trained, and with what weights."""
    greedy: Mapping[str, PlayedEpisode] | None
    """Group → its greedy episode, where the algorithm compares with one."""
    final_rows: Mapping[Episode, str]
    """Row of the final observation of each trained episode that has one, for the critic."""
    unread: tuple[str, ...]
    """Keys of the rows that nobody reads any more."""
    updates: Mapping[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])
    """0-based optimizer step → keys of its rows, those that only fill up included, and without
    those of demonstrations."""
    demonstrations: Demonstrations = NO_DEMONSTRATIONS
    """What is imitated beside its groups."""
    values: CriticValues | None = None
    """The critic's; None before it was asked, and without one."""
    reference_kl: Mapping[Episode, FloatArray] | None = None
    """Divergence from the starting model of each step; None unless it is part of the reward."""
    preferences: PreferenceSettings | None = None
    """Which episodes or steps make pairs; None unless pairs are trained."""
    gains: Mapping[Episode, Sequence[float]] | None = None
    """How much likelier each step is to the policy than to the starting model; None unless pairs
    are trained."""
    trained: tuple[TrainedEpisode, ...] | None = None
    """The selected episodes with their advantages; None before `credited`."""

    @classmethod
    def of(
        cls,
        rows: Rows,
        *,
        number: int,
        algorithm: AlgorithmConfig,
        num_optimizer_steps: int,
        groups: Sequence[str],
        preferences: PreferenceSettings | None = None,
        purposes: Mapping[str, float] = NO_SHARES,
    ) -> Self:
        """The training step whose update took `groups`.

        Args:
            rows: Of the groups' episodes.
            number: 1-based number of the training step.
            algorithm: How to credit.
            num_optimizer_steps: See `select_episodes`.
            groups: Names of the groups, those whose episodes all failed too.
            preferences: Which episodes or steps make pairs; None unless pairs are trained.
            purposes: See `select_episodes`.

        Raises:
            ValueError: If an episode misses a row, or has a call in two.
        """
        of_calls, finals = without_final(rows)
        sampled, greedy = without_greedy(of_calls)
        episodes = played_episodes(sampled)
        compared_with = greedy if algorithm.needs_greedy_episode else None
        selection = select_episodes(
            episodes,
            algorithm=algorithm,
            num_optimizer_steps=num_optimizer_steps,
            groups=groups,
            greedy=compared_with,
            purposes=purposes,
        )
        selected = {episode.name for episode in selection.episodes}
        return cls(
            number=number,
            algorithm=algorithm,
            episodes=tuple(episode.metadata for episode in episodes.values()),
            selection=selection,
            preferences=preferences,
            greedy=compared_with,
            final_rows={name: key for name, key in finals.items() if name in selected},
            unread=(
                *(key for key in of_calls if key not in sampled),
                *selection.left_out,
                *(key for name, key in finals.items() if name not in selected),
            ),
        )

    def with_reported(self, episodes: Sequence[EpisodeMetadata]) -> Self:
        """The same, reporting the outcomes of `episodes`, without those beside their groups."""
        sampled = tuple(e for e in episodes if not (e.greedy or e.demonstration))
        return replace(self, reported=sampled)

    def with_updates(self, updates: Mapping[int, Sequence[str]]) -> Self:
        """The same, with the rows of each optimizer step."""
        return replace(self, updates={part: tuple(keys) for part, keys in updates.items()})

    def with_demonstrations(self, demonstrations: Demonstrations) -> Self:
        """The same, with what is imitated beside its groups."""
        return replace(self, demonstrations=demonstrations)

    def with_values(self, values: CriticValues) -> Self:
        """The same, with what the critic computed."""
        return replace(self, values=values)

    def with_reference_kl(
        self,
        *,
        policy: Mapping[str, torch.Tensor],
        reference: Mapping[str, torch.Tensor],
        kind: KlKind,
    ) -> Self:
        """The same, with the divergence from the starting model; see `reference_divergences`."""
        selected = {episode.name: episode.played for episode in self.selection.episodes}
        return replace(
            self,
            reference_kl=reference_divergences(
                selected, policy=policy, reference=reference, kind=kind
            ),
        )

    def with_gains(
        self, *, policy: Mapping[str, torch.Tensor], reference: Mapping[str, torch.Tensor]
    ) -> Self:
        """The same, with what pairs are compared by; see `gains_over_reference`."""
        selected = {episode.name: episode.played for episode in self.selection.episodes}
        return replace(
            self, gains=gains_over_reference(selected, policy=policy, reference=reference)
        )

    def credited(self) -> Self:
        """The same, with the advantages of every trained call.

        Raises:
            ConfigError: See `credit_episodes`.
            ValueError: If the algorithm has a critic and its values are missing, or it compares
                pairs and their gains are.
        """
        return replace(
            self,
            trained=credit_episodes(
                self.selection,
                algorithm=self.algorithm,
                greedy=self.greedy,
                values=self.values,
                reference_kl=self.reference_kl,
                preferences=self.preferences,
                gains=self.gains,
            ),
        )

    @property
    def credit(self) -> tuple[TrainedEpisode, ...]:
        """The trained episodes.

        Raises:
            ValueError: Before `credited`.
        """
        if self.trained is None:
            raise ValueError(f"training step {self.number} is not credited yet")
        return self.trained

    @property
    def calls(self) -> list[TrainedCall]:
        """The calls of all trained episodes, in order."""
        return [call for episode in self.credit for call in episode.calls]

    @property
    def groups_without_signal(self) -> int:
        """Trained groups whose every advantage is zero."""
        groups = {episode.name.group for episode in self.credit}
        return len(groups - {e.name.group for e in self.credit if e.has_signal})

    def calls_of(self, keys: Sequence[str]) -> list[list[TrainedCall]]:
        """The calls of each row, in order; none of a row that only fills up."""
        rows = by_row(self.calls)
        return [rows.get(key, []) for key in keys]

    def columns(self, keys: Sequence[str], lengths: Sequence[int]) -> dict[str, torch.Tensor]:
        """What the losses read of each row, by verl's names; zeros in gaps and in filling rows.

        Args:
            keys: Of the rows.
            lengths: Tokens of each row's response.
        """
        rows = self.calls_of(keys)
        advantages = responses(rows, lengths, lambda call: call.token_advantages)
        found = {
            "advantages": advantages,
            "returns": advantages,
            "loss_weights": responses(rows, lengths, token_weights),
        }
        if self.algorithm.uses_critic:
            found |= {
                "values": responses(rows, lengths, lambda call: call.token_values),
                "returns": responses(rows, lengths, token_targets),
                "value_weights": responses(rows, lengths, lambda call: call.value_weights),
            }
        return found

    def rows_with_advantage(self) -> set[str]:
        """Keys of the rows in which a token has an advantage other than zero.

        Those of demonstrations are not among them: all of theirs are read.
        """
        return {call.row for call in self.calls if call.token_advantages.any()}

    @property
    def played(self) -> tuple[EpisodeMetadata, ...]:
        """The episodes that it reports; those that it took where it reports none."""
        return self.reported or self.episodes

    @property
    def outcomes(self) -> list[GroupOutcome]:
        """How often each group that it reports solved its task."""
        return group_outcomes(self.reported)

    def report(self) -> dict[str, float]:
        """Metrics that are known before the learner reads a row."""
        selected = {episode.name.group for episode in self.selection.episodes}
        found = episode_metrics(self.played)
        found["groups/left_out"] = self.selection.num_groups - len(selected)
        found |= row_metrics(
            self.selection, num_rows=sum(len(keys) for keys in self.updates.values())
        )
        if self.greedy:
            found |= baseline_metrics(self.greedy)
        return found | self.demonstrations.report()

    def credit_report(
        self,
        *,
        policy: Mapping[str, torch.Tensor],
        behavior: Mapping[str, torch.Tensor],
        policy_version: int,
        nothing_stale: bool,
    ) -> dict[str, float]:
        """Metrics of what was credited.

        Args:
            policy: Row key → natural log of each token of its response, under the policy before
                the update.
            behavior: The same as the engine sampled it.
            policy_version: Of the learner's weights before the update.
            nothing_stale: Whether no call may have been sampled by other weights; then one that
                was is compared with the learner all the same, so that it shows.
        """
        calls = self.calls
        fresh = [call for call in calls if call.span.policy_version == policy_version]
        compared = calls if nothing_stale else fresh
        found: dict[str, float] = {
            "groups/without_signal": self.groups_without_signal,
            "steps/stale_rate": 1 - len(fresh) / len(calls),
        }
        if self.reference_kl is not None:
            divergence = sum(
                of_step for name in self.reference_kl.values() for of_step in name.tolist()
            )
            found["episodes/reference_kl_per_token"] = divergence / sum(
                call.span.action_tokens for call in calls
            )
        if self.preferences is not None and self.gains is not None:
            found |= preference_metrics(self.credit, gains=self.gains, settings=self.preferences)
        if not compared or self.algorithm.imitates:  # nobody sampled what is imitated
            return found
        return found | agreement(policy, behavior, calls=compared)
