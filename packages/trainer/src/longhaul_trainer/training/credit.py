"""Advantages and loss weights of one training step, from the notes of its steps.

Nothing here knows about verl, and nothing depends on how an episode was cut into rows. How
episodes are compared is the estimator's; weights are shared out inside one optimizer step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from longhaul_core.advantages import EpisodeCredit, LossUnit, loss_weights
from longhaul_trainer.config.learning import AlgorithmConfig
from longhaul_trainer.training.estimators import Group, estimate, smallest_group
from longhaul_trainer.training.rewards import shaped_rewards
from longhaul_trainer.training.spans import FloatArray
from longhaul_trainer.training.step_metadata import Episode, RowKey, RowMetadata, StepMetadata


class CriticValues(NamedTuple):
    """What the critic said before the training step's update."""

    rows: Mapping[str, FloatArray]
    """Row key → the value before each token of its response."""
    finals: Mapping[Episode, float]
    """Of each truncated episode, the value of its final observation."""


class TrainedStep(NamedTuple):
    """One step, with what its action's tokens are trained with."""

    row: str
    """Key of the row that it is in."""
    note: StepMetadata
    token_advantages: FloatArray
    """Advantage of each token of its action."""
    loss_weight: float
    """Weight of each of them."""
    token_values: FloatArray
    """What the critic said before each of them, or before them all; empty without one."""
    value_target: float
    """What it should have said; 0 without one."""
    value_weights: FloatArray
    """Weight of each of them in the critic's loss; empty without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeValues:
    """What the critic said of an episode, and how much it learns of each of its steps."""

    tokens: tuple[FloatArray, ...]
    """For each step, the value of each token of its action; the step's own for all of them where
    it credits steps."""
    weights: tuple[FloatArray, ...]
    """For each step, the weight of each of these in the critic's loss."""
    final: float | None
    """Of the final observation; None if the episode terminated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedEpisode:
    """One episode of the training step, with what its steps are trained with."""

    row_keys: tuple[str, ...]
    """Key of the row that each step is in; merged steps have the same one."""
    notes: tuple[StepMetadata, ...]
    """Of each step, in order."""
    shaped_rewards: tuple[float, ...]
    """What credit is given for at each step: the rewards, less penalties."""
    credit: EpisodeCredit
    token_advantages: tuple[FloatArray, ...]
    """For each step, the advantage of each token of its action."""
    loss_weights: tuple[float, ...]
    """Weight of each token of a step."""
    values: EpisodeValues | None
    """None without a critic."""
    optimizer_step: int
    """0-based optimizer step of the training step that the episode is part of."""

    @property
    def rows(self) -> tuple[str, ...]:
        """Keys of its rows, in step order."""
        return tuple(dict.fromkeys(self.row_keys))

    @property
    def steps(self) -> tuple[TrainedStep, ...]:
        """Its steps, in order."""
        return tuple(
            TrainedStep(*step)
            for step in zip(
                self.row_keys,
                self.notes,
                self.token_advantages,
                self.loss_weights,
                *self._values_of_steps(),
                strict=True,
            )
        )

    @property
    def step_values(self) -> tuple[float, ...] | None:
        """What the critic said of each step's prompt; None without one."""
        if self.values is None:
            return None
        return tuple(float(tokens[0]) for tokens in self.values.tokens)

    @property
    def token_values(self) -> tuple[tuple[float, ...], ...] | None:
        """What it said before each token; None unless tokens have advantages of their own."""
        if self.values is None or self.credit.token_advantages is None:
            return None
        return tuple(tuple(tokens.tolist()) for tokens in self.values.tokens)

    def _values_of_steps(
        self,
    ) -> tuple[Sequence[FloatArray], Sequence[float], Sequence[FloatArray]]:
        if self.values is None or self.credit.value_targets is None:
            none = [np.zeros(0)] * len(self.notes)
            return none, [0.0] * len(self.notes), none
        return self.values.tokens, self.credit.value_targets, self.values.weights


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCredit:
    """What a training step is trained on, and what it leaves out."""

    episodes: tuple[TrainedEpisode, ...]
    left_out: tuple[str, ...]
    """Keys of the rows of groups with too few episodes that did not fail, or without the greedy
    episode that they need: nothing to compare."""
    groups_without_signal: int
    """Groups whose every advantage is zero."""
    num_groups: int

    def keys_of(self, optimizer_step: int) -> list[str]:
        """Row keys of one optimizer step, episodes together and steps in order."""
        return [
            key
            for episode in self.episodes
            if episode.optimizer_step == optimizer_step
            for key in episode.rows
        ]

    def weight_of(self, optimizer_step: int) -> float:
        """Weight in the loss of all tokens of one optimizer step."""
        return sum(
            step.loss_weight * step.note.action_tokens
            for episode in self.episodes
            if episode.optimizer_step == optimizer_step
            for step in episode.steps
        )

    def steps_by_row(self) -> dict[str, list[TrainedStep]]:
        """Row key → the row's steps, in order."""
        rows: dict[str, list[TrainedStep]] = defaultdict(list)
        for episode in self.episodes:
            for step in episode.steps:
                rows[step.row].append(step)
        return dict(rows)


