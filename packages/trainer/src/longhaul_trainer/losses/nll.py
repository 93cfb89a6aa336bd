"""Negative log-likelihood of replies that are imitated.

Shapes: B rows, T tokens of the response, right-padded.
"""

from __future__ import annotations

from longhaul_trainer.losses.kind import LossKind, LossSettings
from longhaul_trainer.losses.tokens import ActionTokens, PolicyLoss, weighted_sums


def nll_loss(tokens: ActionTokens) -> PolicyLoss:
    """The cross-entropy of supervised fine-tuning, each reply times its episode's advantage.

        L = −A · log π

    with A the weight of the demonstration, or what its pairs of episodes give it
    (`longhaul_core.advantages.dpo`), below 0 for one that is rejected.

    Nothing was sampled, so there is no ratio to clip.

    Args:
        tokens: What is imitated.
    """
    logprobs_BT = tokens.policy_logprobs_BT.where(tokens.counted_BT(), 0.0)
    return weighted_sums(
        tokens,
        token_loss_BT=-tokens.advantages_BT * logprobs_BT,
        clipped_BT=logprobs_BT.new_zeros(logprobs_BT.shape).bool(),
        ratio_BT=tokens.log_ratio_BT().exp(),
    )


class NllSettings(LossSettings):
    """None."""


LOSS = LossKind(
    compute=nll_loss,
    settings=NllSettings,
    summary="negative log-likelihood of replies that are imitated, of runs with imitation.sources",
)
