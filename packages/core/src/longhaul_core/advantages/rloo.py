"""RLOO: the baseline of an attempt is the mean of the *other* attempts.

Shapes: G episodes of the group.
"""

from collections.abc import Sequence

import numpy as np

from longhaul_core.advantages.credit import (
    EpisodeCredit,
    FloatArray,
    check_group,
    whole_episode_credit,
)
from longhaul_core.advantages.estimator import Estimator, Group, GroupCredit, Scaled, per_group
from longhaul_core.advantages.returns import returns_to_go


def rloo_credit(
    step_rewards: Sequence[FloatArray], *, discount: float = 1.0
) -> tuple[EpisodeCredit, ...]:
    r"""Credit of each episode of one group; every step of an episode gets the same.

        A_i = R_i - mean_{j != i} R_j = G / (G - 1) * (R_i - mean(R))        R_i = sum_t r_{i,t}

    An episode is left out whole: leaving out one of its steps alone, as an implementation
    over rows does, would keep the episode in its own baseline.

    Args:
        step_rewards: Rewards of each episode's steps, for the group's episodes that did
            not fail, in the environment's units.
        discount: Per step, in [0, 1]; for the reported `returns_to_go` only.

    Returns:
        One credit per episode, in the order given; the advantages sum to zero, and are
        exactly zero if all returns are equal.

    Raises:
        GroupError: If there are fewer than 2 episodes.
        ValueError: If a reward is not finite, an episode is empty or `discount` is out of range.

    Source:
        Kool et al. 2019, Buy 4 REINFORCE Samples, Get a Baseline for Free;
        Ahmadian et al. 2024, Back to Basics, arXiv:2402.14740, section 2.2.
    """
    check_group(step_rewards)
    returns_G = np.array([rewards.sum() for rewards in step_rewards])
    # Measured from one member, equal returns are exactly 0 whatever their rounding.
    offsets_G = returns_G - returns_G[0]
    others_G = (offsets_G.sum() - offsets_G) / (len(offsets_G) - 1)
    return whole_episode_credit(
        offsets_G - others_G, returns_to_go(step_rewards, discount=discount)
    )


def _rloo(group: Group, settings: Scaled) -> GroupCredit:
    return rloo_credit(group.step_rewards, discount=settings.discount)


ESTIMATORS = {
    "rloo": Estimator(
        compute=per_group(_rloo),
        summary="RLOO: the mean return of the group's other episodes",
        settings=Scaled,
    ),
}
