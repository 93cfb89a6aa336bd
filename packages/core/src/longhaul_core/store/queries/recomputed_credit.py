"""The advantages that any estimator would give a group, beside those that it was trained with.

They are computed by the code that trains, `longhaul_core.advantages`, from what the store has: the
shaped rewards, the anchor states, the tokens of the replies, a greedy episode, a critic's values.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import ValidationError
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from longhaul_core.advantages.credit import EpisodeCredit, FloatArray
from longhaul_core.advantages.estimators import ESTIMATORS, Estimator, EstimatorSettings, Group
from longhaul_core.advantages.penalties import Penalties, action_penalties, penalised_rewards
from longhaul_core.errors import ConfigError, GroupError
from longhaul_core.store.models import CallRow, CallTokensRow, EpisodeRow, GroupRow, StepRow
from longhaul_core.store.queries.base import Answer
from longhaul_core.store.queries.episode_lists import GroupId, episodes_of_group
from longhaul_core.store.queries.group_steps import (
    ComparedGroup,
    GroupEpisode,
    TrainedTokens,
    read_compared,
    trained_tokens,
    with_steps,
)
from longhaul_core.store.queries.training_steps import IN_GROUP, of_update

__all__ = [
    "EstimatedAdvantages",
    "EstimatedEpisode",
    "EstimatedGroup",
    "advantages_by_estimator",
    "rewards_of_credit",
]

RewardSource = Literal["stored", "recomputed"]
"""`stored`: as credit was given for. `recomputed`: the environment's, less the run's penalties."""


@dataclass(frozen=True, slots=True)
class EstimatedEpisode(Answer):
    """One episode by one estimator."""

    episode_id: str
    episode_advantage: float
    step_advantages: tuple[float, ...]
    """One per step, as the other."""
    advantages: tuple[float, ...]
    """What the loss would use: both parts combined; where tokens have their own, their mean."""


@dataclass(frozen=True, slots=True)
class EstimatedAdvantages(Answer):
    """A group by one estimator."""

    estimator: str
    summary: str
    """What it measures advantages from."""
    trained: bool
    """Whether it is the run's."""
    missing: str | None
    """What it needs and the store does not have; None where it could be computed."""
    episodes: tuple[EstimatedEpisode, ...]
    """Those that are compared, by sample_index; empty where something is missing."""


@dataclass(frozen=True, slots=True)
class EstimatedGroup(Answer):
    """A group by several estimators, under the settings of its run.

    Settings that the run's own estimator does not read have their defaults.
    """

    discount: float
    reward_source: RewardSource | None
    """Where the rewards come from; None where nothing could be computed."""
    estimators: tuple[EstimatedAdvantages, ...]
    """The run's own first."""


def advantages_by_estimator(
    session: Session,
    group: GroupId,
    *,
    names: Collection[str] | None = None,
    further: Mapping[str, Estimator] | None = None,
) -> EstimatedGroup:
    """The advantage of each step of a group by each built-in estimator.

    Args:
        session: Only read from.
        group: Which.
        names: Only of these; None means all.
        further: Estimators beside the built-in ones, by their names.

    Raises:
        LookupError: There is no such group, or no estimator of a name.
        ConfigError: As a further estimator raises it.
    """
    known = {**ESTIMATORS, **(further or {})}
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
        raise LookupError(f"there is no estimator {unknown[0]!r}; there are {', '.join(known)}")
    compared = read_compared(session, group, texts=False)
    own = compared.config.get("algorithm", {}).get("name")
    wanted = [name for name in known if names is None or name in names]
    wanted.sort(key=lambda name: name != own)  # stable: the run's own first
    source: RewardSource | None = None
    material: _Material | None = None
    missing: str | None = None
    try:
        rewards, source = rewards_of_credit(session, compared)
        material = _Material(session, compared, rewards, source)
    except GroupError as error:
        missing = str(error)
    return EstimatedGroup(
        discount=compared.settings.discount,
        reward_source=source,
        estimators=tuple(
            _by(name, known[name], material, missing=missing, trained=name == own)
            for name in wanted
        ),
    )


