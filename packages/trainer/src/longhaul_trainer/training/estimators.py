"""From `algorithm.name` to the function that credits a training step.

Every estimator has the same shape here: all groups of a training step in, one credit per
episode of each group out. Most compare inside a group; REINFORCE++ takes its statistics
over all of them, so its unit is the training step.

Nothing here knows about verl.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from longhaul_core.advantages import EpisodeCredit
from longhaul_core.advantages.drgrpo import drgrpo_credit
from longhaul_core.advantages.gae_credit import gae_credit
from longhaul_core.advantages.gigpo import gigpo_credit
from longhaul_core.advantages.graphgpo import GraphSettings, graphgpo_credit
from longhaul_core.advantages.grpo import grpo_credit
from longhaul_core.advantages.hgpo import hgpo_credit
from longhaul_core.advantages.pass_at_k import pass_at_k_credit
from longhaul_core.advantages.reinforce import (
    reinforce_plus_plus_baseline_credit,
    reinforce_plus_plus_credit,
)
from longhaul_core.advantages.remax import remax_credit
from longhaul_core.advantages.rloo import rloo_credit
from longhaul_core.errors import GroupError
from longhaul_trainer.config.learning import (
    COMPARES_NO_EPISODES,
    AlgorithmConfig,
    EstimatorName,
)


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
    """What the critic said before each token of each step's action; None without one."""
    final_values: Sequence[float | None] | None = None
    """What it said of each episode's final observation, None for one that terminated; None
    without a critic."""


GroupCredit = tuple[EpisodeCredit, ...]
"""Credit of a group's episodes, in their order."""

Estimator = Callable[[Sequence[Group], AlgorithmConfig], list[GroupCredit]]


def estimate(groups: Sequence[Group], algorithm: AlgorithmConfig) -> list[GroupCredit]:
    """Credit of every group of a training step, in the order given.

    Raises:
        GroupError: If a group has fewer episodes than `smallest_group`, or lacks the greedy
            episode that it is to be compared with.
    """
    return ESTIMATORS[algorithm.name](groups, algorithm) if groups else []


def smallest_group(algorithm: AlgorithmConfig) -> int:
    """Fewest episodes that can be credited: two to compare, or as many as pass@k draws.

    One is enough where the baseline does not come from the others.
    """
    if algorithm.name in COMPARES_NO_EPISODES:
        return 1
    return max(2, algorithm.pass_k or 0)


def _per_group(credit: Callable[[Group, AlgorithmConfig], GroupCredit]) -> Estimator:
    """An estimator that compares inside each group alone."""
    return lambda groups, algorithm: [credit(group, algorithm) for group in groups]


def _grpo(group: Group, algorithm: AlgorithmConfig) -> GroupCredit:
    return grpo_credit(
        group.step_rewards,
        discount=algorithm.discount,
        scale_by_std=algorithm.scale_by_std,
        statistics=algorithm.statistics,
    )


def _drgrpo(group: Group, algorithm: AlgorithmConfig) -> GroupCredit:
    return drgrpo_credit(group.step_rewards, discount=algorithm.discount)


def _rloo(group: Group, algorithm: AlgorithmConfig) -> GroupCredit:
    return rloo_credit(group.step_rewards, discount=algorithm.discount)


def _pass_at_k(group: Group, algorithm: AlgorithmConfig) -> GroupCredit:
    return pass_at_k_credit(
        group.step_rewards,
        k=algorithm.pass_k,
        scale_by_std=algorithm.scale_by_std,
        discount=algorithm.discount,
    )


def _gigpo(group: Group, algorithm: AlgorithmConfig) -> GroupCredit:
    return gigpo_credit(
        group.step_rewards,
        group.anchor_states,
        discount=algorithm.discount,
        step_advantage_weight=algorithm.step_advantage_weight,
        scale_by_std=algorithm.scale_by_std,
        statistics=algorithm.statistics,
        similarity=algorithm.anchor_similarity,
    )


def _hgpo(group: Group, algorithm: AlgorithmConfig) -> GroupCredit:
    return hgpo_credit(
        group.step_rewards,
        group.anchor_states,
        discount=algorithm.discount,
        history_length=algorithm.history_length,
        history_weight_exponent=algorithm.history_weight_exponent,
        scale_by_std=algorithm.scale_by_std,
    )


def _graphgpo(group: Group, algorithm: AlgorithmConfig) -> GroupCredit:
    return graphgpo_credit(
        group.step_rewards,
        group.anchor_states,
        group.final_states,
        settings=GraphSettings(
            distance_decay=algorithm.distance_decay,
            distance_form=algorithm.distance_form,
            step_advantage_weight=algorithm.step_advantage_weight,
            episode_advantage_weight=algorithm.episode_advantage_weight,
            similarity=algorithm.anchor_similarity,
        ),
        discount=algorithm.discount,
        scale_by_std=algorithm.scale_by_std,
        statistics=algorithm.statistics,
    )


def _remax(group: Group, algorithm: AlgorithmConfig) -> GroupCredit:
    if group.greedy_rewards is None:
        raise GroupError(f"group {group.name!r} has no greedy episode to be compared with")
    return remax_credit(
        group.step_rewards,
        greedy_return=float(group.greedy_rewards.sum()),
        discount=algorithm.discount,
    )


def _reinforce_plus_plus(groups: Sequence[Group], algorithm: AlgorithmConfig) -> list[GroupCredit]:
    credits = reinforce_plus_plus_credit(
        [rewards for group in groups for rewards in group.step_rewards],
        [counts for group in groups for counts in group.num_action_tokens],
        discount=algorithm.discount,
        whiten=algorithm.whiten,
    )
    return _by_group(credits, groups)


def _reinforce_plus_plus_baseline(
    groups: Sequence[Group], algorithm: AlgorithmConfig
) -> list[GroupCredit]:
    credits = reinforce_plus_plus_baseline_credit(
        [rewards for group in groups for rewards in group.step_rewards],
        [counts for group in groups for counts in group.num_action_tokens],
        [group.name for group in groups for _ in group.step_rewards],
        discount=algorithm.discount,
        whiten=algorithm.whiten,
    )
    return _by_group(credits, groups)


def _gae(groups: Sequence[Group], algorithm: AlgorithmConfig) -> list[GroupCredit]:
    credits = gae_credit(
        [rewards for group in groups for rewards in group.step_rewards],
        [values for group in groups for values in group.token_values or ()],
        [value for group in groups for value in group.final_values or ()],
        level=algorithm.gae_level,
        discount=algorithm.discount,
        gae_lambda=algorithm.gae_lambda,
        whiten=algorithm.whiten,
    )
    return _by_group(credits, groups)


def _by_group(credits: Sequence[EpisodeCredit], groups: Sequence[Group]) -> list[GroupCredit]:
    remaining = iter(credits)
    return [tuple(islice(remaining, len(group.step_rewards))) for group in groups]


ESTIMATORS: Mapping[EstimatorName, Estimator] = {
    "grpo": _per_group(_grpo),
    "drgrpo": _per_group(_drgrpo),
    "rloo": _per_group(_rloo),
    "pass_at_k": _per_group(_pass_at_k),
    "gigpo": _per_group(_gigpo),
    "hgpo": _per_group(_hgpo),
    "graphgpo": _per_group(_graphgpo),
    "remax": _per_group(_remax),
    "reinforce_plus_plus": _reinforce_plus_plus,
    "reinforce_plus_plus_baseline": _reinforce_plus_plus_baseline,
    "gae": _gae,
}
"""Every estimator."""
