"""What a reply counts that is imitated: nothing is compared.

Shapes: G episodes of one task.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from longhaul_core.advantages.credit import (
    EpisodeCredit,
    FloatArray,
    check_rewards,
    whole_episode_credit,
)
from longhaul_core.advantages.returns import returns_to_go
from longhaul_core.errors import GroupError

DemonstrationWeight = Literal["one", "return"]


def imitation_credit(
    step_rewards: Sequence[FloatArray], *, weight: DemonstrationWeight, discount: float = 1.0
) -> tuple[EpisodeCredit, ...]:
    r"""The weight of each demonstration; every step of an episode gets the same.

        A_i = 1, or A_i = R_i with R_i = sum_t r_{i,t}

    The loss is -A_i log pi, so the second is E[r log pi], the learning step of AgentEvol.

    Args:
        step_rewards: Rewards of each episode's steps, in the environment's units; one episode is
            enough.
        weight: Which.
        discount: Per step, in [0, 1]; for the reported `returns_to_go` only.

    Returns:
        One credit per episode, in the order given.

    Raises:
        GroupError: If a return is a weight and negative: the loss would have no lower bound.
        ValueError: If a reward is not finite, an episode is empty or `discount` is out of range.

    Source:
        Xi et al. 2024, AgentGym, arXiv:2406.04151, section 4.2.
    """
    check_rewards(step_rewards)
    weights_G = np.ones(len(step_rewards))
    if weight == "return":
        weights_G = np.array([rewards.sum() for rewards in step_rewards])
        if (weights_G < 0).any():
            raise GroupError(
                f"an episode with the return {weights_G.min():g} cannot be weighed by it: "
                'algorithm.demonstration_weight = "return" takes none below 0; choose episodes '
                'with min_return = 0, or set it to "one"'
            )
    return whole_episode_credit(weights_G, returns_to_go(step_rewards, discount=discount))
