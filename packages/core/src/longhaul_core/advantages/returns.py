"""Returns: what a step's reward stream adds up to.

Shapes: G episodes of a group, S steps in the longest of them.
"""

from collections.abc import Sequence

import numpy as np

from longhaul_core.advantages.arguments import check_fraction
from longhaul_core.advantages.credit import FloatArray, check_finite_rewards


def returns_to_go(step_rewards: Sequence[FloatArray], *, discount: float) -> list[FloatArray]:
    r"""Discounted sum of the rewards from each step to the end of its episode.

        R_t = r_t + discount * R_{t+1},   R_{T} = 0

    Nothing is bootstrapped: a truncated episode is treated as if it had ended.

    Args:
        step_rewards: Rewards of each episode's steps, in the environment's units;
            episodes may differ in length.
        discount: Per *step*, not per token, in [0, 1].

    Returns:
        One array per episode, as long as its rewards.

    Raises:
        ValueError: If `discount` lies outside [0, 1], or a reward is not finite or larger than
            1e100 in size.

    Source:
        Sutton & Barto, Reinforcement Learning (2nd ed., 2018), eq. 3.9.
    """
    check_fraction(discount, name="discount")
    for position, rewards in enumerate(step_rewards):
        check_finite_rewards(rewards, position)
    lengths = [len(rewards) for rewards in step_rewards]
    returns_GS = np.zeros((len(lengths), max(lengths, default=0)))
    for row, rewards in zip(returns_GS, step_rewards, strict=True):
        row[: len(rewards)] = rewards
    # Padding is on the right and zero, so nothing flows out of it into a short episode.
    for step in range(returns_GS.shape[1] - 2, -1, -1):
        returns_GS[:, step] += discount * returns_GS[:, step + 1]
    return [row[:length] for row, length in zip(returns_GS, lengths, strict=True)]