def credit_training_step(
    notes: RowMetadata,
    *,
    algorithm: AlgorithmConfig,
    num_optimizer_steps: int,
    groups: Sequence[str],
    greedy: Mapping[str, Sequence[StepMetadata]] | None = None,
    values: CriticValues | None = None,
) -> StepCredit:
    """Advantages and weights of all the steps of a training step.

    Args:
        notes: Of all rows, padding rows not among them.
        algorithm: How to credit.
        num_optimizer_steps: Parts that the groups are split into, in their order and as evenly
            as they go; as many as there are groups where those are fewer.
        groups: Names of the groups that the update took, those whose episodes all failed too.
        greedy: Group → notes of its greedy episode's steps, in order, where groups are compared
            with one; None where they are not. A group without one is left out.
        values: What the critic said, where there is one. None before it was asked: it expected
            nothing then, and which episodes are trained, and with what weight, is known already.

    Raises:
        ValueError: If an episode misses a step, or has one twice.
    """
    episodes = _episodes(notes)
    by_group: dict[str, list[Episode]] = defaultdict(list)
    for episode in sorted(episodes):
        by_group[episode[0]].append(episode)
    fewest = smallest_group(algorithm)
    kept = {
        name: members
        for name, members in by_group.items()
        if len(members) >= fewest and (greedy is None or name in greedy)
    }
    said = (
        {m: _values(m, episodes[m], algorithm, values) for group in kept.values() for m in group}
        if algorithm.uses_critic
        else {}
    )
    estimated = estimate(
        [
            _group(
                name,
                [episodes[m].notes for m in members],
                algorithm,
                greedy=None if greedy is None else greedy[name],
                values=[said[m] for m in members] if said else None,
            )
            for name, members in kept.items()
        ],
        algorithm,
    )
    credits = {
        episode: credit
        for members, group_credits in zip(kept.values(), estimated, strict=True)
        for episode, credit in zip(members, group_credits, strict=True)
    }
    num_parts = min(num_optimizer_steps, len(groups))
    part = {name: place * num_parts // len(groups) for place, name in enumerate(groups)}
    part_of = {episode: part[episode[0]] for episode in credits}
    weights = _weights(episodes, part_of, algorithm)
    value_weights = _value_weights(episodes, part_of, algorithm) if said else {}
    return StepCredit(
        episodes=tuple(
            TrainedEpisode(
                row_keys=episodes[episode].row_keys,
                notes=episodes[episode].notes,
                shaped_rewards=tuple(shaped_rewards(episodes[episode].notes, algorithm).tolist()),
                credit=credit,
                token_advantages=_of_tokens(credit, episodes[episode].notes),
                loss_weights=weights[episode],
                values=EpisodeValues(
                    tokens=said[episode].tokens,
                    weights=value_weights[episode],
                    final=said[episode].final,
                )
                if said
                else None,
                optimizer_step=part_of[episode],
            )
            for episode, credit in credits.items()
        ),
        left_out=tuple(
            key
            for name, members in by_group.items()
            if name not in kept
            for m in members
            for key in dict.fromkeys(episodes[m].row_keys)
        ),
        groups_without_signal=sum(
            not any(any(credits[m].advantages) for m in members) for members in kept.values()
        ),
        num_groups=len(groups),
    )


class _Steps(NamedTuple):
    """The steps of an episode, in order."""

    row_keys: tuple[str, ...]
    notes: tuple[StepMetadata, ...]


def _episodes(notes: RowMetadata) -> dict[Episode, _Steps]:
    """The steps of each episode."""
    rows: dict[Episode, list[tuple[int, str, StepMetadata]]] = defaultdict(list)
    for key, of_row in notes.items():
        parsed = RowKey.parse(key)
        rows[parsed.group, parsed.sample_index] += [(note.step, key, note) for note in of_row]
    episodes: dict[Episode, _Steps] = {}
    for episode, found in rows.items():
        members = sorted(found, key=lambda member: member[:2])
        steps, num_steps = [step for step, _, _ in members], members[0][2].num_steps
        if steps != list(range(num_steps)):
            raise ValueError(
                f"episode {episode} should have steps 0 to {num_steps - 1}, has {steps}"
            )
        episodes[episode] = _Steps(
            row_keys=tuple(key for _, key, _ in members),
            notes=tuple(note for _, _, note in members),
        )
    return episodes


class CriticOutput(NamedTuple):
    """What the critic said of an episode."""

    tokens: tuple[FloatArray, ...]
    final: float | None


def _values(
    episode: Episode, steps: _Steps, algorithm: AlgorithmConfig, values: CriticValues | None
) -> CriticOutput:
    """Values of the tokens of each step's action, and of the final observation."""
    truncated = steps.notes[-1].truncated
    if values is None:
        return CriticOutput(
            tuple(np.zeros(note.action_tokens) for note in steps.notes), 0.0 if truncated else None
        )
    if truncated and episode not in values.finals:
        raise ValueError(f"the final observation of the truncated episode {episode} has no value")
    tokens = [
        values.rows[key][note.start : note.stop]
        for key, note in zip(steps.row_keys, steps.notes, strict=True)
    ]
    if algorithm.gae_level == "step":
        tokens = [np.full(len(tokens_T), tokens_T[0]) for tokens_T in tokens]
    return CriticOutput(tuple(tokens), values.finals[episode] if truncated else None)


def _of_tokens(credit: EpisodeCredit, notes: Sequence[StepMetadata]) -> tuple[FloatArray, ...]:
    """The advantages of tokens: their own, or their step's where the estimator has no others."""
    if credit.token_advantages is not None:
        return tuple(np.array(tokens) for tokens in credit.token_advantages)
    return tuple(
        np.full(note.action_tokens, advantage)
        for note, advantage in zip(notes, credit.advantages, strict=True)
    )


def _group(
    name: str,
    members: Sequence[Sequence[StepMetadata]],
    algorithm: AlgorithmConfig,
    *,
    greedy: Sequence[StepMetadata] | None,
    values: Sequence[CriticOutput] | None,
) -> Group:
    return Group(
        name=name,
        step_rewards=[shaped_rewards(episode, algorithm) for episode in members],
        anchor_states=[[note.anchor for note in episode] for episode in members],
        final_states=[None if e[-1].success else e[-1].final_anchor for e in members],
        num_action_tokens=[[note.action_tokens for note in episode] for episode in members],
        greedy_rewards=None if greedy is None else shaped_rewards(greedy, algorithm),
        token_values=None if values is None else [said.tokens for said in values],
        final_values=None if values is None else [said.final for said in values],
    )


def _weights(
    episodes: Mapping[Episode, _Steps],
    part_of: Mapping[Episode, int],
    algorithm: AlgorithmConfig,
) -> dict[Episode, tuple[float, ...]]:
    weights: dict[Episode, tuple[float, ...]] = {}
    for part in sorted(set(part_of.values())):
        members = [episode for episode in part_of if part_of[episode] == part]
        counts = [[note.action_tokens for note in episodes[member].notes] for member in members]
        shared = loss_weights(
            counts,
            loss_unit=algorithm.loss_unit,
            tokens_per_episode=algorithm.tokens_per_episode,
        )
        weights |= dict(zip(members, shared, strict=True))
    return weights


def _value_weights(
    episodes: Mapping[Episode, _Steps],
    part_of: Mapping[Episode, int],
    algorithm: AlgorithmConfig,
) -> dict[Episode, tuple[FloatArray, ...]]:
    """For each step, the weight of each token's value in the critic's loss.

    A step has one value, at its first token, or one for each token; they weigh as tokens do in
    the policy's loss. `fixed_token` is `token` here: a critic's loss has no use for a constant.
    """
    by_token = algorithm.gae_level == "token"
    unit: LossUnit = "token" if algorithm.loss_unit == "fixed_token" else algorithm.loss_unit
    weights: dict[Episode, tuple[FloatArray, ...]] = {}
    for part in sorted(set(part_of.values())):
        members = [episode for episode in part_of if part_of[episode] == part]
        lengths = [[note.action_tokens for note in episodes[member].notes] for member in members]
        counts = lengths if by_token else [[1] * len(steps) for steps in lengths]
        for member, steps, shared in zip(
            members, lengths, loss_weights(counts, loss_unit=unit), strict=True
        ):
            weights[member] = tuple(
                np.full(length, weight) if by_token else np.array([weight] + [0.0] * (length - 1))
                for length, weight in zip(steps, shared, strict=True)
            )
    return weights
