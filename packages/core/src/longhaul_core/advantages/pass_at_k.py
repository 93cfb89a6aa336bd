"""pass@k: an attempt is worth what it adds to the best of k attempts.

Trained on single attempts, a policy gives up tasks that it solves rarely. Here the
objective is the expected *best* return of k attempts, and an attempt is credited only
where it beats the others it is drawn with.

Shapes: G episodes of the group, sorted by return.
"""

from collections.abc import Sequence
from math import comb

import numpy as np
from pydantic import Field

from longhaul_core.advantages.comparisons import EPSILON
from longhaul_core.advantages.credit import (
    EpisodeCredit,
    FloatArray,
    check_group,
    whole_episode_credit,
)
from longhaul_core.advantages.estimator import Estimator, Group, GroupCredit, Scaled, per_group
from longhaul_core.advantages.returns import returns_to_go
from longhaul_core.errors import GroupError


def pass_at_k_credit(
    step_rewards: Sequence[FloatArray],
    *,
    k: int | None = None,
    scale_by_std: bool = True,
    discount: float = 1.0,
) -> tuple[EpisodeCredit, ...]:
    r"""Credit of each episode of one group; every step of an episode gets the same.

        A_i = mean over sets S of k - 1 other episodes of  max(0, R_i - max_{j in S} R_j)

    that is, the best return with the episode less the best without it. With k = G there is
    one set, so only the best episode is credited, by its lead over the second. In order of
    return, R_(0) <= R_(1) <= ..., the mean over sets is

        A_(i) = sum_{j < i} (R_(i) - R_(j)) * C(j, k - 2) / C(G - 1, k - 1)

    because j is the best of a set if the other k - 2 lie below it.

    Args:
        step_rewards: Rewards of each episode's steps, for the group's episodes that did
            not fail, in the environment's units.
        k: Attempts of which the best counts, from 2 to G; None takes G.
        scale_by_std: Divide by the sample standard deviation (ddof 1) of the group's
            returns + 1e-6; the papers do not.
        discount: Per step, in [0, 1]; for the reported `returns_to_go` only.

    Returns:
        One credit per episode, in the order given. Advantages are never negative, do not
        sum to zero, and are exactly zero if no episode leads.

    Raises:
        GroupError: If there are fewer than 2 episodes, or fewer than `k`.
        ValueError: If `k` is less than 2, a reward is not finite, an episode is empty or
            `discount` is out of range.

    Source:
        Tang et al. 2025, Optimizing Language Models for Inference Time Objectives,
        arXiv:2503.19595 (k = G, leave-one-out); Walder & Karkhanis 2025, Pass@K Policy
        Optimization, arXiv:2505.15201 (any k up to G, baseline over k - 1 others).
    """
    check_group(step_rewards)
    size = len(step_rewards)
    chosen = size if k is None else k
    if chosen < 2:
        raise ValueError(f"k must be at least 2, got {chosen}; k = 1 is rloo_credit's objective")
    if chosen > size:
        raise GroupError(f"pass@k with k = {chosen} needs {chosen} trajectories, got {size}")
    returns_G = np.array([rewards.sum() for rewards in step_rewards])
    order_G = np.argsort(returns_G, kind="stable")
    sorted_G = returns_G[order_G]
    num_sets = comb(size - 1, chosen - 1)
    best_of_set_G = np.array([comb(j, chosen - 2) / num_sets for j in range(size)])
    leads_GG = np.tril(sorted_G[:, None] - sorted_G[None, :])
    advantages_G = np.empty(size)
    advantages_G[order_G] = leads_GG @ best_of_set_G
    if scale_by_std:
        advantages_G /= np.std(returns_G, ddof=1) + EPSILON
    return whole_episode_credit(advantages_G, returns_to_go(step_rewards, discount=discount))


class PassAtKSettings(Scaled):
    """What pass@k reads."""

    pass_k: int | None = Field(default=None, ge=2)
    """The k, at most `rollout.group_size`; left out, all episodes of the group that did not fail.
    A group with fewer is left out."""


def _pass_at_k(group: Group, settings: PassAtKSettings) -> GroupCredit:
    return pass_at_k_credit(
        group.step_rewards,
        k=settings.pass_k,
        scale_by_std=settings.scale_by_std,
        discount=settings.discount,
    )


ESTIMATORS = {
    "pass_at_k": Estimator(
        compute=per_group(_pass_at_k),
        summary="pass@k: the best of k - 1 other episodes of the group",
        settings=PassAtKSettings,
    ),
}
