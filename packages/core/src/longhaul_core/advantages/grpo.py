"""GRPO: the other attempts at a task are the baseline of each attempt.

Shapes: G episodes of the group, N steps of all of them.
"""

from collections.abc import Sequence

import numpy as np

from longhaul_core.advantages.comparisons import episode_part
from longhaul_core.advantages.credit import (
    EpisodeCredit,
    FloatArray,
    Statistics,
    check_group,
    joined_penalties,
    two_part_credit,
)
from longhaul_core.advantages.estimator import (
    Estimator,
    Group,
    GroupCredit,
    PerAgent,
    Scaled,
    WithStatistics,
    per_group,
)
from longhaul_core.advantages.per_agent import grpo_per_agent_credit
from longhaul_core.advantages.returns import returns_to_go


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


class GrpoSettings(Scaled, WithStatistics, PerAgent):
    """What GRPO reads."""


def _grpo(group: Group, settings: GrpoSettings) -> GroupCredit:
    if settings.baseline_per_agent:
        return grpo_per_agent_credit(
            group.step_rewards,
            group.agents,
            discount=settings.discount,
            scale_by_std=settings.scale_by_std,
            statistics=settings.statistics,
        )
    return grpo_credit(
        group.step_rewards,
        discount=settings.discount,
        scale_by_std=settings.scale_by_std,
        statistics=settings.statistics,
        action_penalties=group.action_penalties,
    )


ESTIMATORS = {
    "grpo": Estimator(
        compute=per_group(_grpo),
        summary="GRPO: the mean return of the group",
        settings=GrpoSettings,
        penalises_actions=True,
    ),
}
