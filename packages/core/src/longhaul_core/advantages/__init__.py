"""Credit assignment: from step rewards to what each action is trained with.

Pure numpy, float64, no torch. Everything here counts episodes and steps, never the
rows of a training batch, so how an episode is cut into rows changes no number.

What estimators share is exported here; each estimator is a module of its own, such as
`longhaul_core.advantages.gigpo`.
"""

from longhaul_core.advantages.credit import EpisodeCredit, Statistics
from longhaul_core.advantages.returns import returns_to_go
from longhaul_core.advantages.similarity import merge_similar
from longhaul_core.advantages.weights import LossUnit, loss_weights, loss_weights_by_purpose
from longhaul_core.advantages.whiten import Whiten, whitened

__all__ = [
    "EpisodeCredit",
    "LossUnit",
    "Statistics",
    "Whiten",
    "loss_weights",
    "loss_weights_by_purpose",
    "merge_similar",
    "returns_to_go",
    "whitened",
]
