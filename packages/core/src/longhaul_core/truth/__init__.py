"""Credit truth: what an action was worth, and how near an estimator's advantages come to it.

In a deterministic environment whose states can be counted, and for a policy that reads the state
alone, value and advantage are known exactly (`state_graph`, `exact`). Elsewhere they are sampled by
continuations (`sampled`). `judging` compares any advantages with either.
"""

from longhaul_core.truth.exact import ExactValues, Policy, exact_values, tabulated, true_advantages
from longhaul_core.truth.gradients import compare_gradients
from longhaul_core.truth.judging import (
    Judgement,
    planted_right,
    planted_wrong,
    score_against_truth,
    shuffled,
)
from longhaul_core.truth.sampled import (
    SampledAdvantage,
    fewest_continuations,
    num_wanted,
    sampled_advantage,
)
from longhaul_core.truth.state_graph import INVALID, StateGraph, explored

__all__ = [
    "INVALID",
    "ExactValues",
    "Judgement",
    "Policy",
    "SampledAdvantage",
    "StateGraph",
    "compare_gradients",
    "exact_values",
    "explored",
    "fewest_continuations",
    "num_wanted",
    "planted_right",
    "planted_wrong",
    "sampled_advantage",
    "score_against_truth",
    "shuffled",
    "tabulated",
    "true_advantages",
]
