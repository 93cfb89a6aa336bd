"""The questions asked of a store, one function each.

Every function takes a session and keyword arguments and returns plain named tuples: a
result stays valid after its session has closed. Nothing here writes; see `maintenance`.
"""

from longhaul_core.store.queries.episodes import (
    EpisodeDetail,
    EpisodeFilter,
    EpisodePage,
    EpisodeSort,
    EpisodeSummary,
    Failure,
    LabelDetail,
    StepDetail,
    failures,
    get_episode,
    list_episodes,
)
from longhaul_core.store.queries.groups import (
    GroupDetail,
    GroupPage,
    GroupSummary,
    get_group,
    list_groups,
)
from longhaul_core.store.queries.integrity import INVARIANTS, Violation, violations
from longhaul_core.store.queries.metrics import (
    CurvePoint,
    EvaluationResult,
    MetricPoint,
    evaluations,
    metric_names,
    metric_series,
    token_pieces,
    training_curve,
)
from longhaul_core.store.queries.runs import (
    Attempt,
    Liveness,
    RunDetail,
    RunSummary,
    get_run,
    list_runs,
    liveness,
)
from longhaul_core.store.queries.search import SearchHit, search_steps
from longhaul_core.store.queries.storage import StorageStats, storage_stats

__all__ = [
    "INVARIANTS",
    "Attempt",
    "CurvePoint",
    "EpisodeDetail",
    "EpisodeFilter",
    "EpisodePage",
    "EpisodeSort",
    "EpisodeSummary",
    "EvaluationResult",
    "Failure",
    "GroupDetail",
    "GroupPage",
    "GroupSummary",
    "LabelDetail",
    "Liveness",
    "MetricPoint",
    "RunDetail",
    "RunSummary",
    "SearchHit",
    "StepDetail",
    "StorageStats",
    "Violation",
    "evaluations",
    "failures",
    "get_episode",
    "get_group",
    "get_run",
    "list_episodes",
    "list_groups",
    "list_runs",
    "liveness",
    "metric_names",
    "metric_series",
    "search_steps",
    "storage_stats",
    "token_pieces",
    "training_curve",
    "violations",
]
