"""Credit assignment: from step rewards to what each action is trained with.

Pure numpy, float64, no torch. Everything here counts episodes and steps, never the
rows of a training batch, so how an episode is cut into rows changes no number.
"""

from longhaul_core.advantages.credit import EpisodeCredit, Statistics
from longhaul_core.advantages.drgrpo import drgrpo_credit
from longhaul_core.advantages.gae import (
    StepCriticCredit,
    TokenCriticCredit,
    gae_over_steps,
    gae_over_tokens,
)
from longhaul_core.advantages.gae_credit import GaeLevel, gae_credit
from longhaul_core.advantages.gigpo import gigpo_credit
from longhaul_core.advantages.graphgpo import DistanceForm, GraphSettings, graphgpo_credit
from longhaul_core.advantages.grpo import grpo_credit
from longhaul_core.advantages.hgpo import hgpo_credit
from longhaul_core.advantages.pass_at_k import pass_at_k_credit
from longhaul_core.advantages.reinforce import (
    reinforce_plus_plus_baseline_credit,
    reinforce_plus_plus_credit,
)
from longhaul_core.advantages.remax import remax_credit
from longhaul_core.advantages.returns import returns_to_go
from longhaul_core.advantages.rloo import rloo_credit
from longhaul_core.advantages.similarity import merge_similar
from longhaul_core.advantages.weights import LossUnit, loss_weights
from longhaul_core.advantages.whiten import Whiten, whitened

__all__ = [
    "DistanceForm",
    "EpisodeCredit",
    "GaeLevel",
    "GraphSettings",
    "LossUnit",
    "Statistics",
    "StepCriticCredit",
    "TokenCriticCredit",
    "Whiten",
    "drgrpo_credit",
    "gae_credit",
    "gae_over_steps",
    "gae_over_tokens",
    "gigpo_credit",
    "graphgpo_credit",
    "grpo_credit",
    "hgpo_credit",
    "loss_weights",
    "merge_similar",
    "pass_at_k_credit",
    "reinforce_plus_plus_baseline_credit",
    "reinforce_plus_plus_credit",
    "remax_credit",
    "returns_to_go",
    "rloo_credit",
    "whitened",
]
