"""Every estimator of advantages: its settings, what it needs, and the function that computes it.

An estimator takes all groups of a training step and returns one credit per episode of each
group. Most compare inside a group; REINFORCE++ takes its statistics over all of them.

To add one: its pure function in `longhaul_core/advantages/`, an adapter and an entry of
`ESTIMATORS` here, its settings in `EstimatorSettings` below, its independent definition in
`longhaul_core/audit/formulas.py`, and a recipe in `configs/algorithms/`. Nothing here knows about
verl or imports torch: the configuration reads this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Annotated, cast, get_args

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from longhaul_core.advantages import EpisodeCredit, LossUnit, Statistics, Whiten
from longhaul_core.advantages.drgrpo import drgrpo_credit
from longhaul_core.advantages.gae_credit import GaeLevel, gae_credit
from longhaul_core.advantages.gigpo import gigpo_credit
from longhaul_core.advantages.graphgpo import DistanceForm, GraphSettings, graphgpo_credit
from longhaul_core.advantages.grpo import grpo_credit
from longhaul_core.advantages.hgpo import hgpo_credit
from longhaul_core.advantages.pass_at_k import pass_at_k_credit
from longhaul_core.advantages.reinforce import (
    reinforce_plus_plus_baseline_credit,
    reinforce_plus_plus_credit,
)
from longhaul_core.advantages.remax import remax_credit
from longhaul_core.advantages.rloo import rloo_credit
from longhaul_core.components import find_component
from longhaul_core.errors import ConfigError, GroupError
from longhaul_core.text import shortened
from longhaul_trainer.component_settings import BuiltInOrOwn, Option

SETTING = "algorithm.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The attempts at one task that did not fail; each field has one entry per episode."""

    name: str
    step_rewards: Sequence[npt.NDArray[np.float64]]
    """Rewards of the steps, penalties taken off."""
    anchor_states: Sequence[Sequence[str]]
    """State that each step was taken in."""
    final_states: Sequence[str | None]
    """State seen after each episode's last step; None in one that succeeded."""
    num_action_tokens: Sequence[Sequence[int]]
    """Tokens of each step's action."""
    greedy_rewards: npt.NDArray[np.float64] | None = None
    """Of the greedy episode beside the group, penalties taken off; None if there is none."""
    token_values: Sequence[Sequence[npt.NDArray[np.float64]]] | None = None
    """The critic's value before each token of each step's action; None without a critic."""
    final_values: Sequence[float | None] | None = None
    """The critic's value of each episode's final observation, None for one that terminated; None
    without a critic."""


GroupCredit = tuple[EpisodeCredit, ...]
"""Credit of a group's episodes, in their order."""

Compute = Callable[[Sequence[Group], "EstimatorSettings"], list[GroupCredit]]
"""Credit of every group of a training step, in the order given.

A function of one's own has this form; it gets the whole `[algorithm]` section, with its free table
`options`, and groups of at least two episodes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimator:
    """One estimator, and what it needs of a run."""

    compute: Compute
    summary: str = ""
    """What an advantage is measured from, in a few words, for the configuration's reference."""
    reads: tuple[str, ...] = ()
    """Settings of `EstimatorSettings` that it reads, beside `discount`; others are refused unless
    they have their default value."""
    compares_episodes: bool = True
    """Whether its baseline comes from the other episodes of a group; if not, one is enough."""
    needs_greedy_episode: bool = False
    """Whether a greedy episode is played beside each group."""
    needs_critic: bool = False
    loss_units: tuple[LossUnit, ...] = get_args(LossUnit)
    """Values of `algorithm.loss_unit` that agree with its derivation."""


def estimate(groups: Sequence[Group], settings: EstimatorSettings) -> list[GroupCredit]:
    """Credit of every group of a training step, in the order given.

    Raises:
        GroupError: If a group has fewer episodes than `smallest_group`, or lacks the greedy
            episode that it is to be compared with.
        ConfigError: If an estimator of the user's own cannot be imported, or returns something
            that is no credit of these groups.
    """
    if not groups:
        return []
    found = ESTIMATORS.get(settings.name, OWN).compute(groups, settings)
    if settings.name not in ESTIMATORS:
        _refuse_other_credit(found, groups, name=settings.name)
    return found


def own_estimator(name: str) -> Compute:
    """The function behind `package.module:name`.

    Raises:
        ConfigError: If it cannot be imported, or does not take groups and settings.
    """
    computes = {known: entry.compute for known, entry in ESTIMATORS.items()}
    return find_component(name, computes, setting=SETTING, takes=("groups", "settings"))


