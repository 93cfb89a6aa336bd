"""Every built-in estimator of advantages: its settings, what it needs, and what computes it.

An estimator takes all groups of a training step and returns one credit per episode of each
group. Most compare inside a group; REINFORCE++ and GAE take statistics over all of them. Training
calls them by the run's settings; the store's `queries.advantages_by_estimator` calls any of them
again on what a run recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import get_args

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from longhaul_core.advantages.credit import EpisodeCredit, Statistics
from longhaul_core.advantages.drgrpo import drgrpo_credit
from longhaul_core.advantages.gae_credit import GaeLevel, gae_credit
from longhaul_core.advantages.gigpo import gigpo_credit
from longhaul_core.advantages.graphgpo import DistanceForm, GraphSettings, graphgpo_credit
from longhaul_core.advantages.grpo import grpo_credit
from longhaul_core.advantages.hgpo import HistoryForm, hgpo_credit
from longhaul_core.advantages.imitation import DemonstrationWeight, imitation_credit
from longhaul_core.advantages.pass_at_k import pass_at_k_credit
from longhaul_core.advantages.per_agent import gigpo_per_agent_credit, grpo_per_agent_credit
from longhaul_core.advantages.reinforce import (
    reinforce_plus_plus_baseline_credit,
    reinforce_plus_plus_credit,
)
from longhaul_core.advantages.remax import remax_credit
from longhaul_core.advantages.rloo import rloo_credit
from longhaul_core.advantages.weights import LossUnit
from longhaul_core.advantages.whiten import Whiten
from longhaul_core.errors import GroupError

__all__ = [
    "ESTIMATORS",
    "IMITATION",
    "Compute",
    "Estimator",
    "EstimatorSettings",
    "Group",
    "GroupCredit",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The attempts at one task that did not fail; each field has one entry per episode."""

    name: str
    step_rewards: Sequence[npt.NDArray[np.float64]]
    """Rewards of the steps, penalties that lower returns taken off."""
    anchor_states: Sequence[Sequence[str]]
    """State that each step was taken in."""
    final_states: Sequence[str | None]
    """State seen after each episode's last step; None in one that succeeded."""
    num_action_tokens: Sequence[Sequence[int]]
    """Tokens of each step's action."""
    action_penalties: Sequence[npt.NDArray[np.float64]] = ()
    """What each step alone is lowered by; empty where all penalties are taken off the rewards."""
    agents: Sequence[Sequence[str | None]] = ()
    """Name of the agent of each step, None for one without a trained call; empty unless
    `baseline_per_agent`."""
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
    penalises_actions: bool = False
    """Whether it takes `Group.action_penalties`."""
    compares_episodes: bool = True
    """Whether its baseline comes from the other episodes of a group; if not, one is enough."""
    needs_greedy_episode: bool = False
    """Whether a greedy episode is played beside each group."""
    needs_critic: bool = False
    loss_units: tuple[LossUnit, ...] = get_args(LossUnit)
    """Values of `algorithm.loss_unit` that agree with its derivation."""
    compares_training_step: bool = False
    """Whether its statistics are taken over all groups of a training step."""


class EstimatorSettings(BaseModel):
    """Settings that estimators read: the first part of `[algorithm]`."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str = "gigpo"
    """Which estimator: a key of `ESTIMATORS`, or a function of one's own."""
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
    baseline_per_agent: bool = False
    """Compare the steps of each agent of a program with steps of the same agent alone (Dr.MAS; its
    code takes `statistics = "row"`); for `grpo` and `gigpo`. A step's trained calls must be of one
    agent."""
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
    history_form: HistoryForm = "paper"
    """`hgpo` as in its paper; or as in its authors' code, where the weights are (k + 2)^alpha for
    (k + 1)^alpha, deviations are over n, and comparisons with a mean that is the step's own return
    are left out."""
    whiten: Whiten = "token"
    """Unit over which the training step's mean and deviation are taken; for
    `reinforce_plus_plus`, `reinforce_plus_plus_baseline` and `gae`."""
    gae_level: GaeLevel = "step"
    """Values and advantages of whole actions, or of each of their tokens; for `gae`. `discount`
    and `gae_lambda` apply once per environment step in both."""
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """Lambda of `gae`, per environment step: 0 relies on the critic after one step, 1 only where
    an episode is truncated."""
    demonstration_weight: DemonstrationWeight = "one"
    """What a reply that is imitated counts: `one`, or its episode's `return` (AgentEvol), which
    must not be negative; for `imitation`."""
    pass_k: int | None = Field(default=None, ge=2)
    """The k of `pass_at_k`, at most `rollout.group_size`; left out, all episodes of the group that
    did not fail. A group with fewer is left out."""


def _per_group(credit: Callable[[Group, EstimatorSettings], GroupCredit]) -> Compute:
    """One that compares inside each group alone."""
    return lambda groups, settings: [credit(group, settings) for group in groups]