def rewards_of_credit(
    session: Session, compared: ComparedGroup
) -> tuple[list[FloatArray], RewardSource]:
    """For each episode that is compared the rewards of its steps as credit sees them.

    Raises:
        GroupError: They are not stored, and do not follow from what is.
    """
    if not compared.episodes:
        raise GroupError("no episode of the group ended, so there is nothing to compare")
    stored = [[step.shaped_reward for step in e.steps] for e in compared.episodes]
    if all(reward is not None for of_episode in stored for reward in of_episode):
        return [np.array(of_episode, dtype=np.float64) for of_episode in stored], "stored"
    penalties = _penalties(compared.config, whose="the group was given no credit, and its rewards")
    tokens = trained_tokens(session, [e.summary.episode_id for e in compared.episodes])
    return [_recomputed(e, tokens, penalties) for e in compared.episodes], "recomputed"


def _penalties(config: Mapping[str, Any], *, whose: str) -> Penalties:
    algorithm = config.get("algorithm", {})
    if algorithm.get("reward_shaping") is not None:
        raise GroupError(
            f"{whose} would be those of {algorithm['reward_shaping']}, which are not stored"
        )
    if algorithm.get("reward_kl_coefficient", 0.0) > 0:
        raise GroupError(
            f"{whose} would be less the divergence from the starting model, which is not stored"
        )
    try:
        return Penalties.model_validate(algorithm)
    except ValidationError as error:
        raise GroupError(
            f"{whose} would be less penalties, and the run's stored configuration does not say "
            f"which: {error.errors()[0]['loc'][0]}"
        ) from error


def _recomputed(
    episode: GroupEpisode,
    tokens: Mapping[tuple[str, int], TrainedTokens],
    penalties: Penalties,
) -> FloatArray:
    return penalised_rewards(
        [step.reward for step in episode.steps],
        [step.action_valid for step in episode.steps],
        _counts(episode, tokens),
        penalties,
    )


def _counts(episode: GroupEpisode, tokens: Mapping[tuple[str, int], TrainedTokens]) -> list[int]:
    found = [tokens.get((episode.summary.episode_id, step.step_index)) for step in episode.steps]
    return [0 if each is None else each.num_tokens for each in found]


def _by(
    name: str,
    estimator: Estimator,
    material: "_Material | None",
    *,
    missing: str | None,
    trained: bool,
) -> EstimatedAdvantages:
    credits: tuple[EpisodeCredit, ...] = ()
    if material is not None:
        try:
            credits = material.credits(name, estimator)
        except ConfigError:
            raise  # a further estimator is none, and no group has credit of it
        except (GroupError, ValueError) as error:
            missing = str(error)
    return EstimatedAdvantages(
        estimator=name,
        summary=estimator.summary,
        trained=trained,
        missing=missing,
        episodes=tuple(
            EstimatedEpisode(
                episode.summary.episode_id,
                credit.episode_advantage,
                credit.step_advantages,
                credit.advantages,
            )
            for episode, credit in zip(material.compared.episodes, credits, strict=bool(credits))
        )
        if material is not None
        else (),
    )


