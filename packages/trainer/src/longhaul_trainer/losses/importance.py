"""Truncated importance sampling: the learner's tokens are the sampler's.

Sampling engine and learner compute the probability of the same token a little differently
(kernels, precision), and when sampling runs ahead their weights differ too. The weight below
corrects for it; its bound trades a small bias for a variance that stays finite.

Shapes: B rows, T tokens of the response, right-padded.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

from longhaul_trainer.losses.tokens import sums_by_action

if TYPE_CHECKING:
    import torch

ImportanceLevel = Literal["token", "sequence"]


class ImportanceWeights(NamedTuple):
    """Factors of the tokens' losses; no gradient goes through them."""

    weights_BT: torch.Tensor
    """In [0, cap]; 1 where a token is not counted."""
    truncated_BT: torch.Tensor
    """Whether the bound was met."""


def truncated_importance_weights(
    *,
    old_logprobs_BT: torch.Tensor,
    behavior_logprobs_BT: torch.Tensor,
    counted_BT: torch.Tensor,
    actions_BT: torch.Tensor,
    level: ImportanceLevel,
    cap: float,
) -> ImportanceWeights:
    """How much likelier the learner finds what was sampled, at most `cap`.

        token:     w_t = min(π_old,t / π_behavior,t, cap)
        sequence:  w_t = min(Π_u π_old,u / π_behavior,u, cap), u over its action's counted tokens

    The sequence is what the policy wrote in one step: an action, of which a row may hold
    several. Token weights are the ones with less variance; they leave out how the tokens before
    changed the odds of being here.

    Args:
        old_logprobs_BT: Natural log, under the learner before this training step's updates.
        behavior_logprobs_BT: Natural log, under the engine that sampled.
        counted_BT: Whether a token is trained; what is not may hold anything.
        actions_BT: int64, which of its row's actions a token belongs to, from 0.
        level: See above.
        cap: At least 1.

    Raises:
        ValueError: If the shapes differ, or `cap` is below 1.

    Source: Ionides, 2008, "Truncated Importance Sampling"; between sampler and learner of a
    language model: Yao et al., 2025, "Your Efficient RL Framework Secretly Brings You
    Off-Policy RL Training".
    """
    tensors = (old_logprobs_BT, behavior_logprobs_BT, counted_BT, actions_BT)
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) != 1:
        raise ValueError(f"logprobs, mask and actions differ in shape: {sorted(shapes)}")
    if not cap >= 1:
        raise ValueError(f"cap must be at least 1, got {cap}")
    difference_BT = (old_logprobs_BT - behavior_logprobs_BT).detach()
    log_weights_BT = difference_BT.where(counted_BT, 0.0)
    if level == "sequence":
        log_weights_BT = sums_by_action(
            log_weights_BT, counted_BT=counted_BT, actions_BT=actions_BT
        ).where(counted_BT, 0.0)
    truncated_BT = log_weights_BT > math.log(cap)
    return ImportanceWeights(
        weights_BT=log_weights_BT.exp().where(~truncated_BT, cap),
        truncated_BT=truncated_BT,
    )
