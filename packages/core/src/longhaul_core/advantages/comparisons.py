"""How much better an episode did than its group, and a step than others like it.

Shapes: G episodes of the group, N steps of all of them, K step groups.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from longhaul_core.advantages.arguments import check_choice
from longhaul_core.advantages.credit import EpisodePart, FloatArray, IntArray, Statistics

EPSILON = 1e-6
"""Added to a standard deviation before dividing, as verl and verl-agent have it."""


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


def number_by_first(keys: Sequence[Hashable]) -> IntArray:
    """Numbers from 0 on, the same for equal keys, in the order in which keys first appear."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def step_advantages(
    returns_N: FloatArray, group_N: IntArray, *, scale_by_std: bool, ddof: int = 1
) -> FloatArray:
    """How much better each step's future was than that of its step group, shape (N,).

    Sums to zero over each step group; exactly zero where a group's returns are equal
    or a step is alone.

    Args:
        returns_N: Return-to-go of each step.
        group_N: The step group of each step, numbered from 0 to K - 1 without gaps.
        scale_by_std: Divide by the group's standard deviation + 1e-6.
        ddof: Subtracted from the group's size in that deviation; 1 for the sample's.
    """
    size_K = np.bincount(group_N)
    # Measured from one member, equal returns are exactly 0 whatever their rounding.
    _, first_K = np.unique(group_N, return_index=True)
    offsets_N = returns_N - returns_N[first_K][group_N]
    centered_N = offsets_N - (np.bincount(group_N, weights=offsets_N) / size_K)[group_N]
    if not scale_by_std:
        return centered_N
    squares_K = np.bincount(group_N, weights=centered_N**2)
    std_K = np.sqrt(squares_K / np.maximum(size_K - ddof, 1))
    return centered_N / (std_K + EPSILON)[group_N]