class _Material:
    """What estimators read of a group; what few of them need is read when one asks for it."""

    def __init__(
        self,
        session: Session,
        compared: ComparedGroup,
        rewards: Sequence[FloatArray],
        source: RewardSource,
    ) -> None:
        self.compared = compared
        self._session = session
        self._rewards = rewards
        self._source = source
        self._trained = trained_tokens(session, [e.summary.episode_id for e in compared.episodes])

    def credits(self, name: str, estimator: Estimator) -> tuple[EpisodeCredit, ...]:
        """Of each episode that is compared.

        Raises:
            GroupError: Something that the estimator needs is not in the store.
            ValueError: What is there is out of the estimator's range.
        """
        settings = self.compared.settings.model_copy(update={"name": name})
        similar = "anchor_similarity" in estimator.reads and settings.anchor_similarity is not None
        if similar and self.compared.similarity is None:
            raise GroupError(
                "the run takes similar states together, and the text of a state was removed from "
                "the store"
            )
        if estimator.compares_training_step:
            return self._of_training_step(estimator, settings)
        [found] = estimator.compute([self._group(estimator, settings)], settings)
        return found

    def _group(self, estimator: Estimator, settings: EstimatorSettings) -> Group:
        episodes = self.compared.episodes
        return Group(
            name=str(self.compared.group.summary.group_index),
            step_rewards=self._rewards,
            anchor_states=self.compared.anchors,
            final_states=self.compared.finals,
            num_action_tokens=[_counts(episode, self._trained) for episode in episodes],
            action_penalties=self._action_penalties(estimator, settings),
            agents=[self._agents(episode) for episode in episodes]
            if settings.baseline_per_agent
            else (),
            greedy_rewards=self._greedy_rewards() if estimator.needs_greedy_episode else None,
        )

    def _action_penalties(
        self, estimator: Estimator, settings: EstimatorSettings
    ) -> list[FloatArray]:
        """What each step alone is lowered by; see `PenaltyOn`."""
        algorithm = self.compared.config.get("algorithm", {})
        if algorithm.get("invalid_action_penalty_on", "return") == "return":
            return []
        penalties = _penalties(self.compared.config, whose="what its steps are compared by")
        found = [
            action_penalties([step.action_valid for step in episode.steps], penalties)
            for episode in self.compared.episodes
        ]
        takes = estimator.penalises_actions and not settings.baseline_per_agent
        if not takes and any(map(np.any, found)):
            raise GroupError("it has no penalty of an invalid action alone, and the run has one")
        return found

    def _agents(self, episode: GroupEpisode) -> list[str | None]:
        """The agent of each step; None where no call is trained."""
        found: list[str | None] = []
        for step in episode.steps:
            trained = self._trained.get((episode.summary.episode_id, step.step_index))
            if trained is not None and trained.num_agents > 1:
                raise GroupError("each agent has its own baseline, and a step is of several agents")
            found.append(None if trained is None else trained.agent)
        return found

    def _greedy_rewards(self) -> FloatArray:
        group = self.compared.group.summary.group_id
        beside = episodes_of_group(self._session, replace(group, phase="baseline"))
        ended = with_steps(self._session, [each for each in beside if not each.failed])
        if not ended:
            raise GroupError("no greedy episode of the task was played beside the group")
        tokens = trained_tokens(self._session, [ended[0].summary.episode_id])
        whose = "the greedy episode is stored without credit, and its rewards"
        return _recomputed(ended[0], tokens, _penalties(self.compared.config, whose=whose))

    def _of_training_step(
        self, estimator: Estimator, settings: EstimatorSettings
    ) -> tuple[EpisodeCredit, ...]:
        summary = self.compared.group.summary
        place, training_step = summary.update_index, summary.resolved_training_step
        if (
            place is None
            or training_step is None
            or self._source != "stored"
            or summary.rolled_back
        ):
            raise GroupError(
                "it compares all groups of an update, and no update of the lineage took this one"
            )
        groups = _groups_of_update(
            self._session,
            run_id=summary.run_id,
            training_step=training_step,
            settings=settings,
            critic=estimator.needs_critic,
        )
        found = estimator.compute(list(groups.values()), settings)
        return found[list(groups).index(place)]


class _CreditedStep(NamedTuple):
    """A step of an update, with what estimators over the whole of it read."""

    update_index: int
    episode_id: str
    step_index: int
    shaped_reward: float
    num_tokens: int
    value: float | None
    truncated: bool
    final_value: float | None


