"""What the store holds of one training step, and what should follow from it."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import fsum
from typing import NamedTuple, Protocol

from longhaul_core.audit.formulas import (
    Credit,
    EpisodeFacts,
    action_penalties,
    credit_of,
    penalised_rewards,
    purpose_weights_of,
    value_weights_of,
)
from longhaul_core.audit.intent import Intent
from longhaul_core.audit.tables import CallNumbers, CriticLossInput, LossInput, StepNumbers
from longhaul_core.store.queries import EpisodeNumbers, GroupNumbers

__all__ = [
    "LOGPROB_ROUNDING",
    "AuditedEpisode",
    "CallKey",
    "CallPictures",
    "Evidence",
    "FirstReply",
    "GreedyEvidence",
    "ImitatedReply",
    "ReplyFacts",
    "SpelledMark",
    "StepKey",
    "TokenFacts",
    "key_of",
]

StepKey = tuple[str, int]
"""Episode id and step index."""

CallKey = tuple[str, int, int]
"""Episode id, step index and place of the call in the step."""

LOGPROB_ROUNDING = 1e-3
"""By how much the logprob of a token that is all but certain may be above 0, in nats."""

TERMINATED = ("task_solved", "task_failed")
"""Stop reasons of episodes that no limit cut short."""


class OfACall(Protocol):
    """Anything about one call."""

    @property
    def episode_id(self) -> str: ...
    @property
    def step_index(self) -> int: ...
    @property
    def call_index(self) -> int: ...


def key_of(one: OfACall) -> CallKey:
    """The key of the call that something is about."""
    return one.episode_id, one.step_index, one.call_index


class ReplyFacts(NamedTuple):
    """The reply of a trained call, reduced."""

    episode_id: str
    step_index: int
    call_index: int
    pruned: bool
    """The tokens were dropped from the store; the other fields mean nothing then."""
    num_action_tokens: int | None
    """As counted when it was sampled; None where no engine of ours did."""
    num_behavior_logprobs: int
    num_policy_logprobs: int
    """-1 where the learner's were not kept."""
    num_wrong_logprobs: int
    """Of both kinds: not finite, or above 0."""
    mean_difference: float
    """Of behavior and policy logprobs, over the tokens, without sign, in nats; NaN where they do
    not go together."""
    max_difference: float
    policy_sum: float
    """Of the policy logprobs."""


class CallPictures(NamedTuple):
    """What pictures a call was shown, and where they may be from; hashes."""

    episode_id: str
    step_index: int
    call_index: int
    prompt: tuple[str, ...]
    """In its messages, in order."""
    shown: frozenset[str]
    """In messages that are no tool's."""
    from_tools: frozenset[str]
    """In messages of tools."""
    observed: frozenset[str]
    """In the observation of its step."""
    removed: bool
    """Whether retention removed them, if there were any."""


class SpelledMark(NamedTuple):
    """The name of a control token, where texts of a call's messages spell it."""

    name: str
    num_in_texts: int
    """How often the texts spell it, see `spelled.num_in_text`."""
    num_as_text: int
    """How often other tokens of the prompt than control tokens spell it together."""
    num_sampled: int
    """How often the policy sampled the control token itself within an earlier reply."""


class FirstReply(NamedTuple):
    """What chose the first action of an episode that did not fail; None where it was pruned."""

    episode_id: str
    prompt_tokens: bytes | None
    """Packed int32."""
    action_tokens: bytes | None
    """Packed int32."""
    behavior_logprobs: bytes | None
    """Packed float32."""


class ImitatedReply(NamedTuple):
    """How a reply ends that is imitated; None what was pruned or removed."""

    last_token: int | None
    last_piece: str | None
    """What that token stands for: a text, or a special token's name."""
    text: str | None


