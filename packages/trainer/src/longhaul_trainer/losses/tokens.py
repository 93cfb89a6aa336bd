"""What every policy loss takes and gives.

A policy loss is `Σ weight · token loss`. The weights are computed once for all the episodes
of an optimizer step (`longhaul_core.advantages.loss_weights`), so padding, micro-batches
and the way an episode was cut into rows cannot change the gradient. Where a loss has a ratio
of a whole sequence, the sequence is one action, of which a row may hold several.

Every token loss is proportional to the advantage for factors that are not negative, so an
importance weight of a token may be multiplied into its advantage.

Shapes: B rows, T tokens of the response, right-padded; A actions of the row with the most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

MAX_LOG_RATIO = 20.0
"""Log ratios are bounded by this before the exponential."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTokens:
    """The tokens of some rows, with what they are trained with.

    Raises:
        ValueError: If the shapes differ.
    """

    policy_logprobs_BT: torch.Tensor
    """Natural log, under the policy that is trained; carries the gradient."""
    old_logprobs_BT: torch.Tensor
    """Natural log, under the policy before this training step's updates."""
    advantages_BT: torch.Tensor
    """Advantage of each token's action."""
    loss_weights_BT: torch.Tensor
    """Weight of each token; 0 on padding and on what is not trained."""
    actions_BT: torch.Tensor
    """int64, which of its row's actions a token belongs to, from 0; read where it is counted."""
    behavior_logprobs_BT: torch.Tensor | None = None
    """Natural log, under the engine that sampled; None for a loss that does not read it."""

    def __post_init__(self) -> None:
        tensors = (
            self.policy_logprobs_BT,
            self.old_logprobs_BT,
            self.advantages_BT,
            self.loss_weights_BT,
            self.actions_BT,
            self.behavior_logprobs_BT,
        )
        shapes = {tuple(tensor.shape) for tensor in tensors if tensor is not None}
        if len(shapes) != 1:
            raise ValueError(
                f"logprobs, advantages, weights and actions differ in shape: {sorted(shapes)}"
            )

    def counted_BT(self) -> torch.Tensor:
        """Whether a token is trained; what is not may hold anything, infinities too."""
        return self.loss_weights_BT > 0

    def log_ratio_BT(self) -> torch.Tensor:
        """The log of π / π_old; 0 where a token is not counted."""
        difference_BT = self.policy_logprobs_BT - self.old_logprobs_BT
        return difference_BT.where(self.counted_BT(), 0.0)


def sums_by_action(
    values_BT: torch.Tensor, *, counted_BT: torch.Tensor, actions_BT: torch.Tensor
) -> torch.Tensor:
    """For each token the sum over the counted tokens of its action; shape `[B, T]`.

    Args:
        values_BT: What is added up; anything where a token is not counted.
        counted_BT: Whether a token is trained.
        actions_BT: int64, which of its row's actions a token belongs to, at least 0.
    """
    counted = values_BT.where(counted_BT, 0.0)
    num_actions = int(actions_BT.max()) + 1 if actions_BT.numel() else 0
    sums_BA = counted.new_zeros(len(counted), num_actions)
    return sums_BA.scatter_add(1, actions_BT, counted).gather(1, actions_BT)


class PolicyLoss(NamedTuple):
    """A loss to differentiate, and what to watch: sums over the given tokens, by weight.

    Divided by the weight of the same tokens they are a share and means.
    """

    loss: torch.Tensor
    """Carries the gradient."""
    clipped: torch.Tensor
    """Of the tokens whose gradient clipping changed."""
    divergence: torch.Tensor
    """Of log π_old − log π."""
    ratio: torch.Tensor
    """Of the ratio that the loss clips, before it is clipped."""


def weighted_sums(
    tokens: ActionTokens,
    *,
    token_loss_BT: torch.Tensor,
    clipped_BT: torch.Tensor,
    ratio_BT: torch.Tensor,
) -> PolicyLoss:
    """Sums of what each token gives, by the tokens' weights."""
    weights_BT = tokens.loss_weights_BT
    return PolicyLoss(
        loss=(weights_BT * token_loss_BT).sum(),
        clipped=(weights_BT * clipped_BT).sum(),
        divergence=-(weights_BT * tokens.log_ratio_BT().detach()).sum(),
        ratio=(weights_BT * ratio_BT.detach()).sum(),
    )
