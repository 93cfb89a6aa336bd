"""ReMax: the baseline of an attempt is what the policy gets when it does its best guess.

Shapes: G episodes of one task.
"""

from collections.abc import Sequence

import numpy as np

from longhaul_core.advantages.arguments import check_numbers
from longhaul_core.advantages.credit import (
    EpisodeCredit,
    FloatArray,
    check_rewards,
    whole_episode_credit,
)
from longhaul_core.advantages.returns import returns_to_go


def remax_credit(
    step_rewards: Sequence[FloatArray], *, greedy_return: float, discount: float = 1.0
) -> tuple[EpisodeCredit, ...]:
    r"""Credit of each episode of one task; every step of an episode gets the same.

        A_i = R_i - R_greedy        R_i = sum_t r_{i,t}

    The baseline does not depend on what was sampled, so the gradient stays unbiased with a
    single episode per task; it costs one greedy episode, which is not trained on.

    Args:
        step_rewards: Rewards of each episode's steps, for the task's sampled episodes that
            did not fail, in the environment's units; one is enough.
        greedy_return: Undiscounted return of a greedy episode of the same task by the same
            weights, in the environment's units.
        discount: Per step, in [0, 1]; for the reported `returns_to_go` only.

    Returns:
        One credit per episode, in the order given.

    Raises:
        ValueError: If a reward or `greedy_return` is not finite, an episode is empty or
            `discount` is out of range.

    Source:
        Li et al. 2023, ReMax, arXiv:2310.10505, section 4.
    """
    check_rewards(step_rewards)
    check_numbers(greedy_return, name="greedy_return")
    returns_G = np.array([rewards.sum() for rewards in step_rewards])
    return whole_episode_credit(
        returns_G - greedy_return, returns_to_go(step_rewards, discount=discount)
    )