@dataclass(frozen=True, kw_only=True)
class AuditedEpisode:
    """An episode and those of its steps that the store has."""

    numbers: EpisodeNumbers
    steps: tuple[StepNumbers, ...]
    calls: tuple[CallNumbers, ...]
    """Of these steps and others, in order."""
    anchors: tuple[str | None, ...]
    """Of each step: the hash of its anchor state, or its text where states may be alike; None if
    the text is not in the store."""
    final_anchor: str | None = None
    """The same of the state that the episode ended in."""

    @property
    def terminated(self) -> bool:
        """Whether the task itself ended, so that nothing was to come after the last step."""
        return self.numbers.stop_reason in TERMINATED

    def version_of_first_reply(self, newest: int) -> int | None:
        """Policy version of the weights that sampled its first action; None if they changed.

        Args:
            newest: Of any weights that sampled the episode. A call knows its oldest alone.
        """
        sampled = [call for call in self.calls if call.policy_version is not None]
        acting = [place for place, call in enumerate(sampled) if call.purpose == "act"]
        if not acting:
            return None
        first, *later = (call.policy_version for call in sampled[acting[0] : acting[0] + 2])
        return first if first == (later[0] if later else newest) else None

    @cached_property
    def trained_calls(self) -> tuple[tuple[CallNumbers, ...], ...]:
        """Of each step, the calls that are in the loss if the step is."""
        by_step: dict[int, list[CallNumbers]] = defaultdict(list)
        for call in self.calls:
            if call.trained:
                by_step[call.step_index].append(call)
        return tuple(tuple(by_step[step.step_index]) for step in self.steps)

    @property
    def num_action_tokens(self) -> list[int]:
        """Of each step, the tokens that are in the loss if the step is."""
        return [sum(c.num_action_tokens or 0 for c in calls) for calls in self.trained_calls]

    @property
    def complete(self) -> bool:
        """Whether the steps are 0, 1, 2 ... to the last."""
        indices = [step.step_index for step in self.steps]
        return indices == list(range(self.numbers.num_steps))


class TokenFacts(NamedTuple):
    """What each token of a call was credited with; empty where that was pruned."""

    values: list[float]
    advantages: list[float]


