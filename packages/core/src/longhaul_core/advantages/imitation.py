"""What a reply counts that is imitated: nothing is compared.

Shapes: G episodes of one task.
"""

from collections.abc import Sequence

import numpy as np

from longhaul_core.advantages.credit import (
    EpisodeCredit,
    FloatArray,
    check_rewards,
    whole_episode_credit,
)
from longhaul_core.advantages.estimator import (
    CommonSettings,
    Estimator,
    Group,
    GroupCredit,
    per_group,
)
from longhaul_core.advantages.returns import returns_to_go


def imitation_credit(
    step_rewards: Sequence[FloatArray], *, discount: float = 1.0
) -> tuple[EpisodeCredit, ...]:
    """An advantage of 1 for every step of every demonstration.

    A demonstration's weight is the credit share of its calls.

    Args:
        step_rewards: Rewards of each episode's steps, in the environment's units; one episode is
            enough.
        discount: Per step, in [0, 1]; for the reported `returns_to_go` only.

    Returns:
        One credit per episode, in the order given.

    Raises:
        ValueError: If a reward is not finite, an episode is empty or `discount` is out of range.
    """
    check_rewards(step_rewards)
    return whole_episode_credit(
        np.ones(len(step_rewards)), returns_to_go(step_rewards, discount=discount)
    )


def _imitation(group: Group, settings: CommonSettings) -> GroupCredit:
    return imitation_credit(group.step_rewards, discount=settings.discount)


IMITATION = Estimator(
    compute=per_group(_imitation),
    summary="no comparison: the replies of stored episodes are imitated",
    compares_episodes=False,
)
"""What stands in an estimator's place in a run with `[[imitation.sources]]`; no `ESTIMATORS`, since
it says nothing of what a policy sampled."""
