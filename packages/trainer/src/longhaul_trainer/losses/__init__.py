"""Policy losses, in torch: sums of weighted token losses, whose weights say what counts."""

from longhaul_trainer.losses.kl import kl_estimate
from longhaul_trainer.losses.policy import PolicyLoss, clipped_policy_loss

__all__ = ["PolicyLoss", "clipped_policy_loss", "kl_estimate"]
