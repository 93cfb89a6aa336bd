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
from longhaul_core.advantages.estimator import Estimator, Group, GroupCredit, Scaled, per_group
from longhaul_core.advantages.returns import returns_to_go
from longhaul_core.errors import GroupError


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


def _remax(group: Group, settings: Scaled) -> GroupCredit:
    if group.greedy_rewards is None:
        raise GroupError(f"group {group.name!r} has no greedy episode to be compared with")
    return remax_credit(
        group.step_rewards,
        greedy_return=float(group.greedy_rewards.sum()),
        discount=settings.discount,
    )


ESTIMATORS = {
    "remax": Estimator(
        compute=per_group(_remax),
        summary="ReMax: a greedy episode of the task, played beside the group and not trained",
        settings=Scaled,
        compares_episodes=False,
        needs_greedy_episode=True,
    ),
}
