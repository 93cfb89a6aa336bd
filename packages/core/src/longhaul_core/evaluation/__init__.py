"""Statistics of evaluations: how sure one may be of a rate or of a difference."""

from longhaul_core.evaluation.intervals import (
    Interval,
    bounded_mean_interval,
    success_rate_interval,
    success_rate_over_tasks,
)
from longhaul_core.evaluation.paired import (
    cluster_bootstrap_difference,
    cluster_t_difference,
    mean_interval,
    paired_difference,
    paired_t_p_value,
    sign_test_p_value,
)

__all__ = [
    "Interval",
    "bounded_mean_interval",
    "cluster_bootstrap_difference",
    "cluster_t_difference",
    "mean_interval",
    "paired_difference",
    "paired_t_p_value",
    "sign_test_p_value",
    "success_rate_interval",
    "success_rate_over_tasks",
]