def smallest_group(settings: EstimatorSettings) -> int:
    """Fewest episodes that can be credited: two to compare, or as many as pass@k draws.

    One is enough where the baseline does not come from the others.
    """
    if not settings.compares_episodes:
        return 1
    return max(2, settings.pass_k or 0)


def _refuse_other_credit(found: object, groups: Sequence[Group], *, name: str) -> None:
    """Refuse what a function of the user's own returned, unless it is one credit per episode."""
    estimator = f"{SETTING} = {name!r}"
    credits = cast("Sequence[Sequence[object]]", found)
    num_episodes = [len(group.step_rewards) for group in groups]
    if not isinstance(found, list | tuple) or [*map(len, credits)] != num_episodes:
        raise ConfigError(
            f"{estimator}: must return a list with one credit per episode of each group, for "
            f"groups of {num_episodes} episodes, got {shortened(repr(credits), 200)}"
        )
    for group, of_group in zip(groups, credits, strict=True):
        for place, (rewards, credit) in enumerate(zip(group.step_rewards, of_group, strict=True)):
            where = f"{estimator}, group {group.name!r}, episode {place}"
            if not isinstance(credit, EpisodeCredit):
                raise ConfigError(
                    f"{where}: got a {type(credit).__name__}, expected a "
                    "longhaul_core.advantages.EpisodeCredit"
                )
            numbers = (credit.advantages, credit.step_advantages, credit.returns_to_go)
            if any(len(each) != len(rewards) for each in numbers):
                raise ConfigError(
                    f"{where}: has {len(rewards)} steps, and its credit has "
                    f"{[len(each) for each in numbers]} advantages, step advantages and returns"
                )
            if not all(map(math.isfinite, (credit.episode_advantage, *chain(*numbers)))):
                raise ConfigError(f"{where}: its credit has a number that is not finite")


def _per_group(credit: Callable[[Group, EstimatorSettings], GroupCredit]) -> Compute:
    """One that compares inside each group alone."""
    return lambda groups, settings: [credit(group, settings) for group in groups]


def _grpo(group: Group, settings: EstimatorSettings) -> GroupCredit:
    return grpo_credit(
        group.step_rewards,
        discount=settings.discount,
        scale_by_std=settings.scale_by_std,
        statistics=settings.statistics,
    )


def _drgrpo(group: Group, settings: EstimatorSettings) -> GroupCredit:
    return drgrpo_credit(group.step_rewards, discount=settings.discount)


def _rloo(group: Group, settings: EstimatorSettings) -> GroupCredit:
    return rloo_credit(group.step_rewards, discount=settings.discount)


def _pass_at_k(group: Group, settings: EstimatorSettings) -> GroupCredit:
    return pass_at_k_credit(
        group.step_rewards,
        k=settings.pass_k,
        scale_by_std=settings.scale_by_std,
        discount=settings.discount,
    )


def _gigpo(group: Group, settings: EstimatorSettings) -> GroupCredit:
    return gigpo_credit(
        group.step_rewards,
        group.anchor_states,
        discount=settings.discount,
        step_advantage_weight=settings.step_advantage_weight,
        scale_by_std=settings.scale_by_std,
        statistics=settings.statistics,
        similarity=settings.anchor_similarity,
    )


def _hgpo(group: Group, settings: EstimatorSettings) -> GroupCredit:
    return hgpo_credit(
        group.step_rewards,
        group.anchor_states,
        discount=settings.discount,
        history_length=settings.history_length,
        history_weight_exponent=settings.history_weight_exponent,
        scale_by_std=settings.scale_by_std,
    )


def _graphgpo(group: Group, settings: EstimatorSettings) -> GroupCredit:
    return graphgpo_credit(
        group.step_rewards,
        group.anchor_states,
        group.final_states,
        settings=GraphSettings(
            distance_decay=settings.distance_decay,
            distance_form=settings.distance_form,
            step_advantage_weight=settings.step_advantage_weight,
            episode_advantage_weight=settings.episode_advantage_weight,
            similarity=settings.anchor_similarity,
        ),
        discount=settings.discount,
        scale_by_std=settings.scale_by_std,
        statistics=settings.statistics,
    )


def _remax(group: Group, settings: EstimatorSettings) -> GroupCredit:
    if group.greedy_rewards is None:
        raise GroupError(f"group {group.name!r} has no greedy episode to be compared with")
    return remax_credit(
        group.step_rewards,
        greedy_return=float(group.greedy_rewards.sum()),
        discount=settings.discount,
    )


