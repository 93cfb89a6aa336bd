"""GRPO: the other attempts at a task are the baseline of each attempt.

Shapes: G episodes of the group, N steps of all of them.
"""

from collections.abc import Sequence

import numpy as np

from longhaul_core.advantages.arguments import check_choice
from longhaul_core.advantages.credit import (
    EpisodeCredit,
    EpisodePart,
    FloatArray,
    IntArray,
    Statistics,
    check_group,
    joined_penalties,
    two_part_credit,
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
    action_penalties: Sequence[FloatArray] = (),
) -> tuple[EpisodeCredit, ...]:
    r"""Credit of each episode of one group; every step of an episode gets the same.

        A_i = (R_i - mean(R)) / (std(R) + 1e-6)        R_i = sum_t r_{i,t}

    With `action_penalties`, of `R_i - penalty_{i,t}` in the place of `R_i`.

    Args:
        step_rewards: Rewards of each episode's steps, for the group's episodes that did
            not fail, in the environment's units.
        discount: Per step, in [0, 1]; for `returns_to_go` only, which GRPO reports and
            does not use.
        scale_by_std: False leaves the division out, so that a group whose returns hardly
            differ does not count as much as an informative one; see `drgrpo_credit`.
        statistics: What mean and deviation are taken over; see `Statistics`.
        action_penalties: For each step what it alone is lowered by; see `episode_part`.

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
    part = episode_part(
        step_rewards,
        joined_penalties(action_penalties, step_rewards),
        scale_by_std=scale_by_std,
        statistics=statistics,
    )
    return two_part_credit(
        part,
        np.zeros_like(part.steps_N),
        returns_to_go(step_rewards, discount=discount),
        step_weight=0.0,
    )


def episode_part(
    step_rewards: Sequence[FloatArray],
    penalties_N: FloatArray | None,
    *,
    scale_by_std: bool,
    statistics: Statistics,
) -> EpisodePart:
    """How much better each step's episode did than its group.

    A penalty lowers one step's copy of its episode's return, and no other step's. Mean and
    deviation are then over these copies, each with the weight 1 (`"row"`), or one over its
    episode's length (`"episode"`, so that each episode still counts once).

    Args:
        step_rewards: Rewards of each episode's steps.
        penalties_N: What each step alone is lowered by; None for nothing.
        scale_by_std: Divide by the sample standard deviation + 1e-6.
        statistics: See `Statistics`.

    Raises:
        ValueError: If `statistics` is no `Statistics`.

    Source:
        `apply_invalid_action_penalty` of verl-agent, which GraphGPO's released trainer has too.
    """
    returns_G = np.array([rewards.sum() for rewards in step_rewards])
    num_steps_G = np.array([len(rewards) for rewards in step_rewards])
    if penalties_N is None:
        episodes_G = episode_advantages(
            returns_G, num_steps_G, scale_by_std=scale_by_std, statistics=statistics
        )
        return EpisodePart(episodes_G, np.repeat(episodes_G, num_steps_G))
    check_choice(statistics, Statistics, name="statistics")
    by_row = statistics == "row"
    weights_G = np.ones(len(num_steps_G)) if by_row else 1.0 / num_steps_G
    weights_N = np.repeat(weights_G, num_steps_G)
    total = len(weights_N) if by_row else len(num_steps_G)
    copies_N = np.repeat(returns_G - returns_G[0], num_steps_G) - penalties_N
    # Measured from one member, equal copies are exactly 0 whatever their rounding.
    offsets_N = copies_N - copies_N[0]
    centered_N = offsets_N - (weights_N * offsets_N).sum() / total
    variance = (weights_N * centered_N**2).sum() / (total - 1)
    divisor = np.sqrt(variance) + EPSILON if scale_by_std else 1.0
    first_G = np.cumsum(num_steps_G) - num_steps_G
    return EpisodePart(
        (centered_N + penalties_N)[first_G] / divisor,
        centered_N / divisor,
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
