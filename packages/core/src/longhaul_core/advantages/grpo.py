"""GRPO: the other attempts at a task are the baseline of each attempt.

Shapes: G episodes of the group, N steps of all of them.
"""

from collections.abc import Sequence

import numpy as np

from longhaul_core.advantages.arguments import check_choice
from longhaul_core.advantages.credit import (
    EpisodeCredit,
    FloatArray,
    IntArray,
    Statistics,
    check_group,
    whole_episode_credit,
)
from longhaul_core.advantages.returns import returns_to_go

EPSILON = 1e-6
"""Added to a standard deviation before dividing, as verl and verl-agent have it."""


def grpo_credit(
    step_rewards: Sequence[FloatArray],
    *,
    discount: float = 1.0,
    scale_by_std: bool = True,
    statistics: Statistics = "episode",
) -> tuple[EpisodeCredit, ...]:
    r"""Credit of each episode of one group; every step of an episode gets the same.

        A_i = (R_i - mean(R)) / (std(R) + 1e-6)        R_i = sum_t r_{i,t}

    Args:
        step_rewards: Rewards of each episode's steps, for the group's episodes that did
            not fail, in the environment's units.
        discount: Per step, in [0, 1]; for `returns_to_go` only, which GRPO reports and
            does not use.
        scale_by_std: False leaves the division out, so that a group whose returns hardly
            differ does not count as much as an informative one; see `drgrpo_credit`.
        statistics: What mean and deviation are taken over; see `Statistics`.

    Returns:
        One credit per episode, in the order given.

    Raises:
        GroupError: If there are fewer than 2 episodes.
        ValueError: If a reward is not finite, an episode is empty, `discount` is out of range or
            `statistics` is no `Statistics`.

    Source:
        Shao et al. 2024, DeepSeekMath, arXiv:2402.03300, section 4.1.
    """
    check_group(step_rewards)
    num_steps = [len(rewards) for rewards in step_rewards]
    episode_advantages_G = episode_advantages(
        np.array([rewards.sum() for rewards in step_rewards]),
        np.array(num_steps),
        scale_by_std=scale_by_std,
        statistics=statistics,
    )
    return whole_episode_credit(
        episode_advantages_G, returns_to_go(step_rewards, discount=discount)
    )


def episode_advantages(
    returns_G: FloatArray, num_steps_G: IntArray, *, scale_by_std: bool, statistics: Statistics
) -> FloatArray:
    """How much better each episode did than its group, shape (G,).

    Sums to zero over the episodes with `statistics="episode"`, over the steps with
    `"row"`; exactly zero everywhere if all returns are equal.

    Args:
        returns_G: Undiscounted return of each episode, at least two.
        num_steps_G: Length of each episode, in steps.
        scale_by_std: Divide by the sample standard deviation (ddof 1) + 1e-6.
        statistics: What mean and deviation are taken over; see `Statistics`.

    Raises:
        ValueError: If `statistics` is no `Statistics`.
    """
    check_choice(statistics, Statistics, name="statistics")
    counts_G = num_steps_G if statistics == "row" else np.ones_like(num_steps_G)
    # Measured from one member, equal returns are exactly 0 whatever their rounding.
    offsets_G = returns_G - returns_G[0]
    total = counts_G.sum()
    centered_G = offsets_G - (counts_G * offsets_G).sum() / total
    if not scale_by_std:
        return centered_G
    variance = (counts_G * centered_G**2).sum() / (total - 1)
    return centered_G / (np.sqrt(variance) + EPSILON)
