"""Tokens for tests of the policy losses.

Shapes: B rows, T tokens.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch annotates little of `backward` and `tolist`)

import math
from collections.abc import Callable

import torch

from longhaul_trainer.losses import ActionTokens, PolicyLoss

PolicyLossOf = Callable[[ActionTokens], PolicyLoss]

OLD_LOGPROB = math.log(0.5)


def one_row(
    ratios: list[float],
    advantages: list[float],
    weights: list[float],
    actions: list[int] | None = None,
) -> ActionTokens:
    """One row whose tokens have these probability ratios, from a probability of 1/2 before.

    They are of one action unless `actions` says of which each is.
    """
    old_BT = torch.full((1, len(ratios)), OLD_LOGPROB, dtype=torch.float64)
    policy_BT = old_BT + torch.tensor([ratios], dtype=torch.float64).log()
    return ActionTokens(
        policy_logprobs_BT=policy_BT.requires_grad_(),
        old_logprobs_BT=old_BT,
        advantages_BT=torch.tensor([advantages], dtype=torch.float64),
        loss_weights_BT=torch.tensor([weights], dtype=torch.float64),
        actions_BT=torch.tensor([actions or [0] * len(ratios)]),
    )


def gradient_of(tokens: ActionTokens, loss: PolicyLoss) -> list[list[float]]:
    """Derivative of the loss by each log π."""
    (gradient,) = torch.autograd.grad(loss.loss, tokens.policy_logprobs_BT)
    return gradient.tolist()
