"""Advantages and loss weights of one training step, from the metadata of its episodes.

`select_episodes` decides which groups can be compared, which optimizer step each belongs to, and
what every step weighs in the loss; that is known before anything is computed of the rows.
`credit_episodes` compares the episodes: the estimator gives each step an advantage, and each
trained call has its share of that of its step or of the next one (`CreditedBy`).

Nothing here knows about verl, and nothing depends on how an episode was cut into calls and rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from longhaul_core.advantages import (
    EpisodeCredit,
    LossUnit,
    loss_weights,
    loss_weights_by_purpose,
)
from longhaul_core.advantages.estimators import Group
from longhaul_core.advantages.penalties import Penalties, action_penalties
from longhaul_core.advantages.preferences import Choice, Preferences, PreferenceSettings
from longhaul_core.errors import ConfigError
from longhaul_core.types import CreditedBy
from longhaul_trainer.config.estimator_settings import smallest_group
from longhaul_trainer.config.learning import ACT, AlgorithmConfig
from longhaul_trainer.training.estimate import estimate
from longhaul_trainer.training.rewards import shaped_rewards
from longhaul_trainer.training.spans import FloatArray
from longhaul_trainer.training.step_metadata import (
    CallSpan,
    Episode,
    EpisodeMetadata,
    PlacedCall,
    PlayedEpisode,
)

NO_SHARES: Mapping[str, float] = {}
"""`loss.purposes` where all calls have one denominator."""


class CriticValues(NamedTuple):
    """The critic's values before the training step's update."""

    rows: Mapping[str, FloatArray]
    """Row key → the value before each token of its response."""
    finals: Mapping[Episode, float]
    """Of each truncated episode that was not scored, the value of its final observation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedEpisode:
    """An episode that is trained."""

    name: Episode
    played: PlayedEpisode
    optimizer_step: int
    """0-based optimizer step of the training step that the episode is part of."""
    loss_weights: tuple[float, ...]
    """For each step, the weight of each token of its trained calls, their mean where purposes have
    shares."""
    call_weights: tuple[float, ...]
    """For each trained call, the weight of each of its tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which episodes a training step trains, and what their tokens weigh."""

    episodes: tuple[SelectedEpisode, ...]
    """Groups together."""
    left_out: tuple[str, ...]
    """Keys of the rows of groups with too few episodes that did not fail, or without the greedy
    episode that they need: nothing to compare."""
    num_groups: int
    """That the update took, those that are left out included."""

    def keys_of(self, optimizer_step: int) -> list[str]:
        """Row keys of one optimizer step, episodes together and rows in order."""
        return [
            key
            for episode in self.episodes
            if episode.optimizer_step == optimizer_step
            for key in episode.played.rows
        ]

    def weight_of(self, optimizer_step: int) -> float:
        """Weight in the loss of all tokens of one optimizer step."""
        return sum(
            weight * call.span.action_tokens
            for episode in self.episodes
            if episode.optimizer_step == optimizer_step
            for weight, call in zip(episode.call_weights, episode.played.calls, strict=True)
        )


class TrainedCall(NamedTuple):
    """A call, with what its tokens are trained with."""

    row: str
    """Key of the row that it is in."""
    span: CallSpan
    advantage: float
    """Its share of the advantage of the step that credits it; where tokens have their own, their
    mean."""
    token_advantages: FloatArray
    """Advantage of each of its tokens."""
    loss_weight: float
    """Weight of each of them."""
    token_values: FloatArray
    """The critic's value before each of them, or that of the step; empty without a critic."""
    value_target: float
    """What the values are trained towards; 0 without a critic."""
    value_weights: FloatArray
    """Weight of each of the values in the critic's loss; empty without a critic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedEpisode:
    """One episode of the training step, with what its calls are trained with."""

    name: Episode
    metadata: EpisodeMetadata
    shaped_rewards: tuple[float, ...]
    """What returns are made of: the reward of each step, less the penalties that lower them."""
    credit: EpisodeCredit
    """Of each step, whether or not a call of it is trained."""
    loss_weights: tuple[float, ...]
    """See `SelectedEpisode`."""
    calls: tuple[TrainedCall, ...]
    """In the order that they were made."""
    step_values: tuple[float, ...] | None
    """The critic's value of each step; None without a critic."""
    final_value: float | None
    """Its value of the final observation, 0 where the episode was scored at its end; None if it
    terminated, and without a critic."""
    optimizer_step: int
    """0-based optimizer step of the training step that the episode is part of."""

    @property
    def has_signal(self) -> bool:
        """Whether a step has an advantage other than zero."""
        return any(self.credit.advantages)