def _grpo(group: Group, settings: EstimatorSettings) -> GroupCredit:
    if settings.baseline_per_agent:
        return grpo_per_agent_credit(
            group.step_rewards,
            group.agents,
            discount=settings.discount,
            scale_by_std=settings.scale_by_std,
            statistics=settings.statistics,
        )
    return grpo_credit(
        group.step_rewards,
        discount=settings.discount,
        scale_by_std=settings.scale_by_std,
        statistics=settings.statistics,
        action_penalties=group.action_penalties,
    )


def _drgrpo(group: Group, settings: EstimatorSettings) -> GroupCredit:
    return drgrpo_credit(
        group.step_rewards,
        discount=settings.discount,
        action_penalties=group.action_penalties,
    )


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
    if settings.baseline_per_agent:
        return gigpo_per_agent_credit(
            group.step_rewards,
            group.anchor_states,
            group.agents,
            discount=settings.discount,
            step_advantage_weight=settings.step_advantage_weight,
            scale_by_std=settings.scale_by_std,
            statistics=settings.statistics,
            similarity=settings.anchor_similarity,
        )
    return gigpo_credit(
        group.step_rewards,
        group.anchor_states,
        discount=settings.discount,
        step_advantage_weight=settings.step_advantage_weight,
        scale_by_std=settings.scale_by_std,
        statistics=settings.statistics,
        similarity=settings.anchor_similarity,
        action_penalties=group.action_penalties,
    )


def _hgpo(group: Group, settings: EstimatorSettings) -> GroupCredit:
    return hgpo_credit(
        group.step_rewards,
        group.anchor_states,
        discount=settings.discount,
        history_length=settings.history_length,
        history_weight_exponent=settings.history_weight_exponent,
        history_form=settings.history_form,
        scale_by_std=settings.scale_by_std,
        action_penalties=group.action_penalties,
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
        action_penalties=group.action_penalties,
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
        num_action_tokens=[tokens for group in groups for tokens in group.num_action_tokens],
    )
    return _by_group(credits, groups)


def _imitation(group: Group, settings: EstimatorSettings) -> GroupCredit:
    return imitation_credit(
        group.step_rewards, weight=settings.demonstration_weight, discount=settings.discount
    )


def _by_group(credits: Sequence[EpisodeCredit], groups: Sequence[Group]) -> list[GroupCredit]:
    remaining = iter(credits)
    return [tuple(islice(remaining, len(group.step_rewards))) for group in groups]


ESTIMATORS: Mapping[str, Estimator] = {
    "gigpo": Estimator(
        compute=_per_group(_gigpo),
        summary="GiGPO: the episodes of the group, and the group's steps from the same state",
        reads=(
            "scale_by_std",
            "statistics",
            "baseline_per_agent",
            "step_advantage_weight",
            "anchor_similarity",
        ),
        penalises_actions=True,
    ),
    "grpo": Estimator(
        compute=_per_group(_grpo),
        summary="GRPO: the mean return of the group",
        reads=("scale_by_std", "statistics", "baseline_per_agent"),
        penalises_actions=True,
    ),
    "drgrpo": Estimator(
        compute=_per_group(_drgrpo),
        summary="Dr.GRPO: the mean return of the group, not divided by the standard deviation",
        reads=("scale_by_std",),  # it divides by nothing, so `false` repeats what it does
        penalises_actions=True,
        loss_units=("token", "fixed_token"),  # it leaves out lengths
    ),
    "rloo": Estimator(
        compute=_per_group(_rloo),
        summary="RLOO: the mean return of the group's other episodes",
        reads=("scale_by_std",),  # as drgrpo
    ),
    "reinforce_plus_plus": Estimator(
        compute=_reinforce_plus_plus,
        compares_training_step=True,
        summary="REINFORCE++: the steps of the whole training step",
        reads=("whiten",),
        compares_episodes=False,
    ),
    "reinforce_plus_plus_baseline": Estimator(
        compute=_reinforce_plus_plus_baseline,
        compares_training_step=True,
        summary="REINFORCE++ with the mean return of the group as its baseline",
        reads=("whiten",),
    ),
    "hgpo": Estimator(
        compute=_per_group(_hgpo),
        summary="HGPO: the group's steps from the same state with the same past",
        reads=("scale_by_std", "history_length", "history_weight_exponent", "history_form"),
        penalises_actions=True,
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
        penalises_actions=True,
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
        compares_training_step=True,
        summary="GAE: the values of a critic that is trained too (PPO)",
        reads=("whiten", "gae_level", "gae_lambda"),
        compares_episodes=False,
        needs_critic=True,
    ),
}
"""Every built-in estimator by its `algorithm.name`."""

IMITATION = Estimator(
    compute=_per_group(_imitation),
    summary="no comparison: the replies of stored episodes are imitated",
    reads=("demonstration_weight",),
    compares_episodes=False,
)
"""What stands in an estimator's place in a run with `[[imitation.sources]]`."""
