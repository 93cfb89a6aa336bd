"""The critic's loss.

Shapes: B rows, T tokens of the longest reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


class ValueLoss(NamedTuple):
    """The loss, and what it is watched by; each a sum over the weights."""

    loss: torch.Tensor
    clipped: torch.Tensor
    """Weight of the tokens at which the clipped value is further off, so that it gains nothing."""


def value_loss(
    values_BT: torch.Tensor,
    *,
    old_values_BT: torch.Tensor,
    targets_BT: torch.Tensor,
    weights_BT: torch.Tensor,
    clip_range: float | None,
) -> ValueLoss:
    r"""Half the squared error of a critic, as PPO clips it.

        L = sum w * max((V - G)^2, (V_c - G)^2) / 2     V_c = V_old + clip(V - V_old, -c, c)

    Args:
        values_BT: The critic's values now (V).
        old_values_BT: Its values before the training step (V_old).
        targets_BT: Value targets, the lambda-returns (G), in the environment's units.
        weights_BT: Weight of each token (w); 0 leaves it out, whatever it holds.
        clip_range: How far a value gains by going (c), above 0; None sets no limit.

    Source:
        Schulman et al. 2017, PPO, arXiv:1707.06347, as its authors' code clips values.
    """
    counted_BT = weights_BT > 0
    errors_BT = (values_BT - targets_BT).where(counted_BT, 0.0).square()
    worst_BT = errors_BT
    if clip_range is not None:
        near_BT = old_values_BT + (values_BT - old_values_BT).clamp(-clip_range, clip_range)
        clipped_BT = (near_BT - targets_BT).where(counted_BT, 0.0).square()
        worst_BT = errors_BT.maximum(clipped_BT)
    return ValueLoss(
        loss=(weights_BT * worst_BT).sum() / 2,
        clipped=(weights_BT * (worst_BT > errors_BT)).sum(),
    )