def select_episodes(
    episodes: Mapping[Episode, PlayedEpisode],
    *,
    algorithm: AlgorithmConfig,
    num_optimizer_steps: int,
    groups: Sequence[str],
    greedy: Mapping[str, PlayedEpisode] | None = None,
    purposes: Mapping[str, float] = NO_SHARES,
) -> Selection:
    """The episodes that can be compared, their optimizer steps and the weights of their steps.

    Args:
        episodes: That ended.
        algorithm: How they will be credited.
        num_optimizer_steps: Parts that the groups are split into, in their order and as evenly
            as they go; as many as there are groups where those are fewer.
        groups: Names of the groups that the update took, those whose episodes all failed too.
        greedy: Group → its greedy episode, where groups are compared with one; None where they
            are not. A group without one is left out.
        purposes: Share of the loss of each purpose of calls (`loss.purposes`); one that is not
            named counts with `act`. Empty where all calls have one denominator.
    """
    by_group: dict[str, list[Episode]] = defaultdict(list)
    for episode in sorted(episodes):
        by_group[episode.group].append(episode)
    fewest = smallest_group(algorithm)
    kept = {
        name: members
        for name, members in by_group.items()
        if len(members) >= fewest and (greedy is None or name in greedy)
    }
    num_parts = min(num_optimizer_steps, len(groups))
    part = {name: place * num_parts // len(groups) for place, name in enumerate(groups)}
    part_of = {episode: part[name] for name, members in kept.items() for episode in members}
    weights: dict[Episode, _Weights] = {}
    for members in _by_part(part_of):
        weights |= _weights({name: episodes[name] for name in members}, algorithm, purposes)
    return Selection(
        episodes=tuple(
            SelectedEpisode(
                name=episode,
                played=episodes[episode],
                optimizer_step=part_of[episode],
                loss_weights=weights[episode].steps,
                call_weights=weights[episode].calls,
            )
            for episode in part_of
        ),
        left_out=tuple(
            key
            for name, members in by_group.items()
            if name not in kept
            for member in members
            for key in episodes[member].rows
        ),
        num_groups=len(groups),
    )


class _Weights(NamedTuple):
    """Of the tokens of an episode in its optimizer step."""

    steps: tuple[float, ...]
    """For each step, of a token of its trained calls in the mean."""
    calls: tuple[float, ...]
    """For each trained call, of each of its tokens."""


def _weights(
    members: Mapping[Episode, PlayedEpisode],
    algorithm: AlgorithmConfig,
    purposes: Mapping[str, float],
) -> dict[Episode, _Weights]:
    """The weights of the episodes of one optimizer step."""
    if not purposes:
        shared = loss_weights(
            [played.trained_tokens for played in members.values()],
            loss_unit=algorithm.loss_unit,
            tokens_per_episode=algorithm.tokens_per_episode,
        )
        return {
            name: _Weights(steps, tuple(steps[call.span.step] for call in played.calls))
            for (name, played), steps in zip(members.items(), shared, strict=True)
        }
    by_purpose = loss_weights_by_purpose(
        {
            purpose: [
                played.tokens_of(
                    call for call in played.calls if counted_as(call.span, purposes) == purpose
                )
                for played in members.values()
            ]
            for purpose in purposes
        },
        shares=purposes,
        loss_unit=algorithm.loss_unit,
    )
    found: dict[Episode, _Weights] = {}
    for place, (name, played) in enumerate(members.items()):
        of_calls = tuple(
            by_purpose[counted_as(call.span, purposes)][place][call.span.step]
            for call in played.calls
        )
        found[name] = _Weights(_mean_by_step(played, of_calls), of_calls)
    return found


def counted_as(span: CallSpan, purposes: Mapping[str, float]) -> str:
    """The purpose whose share of the loss a call's tokens have."""
    return span.purpose if span.purpose in purposes else ACT


def _mean_by_step(played: PlayedEpisode, of_calls: Sequence[float]) -> tuple[float, ...]:
    """For each step, the mean over the tokens of its trained calls; 0 without one."""
    sums = [0.0] * len(played.metadata.steps)
    for weight, call in zip(of_calls, played.calls, strict=True):
        sums[call.span.step] += weight * call.span.action_tokens
    return tuple(
        whole / count if count else 0.0
        for whole, count in zip(sums, played.trained_tokens, strict=True)
    )


def credit_episodes(
    selection: Selection,
    *,
    algorithm: AlgorithmConfig,
    greedy: Mapping[str, PlayedEpisode] | None = None,
    values: CriticValues | None = None,
    reference_kl: Mapping[Episode, FloatArray] | None = None,
    preferences: PreferenceSettings | None = None,
    gains: Mapping[Episode, Sequence[float]] | None = None,
) -> tuple[TrainedEpisode, ...]:
    """The selected episodes with their advantages, in the order given.

    Args:
        selection: What is trained.
        algorithm: How to credit.
        greedy: As for `select_episodes`.
        values: The critic's, where the algorithm has one.
        reference_kl: For each episode, the divergence from the starting model of each step; None
            where it is not part of the reward.
        preferences: Which episodes or steps make pairs; None where none do.
        gains: Of each step, how much likelier it is to the policy than to the reference, where
            pairs are compared.

    Raises:
        ConfigError: If a step has trained calls of several agents where each has its own baseline.
        ValueError: If the algorithm has a critic and a value is missing, or it compares pairs and
            the gains are.
    """
    rewards = {
        episode.name: shaped_rewards(
            episode.played,
            algorithm,
            reference_kl=None if reference_kl is None else reference_kl[episode.name],
        )
        for episode in selection.episodes
    }
    critic = _critic(selection, algorithm, values, rewards) if algorithm.uses_critic else {}
    by_group: dict[str, list[SelectedEpisode]] = defaultdict(list)
    for episode in selection.episodes:
        by_group[episode.name.group].append(episode)
    estimated = estimate(
        [
            Group(
                name=name,
                step_rewards=[rewards[m.name] for m in members],
                anchor_states=[[s.anchor for s in m.played.metadata.steps] for m in members],
                final_states=[_final_state(m.played.metadata) for m in members],
                num_action_tokens=[m.played.trained_tokens for m in members],
                action_penalties=[_action_penalties(m, algorithm) for m in members],
                agents=[_agents(m) for m in members] if algorithm.baseline_per_agent else (),
                greedy_rewards=None if greedy is None else shaped_rewards(greedy[name], algorithm),
                token_values=[critic[m.name].tokens for m in members] if critic else None,
                final_values=[critic[m.name].final for m in members] if critic else None,
                preferences=None
                if preferences is None or gains is None
                else preferences_of(
                    [m.played.metadata for m in members],
                    gains=[gains[m.name] for m in members],
                    settings=preferences,
                ),
            )
            for name, members in by_group.items()
        ],
        algorithm,
    )
    credits = {
        member.name: credit
        for members, of_group in zip(by_group.values(), estimated, strict=True)
        for member, credit in zip(members, of_group, strict=True)
    }
    return tuple(
        TrainedEpisode(
            name=episode.name,
            metadata=episode.played.metadata,
            shaped_rewards=tuple(rewards[episode.name].tolist()),
            credit=credits[episode.name],
            loss_weights=episode.loss_weights,
            calls=_trained_calls(episode, credits[episode.name], critic.get(episode.name)),
            step_values=tuple(float(tokens[0]) for tokens in critic[episode.name].tokens)
            if critic
            else None,
            final_value=critic[episode.name].final if critic else None,
            optimizer_step=episode.optimizer_step,
        )
        for episode in selection.episodes
    )


def preferences_of(
    episodes: Sequence[EpisodeMetadata],
    *,
    gains: Sequence[Sequence[float]],
    settings: PreferenceSettings,
) -> Preferences:
    """What pairs of a group are made by.

    Args:
        episodes: Of the group.
        gains: Of their steps; see `gains_over_reference`.
        settings: Which pairs.
    """
    return Preferences(
        settings=settings,
        gains=gains,
        choices=[
            [Choice.of(step.anchor, step.prompt, step.action) for step in of]
            for of in (episode.steps for episode in episodes)
        ],
    )


def _action_penalties(episode: SelectedEpisode, algorithm: AlgorithmConfig) -> FloatArray:
    return action_penalties(
        [step.action_valid for step in episode.played.metadata.steps],
        Penalties.model_validate(algorithm),
    )


def _agents(episode: SelectedEpisode) -> list[str | None]:
    """The agent of each step; None where no call is trained."""
    for step, metadata in enumerate(episode.played.metadata.steps):
        if len(metadata.agents) > 1:
            names = ", ".join(map(repr, metadata.agents))
            raise ConfigError(
                "algorithm.baseline_per_agent = true compares steps of one agent: step "
                f"{step} of {episode.name} has trained calls of {names}; let each call be a step, "
                "or set algorithm.baseline_per_agent = false"
            )
    return [next(iter(step.agents), None) for step in episode.played.metadata.steps]


def _final_state(episode: EpisodeMetadata) -> str | None:
    """The state that the last step led to; None where it led to the goal."""
    return None if episode.success else episode.final_anchor


def _by_part(part_of: Mapping[Episode, int]) -> list[list[Episode]]:
    """The episodes of each optimizer step."""
    parts: dict[int, list[Episode]] = defaultdict(list)
    for episode, part in part_of.items():
        parts[part].append(episode)
    return [parts[part] for part in sorted(parts)]


def _trained_calls(
    episode: SelectedEpisode, credit: EpisodeCredit, critic: _CriticOutput | None
) -> tuple[TrainedCall, ...]:
    """The calls of an episode: a token's advantage is its call's share of a step's.

    Where tokens have their own advantages, that is a token's own: it holds what all tokens after
    it led to.
    """
    read = [0] * len(episode.loss_weights)  # tokens of each step that earlier calls took
    calls: list[TrainedCall] = []
    for (row, span), weight in zip(episode.played.calls, episode.call_weights, strict=True):
        step, own = span.step, slice(read[span.step], read[span.step] + span.action_tokens)
        read[step] = own.stop
        of_step = credit.advantages[
            _crediting_step(span, num_steps=len(read), has_critic=critic is not None)
        ]
        advantages = (
            np.full(span.action_tokens, of_step)
            if credit.token_advantages is None
            else np.array(credit.token_advantages[step][own])
        )
        by_token = credit.token_advantages is not None and span.action_tokens > 0
        advantage = float(advantages.mean()) if by_token else of_step
        nothing = np.zeros(0)
        has_values = critic is not None and credit.value_targets is not None
        calls.append(
            TrainedCall(
                row=row,
                span=span,
                advantage=span.credit_share * advantage,
                token_advantages=span.credit_share * advantages,
                loss_weight=weight,
                token_values=critic.tokens[step][own] if critic else nothing,
                value_target=credit.value_targets[step]
                if has_values and credit.value_targets
                else 0.0,
                value_weights=critic.weights[len(calls)] if critic else nothing,
            )
        )
    return tuple(calls)


def _crediting_step(span: CallSpan, *, num_steps: int, has_critic: bool) -> int:
    """The step whose advantage a call has its share of.

    With a critic it is the call's own whatever the call says. A step's advantage holds the value
    at the next prompt, and so what the call put there. The next step's is measured from that value:
    its mean is 0 under an exact critic, whatever the call wrote.
    """
    if span.credited_by is CreditedBy.STEP or has_critic:
        return span.step
    return min(span.step + 1, num_steps - 1)


class _CriticOutput(NamedTuple):
    """The critic's values of an episode."""

    tokens: tuple[FloatArray, ...]
    """For each step, of each token of its trained calls in their order; the value of the step for
    all of them where steps are credited. A step without a trained call has one, its own."""
    weights: tuple[FloatArray, ...]
    """For each trained call, of each of its tokens in the critic's loss."""
    final: float | None
    """Of the final observation, 0 where the episode was scored; None if it terminated."""


def _critic(
    selection: Selection,
    algorithm: AlgorithmConfig,
    values: CriticValues | None,
    rewards: Mapping[Episode, FloatArray],
) -> dict[Episode, _CriticOutput]:
    if values is None:
        raise ValueError(f"algorithm.name = {algorithm.name!r} needs the values of its critic")
    weights = _value_weights(selection, algorithm)
    found: dict[Episode, _CriticOutput] = {}
    for episode in selection.episodes:
        final = _final_value(episode, values)
        found[episode.name] = _CriticOutput(
            tokens=_passed_through(
                _values(episode, algorithm, values),
                rewards[episode.name],
                final or 0.0,
                discount=algorithm.discount,
            ),
            weights=weights[episode.name],
            final=final,
        )
    return found


def _final_value(episode: SelectedEpisode, values: CriticValues) -> float | None:
    """What is still to come after the last step; None if the episode terminated."""
    metadata = episode.played.metadata
    if not metadata.truncated:
        return None
    if metadata.scored:
        return 0.0  # its last reward is for the whole
    if episode.name not in values.finals:
        raise ValueError(
            f"the final observation of the truncated episode {episode.name} has no value"
        )
    return values.finals[episode.name]


def _values(
    episode: SelectedEpisode, algorithm: AlgorithmConfig, values: CriticValues
) -> tuple[FloatArray, ...]:
    """For each step, the values of the tokens of its trained calls; nothing without one.

    By step, the value is read before the first token of one call (`CallSpan.valued`); by token,
    the calls of a step follow each other as one reply.
    """
    by_token = algorithm.gae_level == "token"
    calls: list[list[PlacedCall]] = [[] for _ in episode.played.metadata.steps]
    for call in episode.played.calls:
        if by_token or call.span.valued:
            calls[call.span.step].append(call)
    found: list[FloatArray] = []
    for of_step, num_tokens in zip(calls, episode.played.trained_tokens, strict=True):
        read = [values.rows[row][span.start : span.stop] for row, span in of_step]
        if not read:
            found.append(np.zeros(0))
        else:
            found.append(np.concatenate(read) if by_token else np.full(num_tokens, read[0][0]))
    return tuple(found)


def _passed_through(
    tokens: Sequence[FloatArray], rewards_S: FloatArray, final: float, *, discount: float
) -> tuple[FloatArray, ...]:
    """The same, and what follows for a step without a trained call, where no value was read.

    Nothing was chosen there, so it is worth what it pays and what the next step is worth. Its own
    error is 0, and those of later steps go through it to the one before.

    Args:
        tokens: For each step, the values of its tokens.
        rewards_S: Of each step, shaped.
        final: Value after the last step.
        discount: Per step.
    """
    found: list[FloatArray] = []
    following = final
    for values_T, reward in zip(reversed(tokens), reversed(rewards_S.tolist()), strict=True):
        known = values_T if len(values_T) else np.array([reward + discount * following])
        following = float(known[0])
        found.append(known)
    return tuple(reversed(found))


def _value_weights(
    selection: Selection, algorithm: AlgorithmConfig
) -> dict[Episode, tuple[FloatArray, ...]]:
    """For each trained call, the weight of each token's value in the critic's loss.

    A step has one value, at the first token of one call (`CallSpan.valued`), or one for each
    token; without a trained call it has none. They weigh as tokens do in the policy's loss.
    `fixed_token` is `token` here: a critic's loss has no use for a constant.
    """
    by_token = algorithm.gae_level == "token"
    unit: LossUnit = "token" if algorithm.loss_unit == "fixed_token" else algorithm.loss_unit
    played = {episode.name: episode.played for episode in selection.episodes}
    weights: dict[Episode, tuple[FloatArray, ...]] = {}
    for members in _by_part({e.name: e.optimizer_step for e in selection.episodes}):
        lengths = [played[member].trained_tokens for member in members]
        counts = lengths if by_token else [[min(1, n) for n in steps] for steps in lengths]
        for member, shared in zip(members, loss_weights(counts, loss_unit=unit), strict=True):
            weights[member] = tuple(
                _weights_in_call(span, shared[span.step], by_token=by_token)
                for _, span in played[member].calls
            )
    return weights


def _weights_in_call(span: CallSpan, weight: float, *, by_token: bool) -> FloatArray:
    if by_token:
        return np.full(span.action_tokens, weight)
    weights = np.zeros(span.action_tokens)
    weights[:1] = weight if span.valued else 0.0
    return weights
