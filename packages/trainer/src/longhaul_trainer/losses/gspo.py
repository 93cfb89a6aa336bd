"""GSPO: one importance ratio for all tokens of a sequence.

The sequence is what the policy wrote in one step: an action. A row of merged steps holds
several, and each has a ratio of its own.

Shapes: B rows, T tokens of the response, right-padded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from longhaul_trainer.losses.kind import ClipHigh, ClipLow, LossKind, LossSettings
from longhaul_trainer.losses.tokens import (
    ActionTokens,
    PolicyLoss,
    sums_by_action,
    weighted_sums,
)

if TYPE_CHECKING:
    import torch

MAX_LOG_RATIO = 10.0
"""As in verl. What became likelier by more has no gradient, since nothing else bounds the loss of
an action whose advantage is negative."""


def gspo_loss(tokens: ActionTokens, *, clip_low: float, clip_high: float) -> PolicyLoss:
    """GSPO's loss, in the form that allows an advantage per token (GSPO-token).

    With n counted tokens in an action and sg(·) what is kept out of the gradient:

        s = exp(1/n · Σ_t log(π_t / π_old,t)),    s_t = sg(s) · π_t / sg(π_t),
        L_t = −min(s_t A_t, clip(s_t, 1 − clip_low, 1 + clip_high) A_t).

    Every s_t has the value s, so an action is clipped whole where its advantages have one sign.
    Where advantage and weight are the same all over an action, value and gradient are those of
    the sequence's own −min(s A, clip(s) A) at the action's summed weight; the paper gives each
    sequence the same one, which is loss unit "step". There is no dual clip; s is at most e^10,
    where the gradient ends.

    Args:
        tokens: What is trained.
        clip_low: In (0, 1]; the paper takes 3e-4, since s is a mean over tokens.
        clip_high: Above 0; the paper takes 4e-4.

    Source: Zheng et al., 2025, arXiv:2507.18071, eq. 5, 7, 13 and 14.
    """
    counted_BT, advantages_BT = tokens.counted_BT(), tokens.advantages_BT
    log_ratio_BT = tokens.log_ratio_BT().detach()
    num_tokens_BT = _by_action(tokens, log_ratio_BT.new_ones(log_ratio_BT.shape)).clamp(min=1)
    mean_BT = _by_action(tokens, log_ratio_BT) / num_tokens_BT
    logprobs_BT = tokens.policy_logprobs_BT.where(counted_BT, 0.0)
    log_ratio_BT = mean_BT + (logprobs_BT - logprobs_BT.detach())
    ratio_BT = log_ratio_BT.clamp(max=MAX_LOG_RATIO).exp()
    plain_BT = -advantages_BT * ratio_BT
    clipped_BT = -advantages_BT * ratio_BT.clamp(1.0 - clip_low, 1.0 + clip_high)
    token_loss_BT = plain_BT.maximum(clipped_BT)
    return weighted_sums(
        tokens,
        token_loss_BT=token_loss_BT,
        clipped_BT=token_loss_BT != plain_BT,
        ratio_BT=ratio_BT,
    )


def _by_action(tokens: ActionTokens, values_BT: torch.Tensor) -> torch.Tensor:
    return sums_by_action(values_BT, counted_BT=tokens.counted_BT(), actions_BT=tokens.actions_BT)


class GspoSettings(LossSettings):
    """As published."""

    clip_low: ClipLow = 3e-4
    clip_high: ClipHigh = 4e-4


LOSS = LossKind(
    compute=gspo_loss,
    settings=GspoSettings,
    summary="GSPO: clips the ratio of a step's whole reply, a mean over its tokens",
)
