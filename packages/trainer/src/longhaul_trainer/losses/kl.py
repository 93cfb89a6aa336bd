"""Estimators of the divergence between two policies from sampled tokens.

Shapes: B rows, T tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

KlKind = Literal["k1", "k2", "k3"]

MAX_LOG_RATIO = 20.0
"""Bound of log π_ref − log π before the exponential."""


def kl_estimate(
    policy_logprobs_BT: torch.Tensor, reference_logprobs_BT: torch.Tensor, *, kind: KlKind
) -> torch.Tensor:
    """Estimate of KL(policy ‖ reference) at each token.

    With d = log π_ref − log π at a token that π sampled: `k1 = −d`, `k2 = d² / 2`,
    `k3 = exp(d) − 1 − d`. The mean of k1 and of k3 is the divergence, k3 has the smaller
    variance and is never negative. As a loss, k2's gradient is that of the divergence;
    those of k1 (zero on average) and k3 (the forward divergence's) are not. In the reward it
    is k1 whose policy gradient is that of the divergence: E[∇log π · k1] = ∇KL.

    Args:
        policy_logprobs_BT: Natural log, under the policy that is trained.
        reference_logprobs_BT: Natural log, under the frozen reference.
        kind: Which estimator.

    Source: Schulman, "Approximating KL Divergence", 2020.
    """
    difference_BT = reference_logprobs_BT - policy_logprobs_BT
    if kind == "k1":
        return -difference_BT
    if kind == "k2":
        return 0.5 * difference_BT.square()
    # A token that the reference finds far likelier would overflow. One that it finds far less
    # likely keeps its gradient: there the penalty is needed most.
    difference_BT = difference_BT.clamp(max=MAX_LOG_RATIO)
    return difference_BT.exp() - 1.0 - difference_BT
