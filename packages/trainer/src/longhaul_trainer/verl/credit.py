"""Advantages and loss weights of one training step, from the notes of its rows.

Nothing here knows about verl: rows in, one number per row out. How episodes are compared
is the estimator's; weights are shared out inside one optimizer step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from longhaul_core.advantages import EpisodeCredit, loss_weights
from longhaul_trainer.config.learning import AlgorithmConfig
from longhaul_trainer.verl.estimators import Group, estimate, smallest_group
from longhaul_trainer.verl.notes import RowKey, RowNote
from longhaul_trainer.verl.rewards import shaped_rewards

Episode = tuple[str, int]
"""Group and position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedEpisode:
    """One episode of the training step, with what its steps are trained with."""

    keys: tuple[str, ...]
    """Row keys, in step order."""
    notes: tuple[RowNote, ...]
    credit: EpisodeCredit
    loss_weights: tuple[float, ...]
    """Weight of each token of a step."""
    optimizer_step: int
    """0-based optimizer step of the training step that the episode is part of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCredit:
    """What a training step is trained on, and what it leaves out."""

    episodes: tuple[TrainedEpisode, ...]
    left_out: tuple[str, ...]
    """Row keys of groups with too few episodes that did not fail: nothing to compare."""
    groups_without_signal: int
    """Groups whose every advantage is zero."""
    num_groups: int

    def keys_of(self, optimizer_step: int) -> list[str]:
        """Row keys of one optimizer step, episodes together and steps in order."""
        return [
            key
            for episode in self.episodes
            if episode.optimizer_step == optimizer_step
            for key in episode.keys
        ]


def credit_training_step(
    notes: Mapping[str, RowNote],
    *,
    algorithm: AlgorithmConfig,
    num_optimizer_steps: int,
    num_groups: int,
) -> StepCredit:
    """Advantages and weights of all the rows of a training step.

    Args:
        notes: Row key → note, padding rows not among them.
        algorithm: How to credit.
        num_optimizer_steps: Parts that the groups are split into, in task order.
        num_groups: Tasks of the training step, failed ones counted.

    Raises:
        ValueError: If an episode misses a step.
    """
    episodes = _episodes(notes)
    groups: dict[str, list[Episode]] = defaultdict(list)
    for episode in sorted(episodes):
        groups[episode[0]].append(episode)
    fewest = smallest_group(algorithm)
    kept = {name: members for name, members in groups.items() if len(members) >= fewest}
    estimated = estimate(
        [
            _group(name, [_notes(episodes[m], notes) for m in members], algorithm)
            for name, members in kept.items()
        ],
        algorithm,
    )
    credits = {
        episode: credit
        for members, group_credits in zip(kept.values(), estimated, strict=True)
        for episode, credit in zip(members, group_credits, strict=True)
    }
    groups_per_part = num_groups // num_optimizer_steps
    part_of = {
        episode: notes[episodes[episode][0]].group_index // groups_per_part for episode in credits
    }
    weights = _weights(episodes, notes, part_of, algorithm)
    return StepCredit(
        episodes=tuple(
            TrainedEpisode(
                keys=episodes[episode],
                notes=_notes(episodes[episode], notes),
                credit=credit,
                loss_weights=weights[episode],
                optimizer_step=part_of[episode],
            )
            for episode, credit in credits.items()
        ),
        left_out=tuple(
            key
            for name, members in groups.items()
            if name not in kept
            for m in members
            for key in episodes[m]
        ),
        groups_without_signal=sum(
            not any(any(credits[m].advantages) for m in members) for members in kept.values()
        ),
        num_groups=num_groups,
    )


def _episodes(notes: Mapping[str, RowNote]) -> dict[Episode, tuple[str, ...]]:
    """Row keys of each episode, in step order."""
    rows: dict[Episode, list[tuple[int, str]]] = defaultdict(list)
    for key in notes:
        parsed = RowKey.parse(key)
        rows[parsed.group, parsed.position].append((parsed.step, key))
    episodes: dict[Episode, tuple[str, ...]] = {}
    for episode, members in rows.items():
        keys = tuple(key for _, key in sorted(members))
        steps = [notes[key].step for key in keys]
        if steps != list(range(notes[keys[0]].num_steps)):
            raise ValueError(
                f"episode {episode} should have steps 0 to {notes[keys[0]].num_steps - 1}, "
                f"has {steps}"
            )
        episodes[episode] = keys
    return episodes


def _notes(keys: Sequence[str], notes: Mapping[str, RowNote]) -> tuple[RowNote, ...]:
    return tuple(notes[key] for key in keys)


def _group(name: str, members: Sequence[Sequence[RowNote]], algorithm: AlgorithmConfig) -> Group:
    return Group(
        name=name,
        step_rewards=[shaped_rewards(episode, algorithm) for episode in members],
        anchor_states=[[note.anchor for note in episode] for episode in members],
        num_action_tokens=[[note.action_tokens for note in episode] for episode in members],
    )


def _weights(
    episodes: Mapping[Episode, Sequence[str]],
    notes: Mapping[str, RowNote],
    part_of: Mapping[Episode, int],
    algorithm: AlgorithmConfig,
) -> dict[Episode, tuple[float, ...]]:
    weights: dict[Episode, tuple[float, ...]] = {}
    for part in sorted(set(part_of.values())):
        members = [episode for episode in part_of if part_of[episode] == part]
        counts = [[notes[key].action_tokens for key in episodes[member]] for member in members]
        shared = loss_weights(
            counts,
            loss_unit=algorithm.loss_unit,
            tokens_per_episode=algorithm.tokens_per_episode,
        )
        weights |= dict(zip(members, shared, strict=True))
    return weights
