"""Losses, in torch: sums of weighted token losses, whose weights say what counts."""

from longhaul_trainer.losses.cispo import cispo_loss
from longhaul_trainer.losses.gspo import gspo_loss
from longhaul_trainer.losses.importance import ImportanceWeights, truncated_importance_weights
from longhaul_trainer.losses.kl import kl_estimate
from longhaul_trainer.losses.nll import nll_loss
from longhaul_trainer.losses.ppo import ppo_loss
from longhaul_trainer.losses.tokens import ActionTokens, PolicyLoss, weighted_sums
from longhaul_trainer.losses.value import value_loss

__all__ = [
    "ActionTokens",
    "ImportanceWeights",
    "PolicyLoss",
    "cispo_loss",
    "gspo_loss",
    "kl_estimate",
    "nll_loss",
    "ppo_loss",
    "truncated_importance_weights",
    "value_loss",
    "weighted_sums",
]
