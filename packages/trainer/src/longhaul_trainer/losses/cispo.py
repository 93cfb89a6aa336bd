"""CISPO: a clipped importance weight before REINFORCE's gradient.

Shapes: B rows, T tokens of the response, right-padded.
"""

from __future__ import annotations

from longhaul_trainer.losses.kind import ClipHigh, ClipLow, LossKind, LossSettings
from longhaul_trainer.losses.tokens import MAX_LOG_RATIO, ActionTokens, PolicyLoss, weighted_sums


def cispo_loss(tokens: ActionTokens, *, clip_low: float, clip_high: float) -> PolicyLoss:
    """CISPO's loss: every token keeps a gradient, with a weight that is bounded.

    With the ratio r = π / π_old, and sg(·) what is kept out of the gradient, per token:

        L = −sg(clip(r, 1 − clip_low, 1 + clip_high)) · A · log π.

    The value of the loss is not the surrogate objective, and is not to be compared with those
    of the other kinds. A token without an advantage counts as not clipped. There is no dual
    clip: the weight is bounded whatever the advantage.

    Args:
        tokens: What is trained.
        clip_low: In (0, 1]; 1 sets no lower bound, as the paper does.
        clip_high: Above 0.

    Source: MiniMax, 2025, arXiv:2506.13585, eq. 4 and 5.
    """
    advantages_BT = tokens.advantages_BT
    log_ratio_BT = tokens.log_ratio_BT().detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio_BT = log_ratio_BT.exp()
    weight_BT = ratio_BT.clamp(1.0 - clip_low, 1.0 + clip_high)
    logprobs_BT = tokens.policy_logprobs_BT.where(tokens.counted_BT(), 0.0)
    return weighted_sums(
        tokens,
        token_loss_BT=-weight_BT * advantages_BT * logprobs_BT,
        clipped_BT=(weight_BT != ratio_BT) & (advantages_BT != 0),
        ratio_BT=ratio_BT,
    )


class CispoSettings(LossSettings):
    """The weight is bounded above alone, at 5 (arXiv:2510.13786)."""

    clip_low: ClipLow = 1.0
    clip_high: ClipHigh = 4.0


LOSS = LossKind(
    compute=cispo_loss,
    settings=CispoSettings,
    summary="CISPO: clips a weight, and keeps every token's gradient",
)
