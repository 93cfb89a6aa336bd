"""Credit truth: what an action was worth, and how near an estimator's advantages come to it.

In a deterministic environment whose states can be counted, and for a policy that reads the state
alone, value and advantage are known exactly (`state_graph`, `exact`). Elsewhere they are sampled by
continuations (`sampled`). `judging` compares any advantages with either; `episodes` has what lies
between: episodes of such a policy, the groups that estimators read, and the true advantages.
"""

from longhaul_core.truth.episodes import (
    estimated_advantages,
    group_of,
    play_episode,
    true_advantages,
)
from longhaul_core.truth.exact import ExactValues, Policy, exact_values, tabulated
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
    continuations,
    fewest_continuations,
    num_wanted,
    sampled_advantage,
    sampled_value,
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
    "continuations",
    "estimated_advantages",
    "exact_values",
    "explored",
    "fewest_continuations",
    "group_of",
    "num_wanted",
    "planted_right",
    "planted_wrong",
    "play_episode",
    "sampled_advantage",
    "sampled_value",
    "score_against_truth",
    "shuffled",
    "tabulated",
    "true_advantages",
]
