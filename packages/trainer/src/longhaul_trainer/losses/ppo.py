"""PPO's clipped loss, with dual clip; with a higher upper bound it is DAPO's.

Shapes: B rows, T tokens of the response, right-padded.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from longhaul_trainer.losses.kind import ClipHigh, ClipLow, LossKind, LossSettings
from longhaul_trainer.losses.tokens import MAX_LOG_RATIO, ActionTokens, PolicyLoss, weighted_sums


def ppo_loss(
    tokens: ActionTokens, *, clip_low: float, clip_high: float, dual_clip: float
) -> PolicyLoss:
    """PPO's clipped loss with a lower bound for negative advantages.

    With the ratio r = π / π_old, per token:

        L = −min(r A, clip(r, 1 − clip_low, 1 + clip_high) A),
        and for A < 0 at most −dual_clip · A.

    Args:
        tokens: What is trained.
        clip_low: In (0, 1].
        clip_high: Above 0; larger than `clip_low` for clip-higher (DAPO).
        dual_clip: Above 1.

    Source: Schulman et al., 2017, arXiv:1707.06347, eq. 7; dual clip: Ye et al., 2020,
    arXiv:1912.09729, eq. 5; clip-higher: Yu et al., 2025, arXiv:2503.14476, eq. 10.
    """
    advantages_BT = tokens.advantages_BT
    ratio_BT = tokens.log_ratio_BT().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    plain_BT = -advantages_BT * ratio_BT
    clipped_BT = -advantages_BT * ratio_BT.clamp(1.0 - clip_low, 1.0 + clip_high)
    token_loss_BT = plain_BT.maximum(clipped_BT)
    bounded_BT = token_loss_BT.minimum(-advantages_BT * dual_clip)
    token_loss_BT = bounded_BT.where(advantages_BT < 0, token_loss_BT)
    return weighted_sums(
        tokens,
        token_loss_BT=token_loss_BT,
        clipped_BT=token_loss_BT != plain_BT,
        ratio_BT=ratio_BT,
    )


class PpoSettings(LossSettings):
    """As PPO's authors clip, with the usual bound for negative advantages."""

    clip_low: ClipLow = 0.2
    clip_high: ClipHigh = 0.2
    dual_clip: Annotated[float, Field(gt=1)] = 3.0
    """Bound of the loss, in units of the advantage, where the advantage is negative."""


LOSS = LossKind(
    compute=ppo_loss,
    settings=PpoSettings,
    summary="PPO: clips the ratio of each token; with clip_high = 0.28 it is DAPO's",
)