def _reinforce_plus_plus(groups: Sequence[Group], settings: EstimatorSettings) -> list[GroupCredit]:
    credits = reinforce_plus_plus_credit(
        [rewards for group in groups for rewards in group.step_rewards],
        [counts for group in groups for counts in group.num_action_tokens],
        discount=settings.discount,
        whiten=settings.whiten,
    )
    return _by_group(credits, groups)


def _reinforce_plus_plus_baseline(
    groups: Sequence[Group], settings: EstimatorSettings
) -> list[GroupCredit]:
    credits = reinforce_plus_plus_baseline_credit(
        [rewards for group in groups for rewards in group.step_rewards],
        [counts for group in groups for counts in group.num_action_tokens],
        [group.name for group in groups for _ in group.step_rewards],
        discount=settings.discount,
        whiten=settings.whiten,
    )
    return _by_group(credits, groups)


def _gae(groups: Sequence[Group], settings: EstimatorSettings) -> list[GroupCredit]:
    credits = gae_credit(
        [rewards for group in groups for rewards in group.step_rewards],
        [values for group in groups for values in group.token_values or ()],
        [value for group in groups for value in group.final_values or ()],
        level=settings.gae_level,
        discount=settings.discount,
        gae_lambda=settings.gae_lambda,
        whiten=settings.whiten,
    )
    return _by_group(credits, groups)


def _by_group(credits: Sequence[EpisodeCredit], groups: Sequence[Group]) -> list[GroupCredit]:
    remaining = iter(credits)
    return [tuple(islice(remaining, len(group.step_rewards))) for group in groups]


ESTIMATORS: Mapping[str, Estimator] = {
    "gigpo": Estimator(
        compute=_per_group(_gigpo),
        summary="GiGPO: the episodes of the group, and the group's steps from the same state",
        reads=("scale_by_std", "statistics", "step_advantage_weight", "anchor_similarity"),
    ),
    "grpo": Estimator(
        compute=_per_group(_grpo),
        summary="GRPO: the mean return of the group",
        reads=("scale_by_std", "statistics"),
    ),
    "drgrpo": Estimator(
        compute=_per_group(_drgrpo),
        summary="Dr.GRPO: the mean return of the group, not divided by the standard deviation",
        reads=("scale_by_std",),  # it divides by nothing, so `false` repeats what it does
        loss_units=("token", "fixed_token"),  # it leaves out lengths
    ),
    "rloo": Estimator(
        compute=_per_group(_rloo),
        summary="RLOO: the mean return of the group's other episodes",
        reads=("scale_by_std",),  # as drgrpo
    ),
    "reinforce_plus_plus": Estimator(
        compute=_reinforce_plus_plus,
        summary="REINFORCE++: the steps of the whole training step",
        reads=("whiten",),
        compares_episodes=False,
    ),
    "reinforce_plus_plus_baseline": Estimator(
        compute=_reinforce_plus_plus_baseline,
        summary="REINFORCE++ with the mean return of the group as its baseline",
        reads=("whiten",),
    ),
    "hgpo": Estimator(
        compute=_per_group(_hgpo),
        summary="HGPO: the group's steps from the same state with the same past",
        reads=("scale_by_std", "history_length", "history_weight_exponent"),
    ),
    "graphgpo": Estimator(
        compute=_per_group(_graphgpo),
        summary="GraphGPO: as gigpo, with steps paid for their distance to success",
        reads=(
            "scale_by_std",
            "statistics",
            "step_advantage_weight",
            "episode_advantage_weight",
            "anchor_similarity",
            "distance_decay",
            "distance_form",
        ),
    ),
    "pass_at_k": Estimator(
        compute=_per_group(_pass_at_k),
        summary="pass@k: the best of k - 1 other episodes of the group",
        reads=("scale_by_std", "pass_k"),
    ),
    "remax": Estimator(
        compute=_per_group(_remax),
        summary="ReMax: a greedy episode of the task, played beside the group and not trained",
        reads=("scale_by_std",),  # as drgrpo
        compares_episodes=False,
        needs_greedy_episode=True,
    ),
    "gae": Estimator(
        compute=_gae,
        summary="GAE: the values of a critic that is trained too (PPO)",
        reads=("whiten", "gae_level", "gae_lambda"),
        compares_episodes=False,
        needs_critic=True,
    ),
}
"""Every built-in estimator by its `algorithm.name`."""

OWN = Estimator(compute=lambda groups, settings: own_estimator(settings.name)(groups, settings))
"""An estimator of the user's own: it compares groups of at least two episodes, without a critic or
a greedy episode, so that the trainer and the audit know which groups are trained."""


