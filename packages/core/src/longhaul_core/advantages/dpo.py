"""Direct preference optimization (DPO) over whole episodes or single steps, as credit.

    L = −(1/P) Σ log σ(m)

over P pairs with the margins m (see `preferences`) has the gradient

    −(1/P) Σ β · σ(−m) · (∇ log π(chosen) − ∇ log π(rejected))

which is that of the negative log-likelihood whose tokens have the advantage `β · σ(−m)` in the
chosen side and `−β · σ(−m)` in the rejected one, if m is that of the weights which the gradient is
taken at. An episode or a step of several pairs has the sum; a step of no pair has 0.

`loss_weights` gives every token of N episodes the weight 1/N where `fixed_token` divides by a
length of 1. So advantages have the factor N/P, and weight times advantage has 1/P.

Source: Rafailov et al., *Direct Preference Optimization* (arXiv:2305.18290); of whole trajectories,
Song et al., *Trial and Error* (ETO, arXiv:2403.02502).

Shapes: G episodes of one task.
"""

from collections.abc import Sequence

import numpy as np

from longhaul_core.advantages.credit import (
    FloatArray,
    check_group,
    step_credit,
    whole_episode_credit,
)
from longhaul_core.advantages.estimator import CommonSettings, Estimator, Group, GroupCredit
from longhaul_core.advantages.preferences import Preferences, Side
from longhaul_core.advantages.returns import returns_to_go


def dpo_credit(groups: Sequence[Group], *, discount: float = 1.0) -> list[GroupCredit]:
    """Credit of all groups of an optimizer step, whose likelihood has DPO's gradient with it.

    Args:
        groups: With `preferences`. A group without a pair has advantages of 0.
        discount: Per step, in [0, 1]; for the reported `returns_to_go` only.

    Raises:
        GroupError: If a group has fewer than two episodes.
        ValueError: If a gain over the reference is missing or not finite, or a reward is not
            finite.
    """
    for group in groups:
        check_group(group.step_rewards)
    pairs = [_preferences(group).pairs(group.step_rewards) for group in groups]
    num_pairs = sum(map(len, pairs))
    num_episodes = sum(sum(counts) > 0 for group in groups for counts in group.num_action_tokens)
    found: list[GroupCredit] = []
    for group, of_group in zip(groups, pairs, strict=True):
        settings = _preferences(group).settings
        pushes = [np.zeros(len(rewards)) for rewards in group.step_rewards]
        for chosen, rejected, margin in of_group:
            push = settings.beta * np.exp(-np.logaddexp(0.0, margin)) * num_episodes / num_pairs
            _add(pushes, chosen, push)
            _add(pushes, rejected, -push)
        to_go = returns_to_go(group.step_rewards, discount=discount)
        found.append(
            step_credit(np.concatenate(pushes), to_go)
            if settings.pairs == "steps"
            else whole_episode_credit(np.array([of_steps[0] for of_steps in pushes]), to_go)
        )
    return found


def _add(pushes: Sequence[FloatArray], side: Side, push: float) -> None:
    pushes[side.episode][slice(None) if side.step is None else side.step] += push


def _preferences(group: Group) -> Preferences:
    if group.preferences is None:
        raise ValueError(f"group {group.name!r} has no gains over the reference to compare")
    return group.preferences


def _dpo(groups: Sequence[Group], settings: CommonSettings) -> list[GroupCredit]:
    return dpo_credit(groups, discount=settings.discount)


DPO = Estimator(
    compute=_dpo,
    summary="pairs of a better and a worse stored episode or step of a task (DPO)",
    loss_units=("fixed_token",),
    compares_training_step=True,
)
"""What stands in an estimator's place where `imitation.loss = "dpo"`; no `ESTIMATORS`, since it
says nothing of what a policy sampled."""
