"""REINFORCE++: no baseline per task, but one scale for the whole training step.

A deviation over a handful of attempts is noise, and correlated with the returns it divides.
REINFORCE++ takes mean and deviation over *all* episodes of a training step, so these
functions take them all at once; the baseline form subtracts the mean of each task's group
first. A penalty per token (a KL in the reward) belongs into the rewards before they come
here.

Shapes: E episodes of the training step, N steps of all of them.
"""

from collections.abc import Sequence

import numpy as np

from longhaul_core.advantages.comparisons import number_by_first, step_advantages
from longhaul_core.advantages.credit import (
    EpisodeCredit,
    FloatArray,
    check_one_per_step,
    check_rewards,
    step_credit,
    whole_episode_credit,
)
from longhaul_core.advantages.estimator import Estimator, Group, GroupCredit, Whitened, by_group
from longhaul_core.advantages.returns import returns_to_go
from longhaul_core.advantages.whiten import Whiten, step_counts, whitened
from longhaul_core.errors import GroupError


def reinforce_plus_plus_credit(
    step_rewards: Sequence[FloatArray],
    num_action_tokens: Sequence[Sequence[int]],
    *,
    discount: float = 1.0,
    whiten: Whiten = "token",
) -> tuple[EpisodeCredit, ...]:
    r"""Credit of each episode of one training step, whatever its tasks.

        A_{i,t} = (R_{i,t} - mean) / sqrt(variance + 1e-8)
        R_{i,t} = r_{i,t} + discount * R_{i,t+1}

    with mean and variance over all the training step's actions; see `whiten`.

    The discount is per step and not per token, so an action's tokens share their return.

    Args:
        step_rewards: Rewards of each episode's steps, for the episodes that did not fail,
            in the environment's units.
        num_action_tokens: Tokens of each step's action; a step without any moves no
            statistic.
        discount: Per step, in [0, 1].
        whiten: What counts the same in mean and variance; see `Whiten`.

    Returns:
        One credit per episode, in the order given, with a step part alone. Over what
        `whiten` counts the advantages sum to zero.

    Raises:
        ValueError: If token counts and rewards differ in number, a reward is not finite,
            an episode is empty, or `discount` is out of range.

    Source:
        Hu et al. 2025, REINFORCE++, arXiv:2501.03262, section 3; whitening over episodes
        is not in the paper.
    """
    check_rewards(step_rewards)
    check_one_per_step(step_rewards, num_action_tokens, of="token count")
    to_go = returns_to_go(step_rewards, discount=discount)
    counts_N = step_counts(num_action_tokens, whiten=whiten)
    return step_credit(whitened(np.concatenate(to_go), counts_N), to_go)


def reinforce_plus_plus_baseline_credit(
    step_rewards: Sequence[FloatArray],
    num_action_tokens: Sequence[Sequence[int]],
    groups: Sequence[str],
    *,
    discount: float = 1.0,
    whiten: Whiten = "token",
) -> tuple[EpisodeCredit, ...]:
    r"""Credit of each episode of one training step, less the mean of its task.

        B_i = R_i - mean of R over the episode's group        R_i = sum_t r_{i,t}
        A_i = (B_i - mean) / sqrt(variance + 1e-8)

    with mean and variance over all the training step's actions; see `whiten`. No group's
    own deviation is divided by. Every step of an episode gets the same.

    Args:
        step_rewards: Rewards of each episode's steps, for the episodes that did not fail,
            in the environment's units.
        num_action_tokens: Tokens of each step's action; a step without any moves no
            statistic.
        groups: For each episode the name of its group, the attempts at its task.
        discount: Per step, in [0, 1]; for the reported `returns_to_go` only.
        whiten: What counts the same in mean and variance; see `Whiten`.

    Returns:
        One credit per episode, in the order given. Over what `whiten` counts the advantages
        sum to zero; exactly zero everywhere if no group's returns differ.

    Raises:
        GroupError: If a group has fewer than 2 episodes.
        ValueError: As `reinforce_plus_plus_credit`, or if groups and episodes differ in number.

    Source:
        Hu et al. 2025, REINFORCE++, arXiv:2501.03262, section 3 (with baseline); whitening
        over episodes is not in the paper.
    """
    check_rewards(step_rewards)
    check_one_per_step(step_rewards, num_action_tokens, of="token count")
    if len(groups) != len(step_rewards):
        raise ValueError(
            f"one group per episode is required: got {len(step_rewards)} episodes "
            f"and {len(groups)} groups"
        )
    group_E = number_by_first(groups)
    lone = np.flatnonzero(np.bincount(group_E)[group_E] < 2)
    if len(lone):
        raise GroupError(
            f"a group needs at least 2 trajectories to compare, got 1 in group {groups[lone[0]]!r}"
        )
    returns_E = np.array([rewards.sum() for rewards in step_rewards])
    differences_E = step_advantages(returns_E, group_E, scale_by_std=False)
    num_steps = [len(rewards) for rewards in step_rewards]
    counts_N = step_counts(num_action_tokens, whiten=whiten)
    whitened_N = whitened(np.repeat(differences_E, num_steps), counts_N)
    first_E = np.cumsum([0, *num_steps[:-1]])
    return whole_episode_credit(whitened_N[first_E], returns_to_go(step_rewards, discount=discount))


def _reinforce_plus_plus(groups: Sequence[Group], settings: Whitened) -> list[GroupCredit]:
    credits = reinforce_plus_plus_credit(
        [rewards for group in groups for rewards in group.step_rewards],
        [counts for group in groups for counts in group.num_action_tokens],
        discount=settings.discount,
        whiten=settings.whiten,
    )
    return by_group(credits, groups)


def _reinforce_plus_plus_baseline(groups: Sequence[Group], settings: Whitened) -> list[GroupCredit]:
    credits = reinforce_plus_plus_baseline_credit(
        [rewards for group in groups for rewards in group.step_rewards],
        [counts for group in groups for counts in group.num_action_tokens],
        [group.name for group in groups for _ in group.step_rewards],
        discount=settings.discount,
        whiten=settings.whiten,
    )
    return by_group(credits, groups)


ESTIMATORS = {
    "reinforce_plus_plus": Estimator(
        compute=_reinforce_plus_plus,
        compares_training_step=True,
        summary="REINFORCE++: the steps of the whole training step",
        settings=Whitened,
        compares_episodes=False,
    ),
    "reinforce_plus_plus_baseline": Estimator(
        compute=_reinforce_plus_plus_baseline,
        compares_training_step=True,
        summary="REINFORCE++ with the mean return of the group as its baseline",
        settings=Whitened,
    ),
}