def _groups_of_update(
    session: Session, *, run_id: str, training_step: int, settings: EstimatorSettings, critic: bool
) -> dict[int, Group]:
    """All groups that were given credit in a training step, by their places in its update."""
    num_tokens = (
        select(func.coalesce(func.sum(CallRow.num_action_tokens), 0))
        .where(
            CallRow.episode_id == StepRow.episode_id,
            CallRow.step_index == StepRow.step_index,
            CallRow.trained,
        )
        .scalar_subquery()
    )
    rows = session.execute(
        select(
            GroupRow.update_index,
            StepRow.episode_id,
            StepRow.step_index,
            StepRow.shaped_reward,
            num_tokens,
            StepRow.value,
            EpisodeRow.truncated,
            EpisodeRow.final_value,
        )
        .join(EpisodeRow, EpisodeRow.id == StepRow.episode_id)
        .join(GroupRow, IN_GROUP)
        .where(*of_update(run_id, training_step), StepRow.shaped_reward.is_not(None))
        .order_by(
            GroupRow.update_index, EpisodeRow.sample_index, EpisodeRow.retry, StepRow.step_index
        )
    )
    by_group: dict[int, dict[str, list[_CreditedStep]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        step = _CreditedStep(*row)
        by_group[step.update_index][step.episode_id].append(step)
    of_tokens = (
        _token_values(session, run_id=run_id, training_step=training_step)
        if critic and settings.gae_level == "token"
        else None
    )
    return {
        place: Group(
            name=str(place),
            step_rewards=[np.array([s.shaped_reward for s in steps]) for steps in group.values()],
            anchor_states=[],  # none of these estimators reads them
            final_states=[],
            num_action_tokens=[[s.num_tokens for s in steps] for steps in group.values()],
            token_values=[[_values(s, of_tokens) for s in steps] for steps in group.values()]
            if critic
            else None,
            final_values=[_final_value(steps[-1]) for steps in group.values()] if critic else None,
        )
        for place, group in by_group.items()
    }


def _values(
    step: _CreditedStep, of_tokens: Mapping[tuple[str, int], FloatArray] | None
) -> FloatArray:
    """The critic's value before each token of a step's trained calls."""
    key = step.episode_id, step.step_index
    if of_tokens is not None and key in of_tokens:
        return of_tokens[key]
    if step.num_tokens == 0 and step.value is not None:
        return np.array([step.value])  # none of its calls is trained
    if of_tokens is not None or step.value is None:
        raise GroupError("it needs a critic's values, and the store has none of the update")
    return np.full(step.num_tokens, step.value)


def _final_value(last: _CreditedStep) -> float | None:
    if not last.truncated:
        return None
    if last.final_value is None:
        raise GroupError("it needs a critic's values, and one of a last observation is missing")
    return last.final_value


def _token_values(
    session: Session, *, run_id: str, training_step: int
) -> dict[tuple[str, int], FloatArray]:
    """By episode and step, the values before the tokens of its trained calls, one after another."""
    found: dict[tuple[str, int], list[bytes]] = defaultdict(list)
    rows = session.execute(
        select(CallRow.episode_id, CallRow.step_index, CallTokensRow.token_values)
        .join(EpisodeRow, EpisodeRow.id == CallRow.episode_id)
        .outerjoin(
            CallTokensRow,
            (CallTokensRow.episode_id == CallRow.episode_id)
            & (CallTokensRow.step_index == CallRow.step_index)
            & (CallTokensRow.call_index == CallRow.call_index),
        )
        .join(GroupRow, IN_GROUP)
        .where(*of_update(run_id, training_step), CallRow.trained)
        .order_by(CallRow.episode_id, CallRow.step_index, CallRow.call_index)
    )
    for episode_id, step_index, values in rows:
        found[episode_id, step_index].append(values or b"")
    return {
        key: np.frombuffer(b"".join(values), "<f4").astype(np.float64)
        for key, values in found.items()
        if all(values)
    }
