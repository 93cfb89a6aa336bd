"""Dr.GRPO: GRPO without its two divisions.

GRPO divides twice: the advantage by the deviation of the group's returns, which lets tasks
that nearly always succeed or fail count more, and the loss of an episode by its length,
which makes long failures cheap. Dr.GRPO leaves both out. The first is the advantage's, and
is here; the second is a matter of loss weights (`longhaul_core.advantages.loss_weights`):

* `loss_unit="fixed_token"` is the paper's: `1 / (N L)` for every token, with a constant L.
* `loss_unit="token"` is the same up to one factor per optimizer step, since inside a step
  all tokens weigh alike; the factor follows the episodes' mean length.
* `"step"` and `"episode"` divide by a length again, and are not Dr.GRPO.
"""

from collections.abc import Sequence

from longhaul_core.advantages.credit import EpisodeCredit, FloatArray
from longhaul_core.advantages.estimator import Estimator, Group, GroupCredit, Scaled, per_group
from longhaul_core.advantages.grpo import grpo_credit


def drgrpo_credit(
    step_rewards: Sequence[FloatArray],
    *,
    discount: float = 1.0,
    action_penalties: Sequence[FloatArray] = (),
) -> tuple[EpisodeCredit, ...]:
    r"""Credit of each episode of one group; every step of an episode gets the same.

        A_i = R_i - mean(R)        R_i = sum_t r_{i,t}

    It is RLOO's advantage times (G - 1) / G.

    Args:
        step_rewards: Rewards of each episode's steps, for the group's episodes that did
            not fail, in the environment's units.
        discount: Per step, in [0, 1]; for the reported `returns_to_go` only.
        action_penalties: As for `grpo_credit`.

    Returns:
        One credit per episode, in the order given; the advantages sum to zero.

    Raises:
        GroupError: If there are fewer than 2 episodes.
        ValueError: If a reward is not finite, an episode is empty or `discount` is out of range.

    Source:
        Liu et al. 2025, Understanding R1-Zero-Like Training, arXiv:2503.20783, section 3.2.
    """
    return grpo_credit(
        step_rewards,
        discount=discount,
        scale_by_std=False,
        action_penalties=action_penalties,
    )


def _drgrpo(group: Group, settings: Scaled) -> GroupCredit:
    return drgrpo_credit(
        group.step_rewards,
        discount=settings.discount,
        action_penalties=group.action_penalties,
    )


ESTIMATORS = {
    "drgrpo": Estimator(
        compute=per_group(_drgrpo),
        summary="Dr.GRPO: the mean return of the group, not divided by the standard deviation",
        settings=Scaled,
        penalises_actions=True,
        loss_units=("token", "fixed_token"),  # it leaves out lengths
    ),
}
