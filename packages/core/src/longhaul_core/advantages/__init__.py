"""Credit assignment: from step rewards to what each action is trained with.

Pure numpy, float64, no torch. Everything here counts episodes and steps, never the
rows of a training batch, so how an episode is cut into rows changes no number.
"""

from longhaul_core.advantages.credit import EpisodeCredit, Statistics
from longhaul_core.advantages.gigpo import gigpo_credit
from longhaul_core.advantages.grpo import grpo_credit
from longhaul_core.advantages.returns import returns_to_go
from longhaul_core.advantages.weights import LossUnit, loss_weights

__all__ = [
    "EpisodeCredit",
    "LossUnit",
    "Statistics",
    "gigpo_credit",
    "grpo_credit",
    "loss_weights",
    "returns_to_go",
]