class EstimatorSettings(BaseModel):
    """Settings that estimators read: the first part of `[algorithm]`."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: Annotated[
        str, BuiltInOrOwn({name: each.summary for name, each in ESTIMATORS.items()})
    ] = "gigpo"
    """The advantage estimator, by what an episode or a step is compared with; or a function of
    your own."""
    discount: float = Field(default=0.95, ge=0, le=1)
    """Discount (gamma) of the return-to-go, per environment step, not per token. `gigpo`, `hgpo`,
    `gae` and `reinforce_plus_plus` learn from it; the others only record it."""
    scale_by_std: bool = True
    """Divide advantages by the standard deviation of what they are compared with; `drgrpo`,
    `rloo` and `remax` never do, and `reinforce_plus_plus` and `gae` always divide by the training
    step's."""
    step_advantage_weight: float = Field(default=1.0, ge=0)
    """Weight (omega) of the step part beside the episode part; for `gigpo` and `graphgpo`."""
    episode_advantage_weight: float = Field(default=1.0, ge=0)
    """Weight of the episode part beside the step part; for `graphgpo`."""
    statistics: Statistics = "episode"
    """Mean and deviation over episodes, or over rows as in GiGPO's reference code, where a long
    episode counts more; for `grpo`, `gigpo` and `graphgpo`."""
    anchor_similarity: float | None = Field(default=None, gt=0, lt=1)
    """Treat states whose texts are at least this similar as one; left out, only equal texts are
    one state. For `gigpo` and `graphgpo`."""
    distance_decay: float = Field(default=0.1, gt=0, lt=1)
    """Factor (omega) by which each further step from the goal multiplies a state's reward, for
    `graphgpo`. With `proximity` and `scale_by_std`, 0.1 leaves next to nothing to states that
    are more than 8 steps from the goal."""
    distance_form: DistanceForm = "proximity"
    """What `graphgpo` rewards a step for: how near the goal is to the state it led to, or how much
    nearer than to the state it was taken in."""
    history_length: int = Field(default=2, ge=0)
    """Past states (K) that `hgpo` compares, as many as the memory shows."""
    history_weight_exponent: float = Field(default=1.0, ge=0)
    """How much more `hgpo` weighs comparisons of steps that share more of the past (alpha); 0
    weighs all alike."""
    whiten: Whiten = "token"
    """Unit over which the training step's mean and deviation are taken; for
    `reinforce_plus_plus`, `reinforce_plus_plus_baseline` and `gae`."""
    gae_level: GaeLevel = "step"
    """Values and advantages of whole actions, or of each of their tokens; for `gae`. `discount`
    and `gae_lambda` apply once per environment step in both."""
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """Lambda of `gae`, per environment step: 0 relies on the critic after one step, 1 only where
    an episode is truncated."""
    pass_k: int | None = Field(default=None, ge=2)
    """The k of `pass_at_k`, at most `rollout.group_size`; left out, all episodes of the group that
    did not fail. A group with fewer is left out."""
    options: Mapping[str, Option] = {}
    """Settings of an estimator of your own, which gets them as `settings.options`."""

    @property
    def compares_episodes(self) -> bool:
        """Whether advantages are measured from the other episodes of a group."""
        return self._known.compares_episodes

    @property
    def needs_greedy_episode(self) -> bool:
        """Whether a group is compared with a greedy episode of its task."""
        return self._known.needs_greedy_episode

    @property
    def uses_critic(self) -> bool:
        """Whether advantages need values."""
        return self._known.needs_critic

    @property
    def loss_units(self) -> tuple[LossUnit, ...]:
        """Values of `loss_unit` that agree with the estimator."""
        return self._known.loss_units

    @property
    def unread(self) -> tuple[str, ...]:
        """Names of the settings here that the estimator does not read; one's own may read all."""
        if self.name not in ESTIMATORS:
            return ()
        read = {"name", "discount", *self._known.reads}
        return tuple(field for field in EstimatorSettings.model_fields if field not in read)

    @property
    def _known(self) -> Estimator:
        """The registry's entry; for an estimator of one's own, what is true of all of them."""
        return ESTIMATORS.get(self.name, OWN)

    def estimator_conflicts(self) -> Generator[str]:
        """Settings that contradict each other for some estimator."""
        if self.step_advantage_weight == self.episode_advantage_weight == 0:
            yield (
                "algorithm.step_advantage_weight = 0 and algorithm.episode_advantage_weight = 0 "
                "leave no advantage to learn from; raise one"
            )
