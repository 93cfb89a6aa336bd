"""HGPO: steps compared in the same state, and the more so the more of their past agrees.

GiGPO compares all steps taken in one state, though their prompts show different pasts.
HGPO forms such step groups at every depth of the past, and averages what they say, with
more weight on the deeper and smaller ones.

Shapes: N steps of all the group's episodes.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from longhaul_core.advantages.arguments import LARGEST, check_choice
from longhaul_core.advantages.comparisons import number_by_first, step_advantages
from longhaul_core.advantages.credit import (
    EpisodeCredit,
    FloatArray,
    check_group,
    check_one_per_step,
    joined_penalties,
    step_credit,
)
from longhaul_core.advantages.estimator import Estimator, Group, GroupCredit, Scaled, per_group
from longhaul_core.advantages.returns import returns_to_go

HistoryForm = Literal["paper", "code"]
"""`"paper"`: weights `(k + 1)^alpha`, the sample's deviation, every comparison counts.

`"code"`: as its authors' code, which its numbers came of: weights `(k + 2)^alpha`, the deviation
over n, and a comparison counts unless the step's return is the mean of it.
"""

ROUNDING = 1e-9
"""A return this near to a mean, in units of 1 and of its size, is the mean: float32, in which the
authors' code compares them, tells no more."""


def hgpo_credit(  # noqa: PLR0913  what an estimator reads
    step_rewards: Sequence[FloatArray],
    anchor_states: Sequence[Sequence[str]],
    *,
    discount: float,
    history_length: int = 2,
    history_weight_exponent: float = 1.0,
    history_form: HistoryForm = "paper",
    scale_by_std: bool = True,
    action_penalties: Sequence[FloatArray] = (),
) -> tuple[EpisodeCredit, ...]:
    r"""Credit of each episode of one group of attempts at one task.

        A_{i,t} = sum_k w_k A^(k)_{i,t} / sum_k w_k        w_k = (k + 1)^exponent

    over the depths k = 0 ... K at which the step has company. `A^(k)` compares the step's
    discounted return-to-go, `(R_{i,t} - mean) / (std + 1e-6)`, with those of the group's
    steps that share its state and the k states before it; a step with fewer than k steps
    before it is in no group of depth k. With K = 0 this is GiGPO's step part.

    The authors' code differs in three points, which `history_form="code"` has: weights that count
    the present state too, w_k = (k + 2)^exponent; the deviation over n (ddof 0); and a depth at
    which the step's advantage is 0 is left out, as one without company.

    Args:
        step_rewards: Rewards of each episode's steps, for the group's episodes that did
            not fail, in the environment's units.
        anchor_states: For each step the state it was taken in; equal strings are one state.
        discount: Per step, in [0, 1].
        history_length: The paper's K, at least 0: how many past states are looked at; as
            many as the memory shows.
        history_weight_exponent: The paper's alpha, at least 0; 0 weighs every depth alike. The
            greatest weight, (K + 1)^alpha or (K + 2)^alpha, is at most 1e100.
        history_form: See `HistoryForm`.
        scale_by_std: Divide by the sample standard deviation; False does not divide.
        action_penalties: For each step what its own return is lowered by, and no other step's, in
            the environment's units; empty for nothing.

    Returns:
        One credit per episode, in the order given, with a step part alone. A step whose
        state nobody else met has advantage 0.

    Raises:
        GroupError: If there are fewer than 2 episodes.
        ValueError: If anchors and rewards differ in number, a reward is not finite, an
            episode is empty, or another argument is out of range.

    Source:
        He et al. 2026, Hierarchy-of-Groups Policy Optimization, arXiv:2602.22817.
    """
    check_group(step_rewards)
    check_one_per_step(step_rewards, anchor_states, of="anchor state")
    if history_length < 0:
        raise ValueError(f"history_length must not be negative, got {history_length}")
    check_choice(history_form, HistoryForm, name="history_form")
    first_weight = 2.0 if history_form == "code" else 1.0
    deepest = history_length + first_weight
    greatest = math.log(LARGEST) / math.log(deepest) if deepest > 1 else math.inf
    if not 0.0 <= history_weight_exponent <= greatest or math.isinf(history_weight_exponent):
        raise ValueError(
            f"history_weight_exponent must be finite and not negative, and with history_length = "
            f"{history_length} at most {greatest:.1f}, got {history_weight_exponent}"
        )
    to_go = returns_to_go(step_rewards, discount=discount)
    returns_N = np.concatenate(to_go)
    penalties_N = joined_penalties(action_penalties, step_rewards)
    if penalties_N is not None:
        returns_N = returns_N - penalties_N
    total_N = np.zeros_like(returns_N)
    weight_N = np.zeros_like(returns_N)
    for depth in range(history_length + 1):
        group_N = number_by_first(_contexts(anchor_states, depth=depth))
        advantages_N = step_advantages(
            returns_N, group_N, scale_by_std=scale_by_std, ddof=0 if history_form == "code" else 1
        )
        counts_N = np.bincount(group_N)[group_N] > 1
        if history_form == "code":
            centered_N = step_advantages(returns_N, group_N, scale_by_std=False)
            counts_N &= np.abs(centered_N) > ROUNDING * (1.0 + np.abs(returns_N))
        weights_N = (depth + first_weight) ** history_weight_exponent * counts_N
        total_N += weights_N * advantages_N
        weight_N += weights_N
    return step_credit(total_N / np.where(weight_N > 0, weight_N, 1.0), to_go)


def _contexts(anchor_states: Sequence[Sequence[str]], *, depth: int) -> list[Hashable]:
    """What a step must share to be in a step group: its state and the `depth` before it.

    A step without so much past gets a context of its own.
    """
    return [
        tuple(states[step - depth : step + 1]) if step >= depth else (episode, step)
        for episode, states in enumerate(anchor_states)
        for step in range(len(states))
    ]


class HgpoSettings(Scaled):
    """What HGPO reads."""

    history_length: int = Field(default=2, ge=0)
    """Past states (K) that are compared, as many as the memory shows."""
    history_weight_exponent: float = Field(default=1.0, ge=0)
    """How much more a comparison of steps weighs that share more of the past (alpha); 0 weighs all
    alike."""
    history_form: HistoryForm = "paper"
    """HGPO as in its paper; or as in its authors' code, where the weights are (k + 2)^alpha for
    (k + 1)^alpha, deviations are over n, and comparisons with a mean that is the step's own return
    are left out."""


def _hgpo(group: Group, settings: HgpoSettings) -> GroupCredit:
    return hgpo_credit(
        group.step_rewards,
        group.anchor_states,
        discount=settings.discount,
        history_length=settings.history_length,
        history_weight_exponent=settings.history_weight_exponent,
        history_form=settings.history_form,
        scale_by_std=settings.scale_by_std,
        action_penalties=group.action_penalties,
    )


ESTIMATORS = {
    "hgpo": Estimator(
        compute=per_group(_hgpo),
        summary="HGPO: the group's steps from the same state with the same past",
        settings=HgpoSettings,
        penalises_actions=True,
    ),
}