@dataclass(frozen=True, kw_only=True)
class GreedyEvidence:
    """The greedy episodes that groups were compared with; empty where none are needed."""

    episodes: tuple[AuditedEpisode, ...] = ()
    """By group and retry, failed tries included."""
    first_replies: Mapping[str, FirstReply] = field(default_factory=dict[str, FirstReply])
    """Of the sampled episodes and of the greedy ones, by episode."""

    @cached_property
    def ended(self) -> dict[int, AuditedEpisode]:
        """The one of each group that did not fail."""
        return {e.numbers.group_index: e for e in self.episodes if not e.numbers.failed}


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything about one training step: its update, whenever the episodes were played."""

    intent: Intent
    training_step: int
    groups: tuple[tuple[int, int | None], ...]
    """Place in the update, and episodes requested, of each group that it took, by place; None if
    the trainer gave no number."""
    episodes: tuple[AuditedEpisode, ...]
    """By group, sample_index and retry, failed tries included."""
    greedy: GreedyEvidence
    token_credit: Mapping[CallKey, TokenFacts]
    """Of each trained call; empty unless a critic credits tokens."""
    critic_loss_inputs: tuple[CriticLossInput, ...]
    replies: tuple[ReplyFacts, ...]
    """Of the trained calls of the trained episodes."""
    continued: Mapping[CallKey, bool | None]
    """Whether the prompt of a trained call begins with the prompt and the reply of the trained
    one before it in its stream, token by token; None where tokens were pruned, and no key where
    there is none before it. Read where rows are merged."""
    pictures: tuple[CallPictures, ...]
    """Of the calls of episodes that have pictures, those of greedy ones too, in order."""
    picture_places: Mapping[CallKey, int | None]
    """Of each trained call of a program whose messages have pictures: how many its prompt's tokens
    have places for; None where tokens were pruned."""
    spelled_marks: Mapping[CallKey, tuple[SpelledMark, ...] | None]
    """Of each trained call whose messages spell a control token that occurs in the run; None where
    its tokens were pruned, or the store does not have their texts."""
    imitated: Mapping[CallKey, ImitatedReply]
    """How each reply that is imitated ends; empty where replies were sampled."""
    prompts: Mapping[CallKey, bytes]
    """Hash of the prompt of each trained call whose tokens were not pruned; empty unless pairs are
    of steps."""
    loss_inputs: tuple[LossInput, ...]
    loss_inputs_recorded: bool
    """Whether the run recorded anywhere what the loss read."""
    metrics: Mapping[str, float | None]
    discarded: tuple[GroupNumbers, ...]
    """Groups that the training step threw away."""
    played: tuple[GroupNumbers, ...]
    """Groups that the training step played, whatever became of them."""
    horizons: Sequence[int]
    """Longest that an episode may be by the schedule, in steps, by training steps that play."""
    demonstrations: "Evidence | None" = None
    """The same of what is imitated beside the groups of reinforcement learning; None where nothing
    is."""

    @property
    def first_version(self) -> int:
        """Policy version of the weights that the update began with."""
        return self.intent.policy_version(self.training_step)

    @cached_property
    def ended(self) -> tuple[AuditedEpisode, ...]:
        """Episodes that did not fail."""
        return tuple(episode for episode in self.episodes if not episode.numbers.failed)

    @cached_property
    def meant(self) -> tuple[AuditedEpisode, ...]:
        """Episodes that were to be trained: those of groups with enough that did not fail."""
        by_group: dict[int, int] = defaultdict(int)
        for episode in self.ended:
            by_group[episode.numbers.group_index] += 1
        return tuple(
            episode
            for episode in self.ended
            if by_group[episode.numbers.group_index] >= self.intent.smallest_group
            and (
                not self.intent.needs_greedy_episode
                or episode.numbers.group_index in self.greedy.ended
            )
        )

    @cached_property
    def trained(self) -> tuple[AuditedEpisode, ...]:
        """Episodes that the store marks as trained."""
        return tuple(episode for episode in self.episodes if episode.numbers.trained)

    @cached_property
    def steps(self) -> dict[StepKey, StepNumbers]:
        """Every step of every episode."""
        return {
            (step.episode_id, step.step_index): step
            for episode in self.episodes
            for step in episode.steps
        }

    @cached_property
    def calls(self) -> dict[CallKey, CallNumbers]:
        """Every call of every episode."""
        return {key_of(call): call for episode in self.episodes for call in episode.calls}

    def in_loss(self, call: CallNumbers) -> bool:
        """Whether the call was to be in the loss: it and its step are trained."""
        step = self.steps.get((call.episode_id, call.step_index))
        return call.trained and step is not None and step.trained

    @cached_property
    def uncreditable(self) -> dict[str, str]:
        """Episodes to be trained whose credit cannot be computed, and why."""
        reasons = {
            episode.numbers.episode_id: reason
            for episode in self.meant
            if (reason := self._lacks(episode)) is not None
        }
        whole_training_step = self.intent.compares_training_step
        spoilt = {
            episode.numbers.group_index
            for episode in self.meant
            if whole_training_step or episode.numbers.episode_id in reasons
        }
        if not reasons:
            return {}
        return {
            episode.numbers.episode_id: reasons.get(
                episode.numbers.episode_id, "compared with an episode whose steps are not all there"
            )
            for episode in self.meant
            if episode.numbers.group_index in spoilt
        }

    @cached_property
    def credit(self) -> dict[str, Credit]:
        """Credit by episode, as it should be."""
        chosen = [e for e in self.meant if e.numbers.episode_id not in self.uncreditable]
        facts = [
            EpisodeFacts(
                group=episode.numbers.group_index,
                rewards=self.rewards(episode),
                anchors=[anchor for anchor in episode.anchors if anchor is not None],
                num_action_tokens=episode.num_action_tokens,
                greedy_rewards=self._greedy_rewards(episode.numbers.group_index),
                values=self._values(episode),
                final_anchor=None if episode.numbers.success else episode.final_anchor,
                final_value=0.0 if episode.terminated else episode.numbers.final_value or 0.0,
                agents=[calls[0].agent if calls else None for calls in episode.trained_calls],
                action_penalties=action_penalties(
                    [step.action_valid for step in episode.steps], self.intent.algorithm
                ),
                gains=self._gains(episode) if self.intent.compares_pairs else (),
                choices=self._choices(episode) if self.intent.compares_steps else (),
            )
            for episode in chosen
        ]
        credits = credit_of(facts, self.intent.algorithm)
        return {e.numbers.episode_id: credit for e, credit in zip(chosen, credits, strict=True)}

    @cached_property
    def policy_sums(self) -> dict[CallKey, float]:
        """Of the policy logprobs of each trained call whose tokens were not pruned."""
        return {key_of(reply): reply.policy_sum for reply in self.replies if not reply.pruned}

    def _gains(self, episode: AuditedEpisode) -> list[float]:
        """By how much each step is likelier to the policy than to the reference, in nats."""
        return [
            fsum(
                self.policy_sums[key_of(call)] - (call.reference_logprob_sum or 0.0)
                for call in calls
            )
            for calls in episode.trained_calls
        ]

    def _choices(self, episode: AuditedEpisode) -> list[tuple[Hashable, str]]:
        """Of each step its state with the prompt that was read, None without one; its action."""
        return [
            ((anchor, self.prompts[key_of(calls[0])]) if calls else None, step.action)
            for step, anchor, calls in zip(
                episode.steps, episode.anchors, episode.trained_calls, strict=True
            )
        ]

    def _values(self, episode: AuditedEpisode) -> list[list[float]]:
        if not self.intent.has_critic:
            return []
        if not self.intent.credits_tokens:
            return [
                [step.value or 0.0] if calls else []
                for step, calls in zip(episode.steps, episode.trained_calls, strict=True)
            ]
        return [
            [value for call in calls for value in self.token_credit[key_of(call)].values]
            for calls in episode.trained_calls
        ]

    @cached_property
    def value_weights(self) -> dict[str, list[float]]:
        """Weight of one value of each step, by episode, as it should be; see `weights`."""
        return {
            episode.numbers.episode_id: weights
            for members in self._whole_parts
            for episode, weights in zip(
                members,
                value_weights_of([e.num_action_tokens for e in members], self.intent.algorithm),
                strict=True,
            )
        }

    def read_advantages(self, call: CallNumbers) -> tuple[float | None, float | None]:
        """Least and greatest advantage that the loss should read of a call's tokens."""
        tokens = self.token_credit.get(key_of(call))
        if tokens is None or not tokens.advantages:
            return call.advantage, call.advantage
        return min(tokens.advantages), max(tokens.advantages)

    def _greedy_rewards(self, group_index: int) -> list[float] | None:
        greedy = self.greedy.ended.get(group_index)
        return None if greedy is None else self.rewards(greedy)

    def rewards(self, episode: AuditedEpisode) -> list[float]:
        """Rewards of the episode's steps as credit saw them.

        The stored ones, which have a rule of their own, or else what they should be.
        """
        stored = [step.shaped_reward for step in episode.steps]
        known = [reward for reward in stored if reward is not None]
        if len(known) == len(stored):
            return known
        return self.penalised(episode)

    def penalised(self, episode: AuditedEpisode) -> list[float]:
        """Rewards of the episode's steps as returns are made of them, but for a divergence."""
        return penalised_rewards(
            [step.reward for step in episode.steps],
            [step.action_valid for step in episode.steps],
            episode.num_action_tokens,
            self.intent.algorithm,
        )

    @cached_property
    def rounding(self) -> float:
        """How far an advantage may be from its definition, absolutely.

        Returns that should be equal may differ by rounding; scaling by their deviation divides
        that by as little as 1e-6.
        """
        largest = max(
            (abs(step.return_to_go or 0.0) for e in self.meant for step in e.steps), default=0.0
        )
        return 1e-6 + 1e-8 * largest

    @cached_property
    def weights(self) -> dict[str, list[dict[str, float]]]:
        """Weight of one token of each step by its purpose, by episode, as it should be.

        The purposes are those of `Intent.purposes`. Optimizer steps with an episode whose steps are
        not all there are left out.
        """
        found: dict[str, list[dict[str, float]]] = {}
        for members in self._whole_parts:
            weights = purpose_weights_of(
                {
                    purpose: [self._tokens_counted_as(purpose, episode) for episode in members]
                    for purpose in self.intent.purposes
                },
                self.intent.purpose_shares,
                self.intent.algorithm,
            )
            for place, episode in enumerate(members):
                found[episode.numbers.episode_id] = [
                    {
                        purpose: self.intent.loss_factor * of_purpose[place][step]
                        for purpose, of_purpose in weights.items()
                    }
                    for step in range(len(episode.steps))
                ]
        return found

    def _tokens_counted_as(self, purpose: str, episode: AuditedEpisode) -> list[int]:
        return [
            sum(
                call.num_action_tokens or 0
                for call in calls
                if self.intent.counted_as(call.purpose) == purpose
            )
            for calls in episode.trained_calls
        ]

    @property
    def _whole_parts(self) -> list[list[AuditedEpisode]]:
        """The optimizer steps whose episodes have all their steps."""
        return [
            members
            for members in self.parts.values()
            if all(episode.complete for episode in members)
        ]

    @cached_property
    def parts(self) -> dict[int, list[AuditedEpisode]]:
        """Episodes that were to be trained, by their optimizer step."""
        parts: dict[int, list[AuditedEpisode]] = defaultdict(list)
        for episode in self.meant:
            parts[self.optimizer_step_of(episode)].append(episode)
        return parts

    def optimizer_step_of(self, episode: AuditedEpisode) -> int:
        """0-based optimizer step that an episode of the update belongs to."""
        return self.intent.optimizer_step_of(
            episode.numbers.group_index, num_groups=len(self.groups)
        )

    def _lacks(self, episode: AuditedEpisode) -> str | None:
        if not episode.complete:
            return "the episode's steps are not all there"
        greedy = self.greedy.ended.get(episode.numbers.group_index)
        if greedy is not None and not greedy.complete:
            return "the steps of its group's greedy episode are not all there"
        if self.intent.has_critic and (lacking := self._lacks_values(episode)) is not None:
            return lacking
        if self.intent.compares_pairs and any(
            key_of(call) not in self.policy_sums
            for calls in episode.trained_calls
            for call in calls
        ):
            return "its tokens were pruned from the store"
        if None in episode.anchors:
            return "the text of an anchor state is not in the store"
        reads_final = self.intent.reads_final_anchors and not episode.numbers.success
        if reads_final and episode.final_anchor is None:
            return "the state that it ended in is not in the store"
        if not self.intent.rewards_follow and any(s.shaped_reward is None for s in episode.steps):
            return "its shaped rewards do not follow from the store, and one is missing"
        return None

    def _lacks_values(self, episode: AuditedEpisode) -> str | None:
        if not episode.terminated and episode.numbers.final_value is None:
            return "its final observation has no value"
        if any(step.value is None for step in episode.steps):
            return "a step of it has no value"
        if self.intent.credits_tokens and any(
            key_of(call) not in self.token_credit
            or len(self.token_credit[key_of(call)].values) != call.num_action_tokens
            for calls in episode.trained_calls
            for call in calls
        ):
            return "its tokens have no values, or they were pruned from the store"
        return None
