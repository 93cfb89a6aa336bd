"""The clipped policy loss (PPO) over weighted tokens.

The loss is `Σ weight · token loss`. The weights are computed once for all the episodes
of an optimizer step (`longhaul_core.advantages.loss_weights`), so padding, micro-batches
and the way an episode was cut into rows cannot change the gradient.

Shapes: B rows, T tokens of the reply, right-padded.
"""

from typing import NamedTuple

import torch

MAX_LOG_RATIO = 20.0
"""Log ratios are bounded before the exponential; such tokens are clipped anyway."""


class PolicyLoss(NamedTuple):
    """A loss to differentiate, and what to watch."""

    loss: torch.Tensor
    """Scalar: the weighted sum over the given tokens."""
    clipped_weight: torch.Tensor
    """Weight of the tokens where clipping was active: a share, if the weights add up to 1."""
    divergence: torch.Tensor
    """Weighted mean of log π_old − log π."""


def clipped_policy_loss(
    *,
    policy_logprobs_BT: torch.Tensor,
    old_logprobs_BT: torch.Tensor,
    advantages_BT: torch.Tensor,
    loss_weights_BT: torch.Tensor,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
) -> PolicyLoss:
    """PPO's clipped loss with a lower bound for negative advantages.

    With the ratio r = π / π_old, per token:

        L = −min(r A, clip(r, 1 − clip_low, 1 + clip_high) A),
        and for A < 0 at most −dual_clip · A.

    Args:
        policy_logprobs_BT: Natural log, under the policy that is trained; carries the gradient.
        old_logprobs_BT: Natural log, under the policy before this training step's updates.
        advantages_BT: Advantage of each token's action.
        loss_weights_BT: Weight of each token; 0 on padding and on what is not trained.
        clip_low: In (0, 1).
        clip_high: Above 0; larger than `clip_low` for clip-higher (DAPO).
        dual_clip: Above 1.

    Raises:
        ValueError: If the shapes differ.

    Source: Schulman et al., 2017, arXiv:1707.06347, eq. 7; dual clip: Ye et al., 2020,
    arXiv:1912.09729, eq. 5; clip-higher: Yu et al., 2025, arXiv:2503.14476, eq. 10.
    """
    shapes = {
        tuple(tensor.shape)
        for tensor in (policy_logprobs_BT, old_logprobs_BT, advantages_BT, loss_weights_BT)
    }
    if len(shapes) != 1:
        raise ValueError(f"logprobs, advantages and weights differ in shape: {sorted(shapes)}")
    # Padding may hold anything; a weight of 0 must not meet an infinity.
    counted_BT = loss_weights_BT > 0
    log_ratio_BT = torch.where(counted_BT, policy_logprobs_BT - old_logprobs_BT, 0.0)
    log_ratio_BT = log_ratio_BT.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio_BT = log_ratio_BT.exp()
    plain_BT = -advantages_BT * ratio_BT
    clipped_BT = -advantages_BT * ratio_BT.clamp(1.0 - clip_low, 1.0 + clip_high)
    token_loss_BT = torch.maximum(plain_BT, clipped_BT)
    bounded_BT = torch.minimum(token_loss_BT, -advantages_BT * dual_clip)
    token_loss_BT = torch.where(advantages_BT < 0, bounded_BT, token_loss_BT)
    active_BT = token_loss_BT.detach() != plain_BT.detach()
    return PolicyLoss(
        loss=(loss_weights_BT * token_loss_BT).sum(),
        clipped_weight=(loss_weights_BT * active_BT).sum(),
        divergence=-(loss_weights_BT * log_ratio_BT.detach()).sum(),
    )
