"""SQL expressions that several questions share."""

from sqlalchemy import Double, case, cast, func

from longhaul_core.store.models import EpisodeRow

__all__ = [
    "INVALID_ACTION_RATE",
    "MEAN_NUM_STEPS",
    "MEAN_RETURN",
    "NUM_ENDED",
    "NUM_FAILED",
    "NUM_STEPS",
    "SUCCESS_RATE",
]

_ended = case((EpisodeRow.failed, 0), else_=1)

NUM_ENDED = func.sum(_ended)
NUM_FAILED = func.sum(1 - _ended)
NUM_STEPS = func.sum(_ended * EpisodeRow.num_steps)
"""Of episodes that ended."""

# avg() leaves out what is null: a failed episode has neither return nor success.
MEAN_RETURN = func.avg(EpisodeRow.episode_return)
SUCCESS_RATE = func.avg(
    case((EpisodeRow.success.is_(True), 1.0), (EpisodeRow.success.is_(False), 0.0))
)
MEAN_NUM_STEPS = func.avg(case((~EpisodeRow.failed, cast(EpisodeRow.num_steps, Double))))
INVALID_ACTION_RATE = cast(func.sum(EpisodeRow.num_invalid_actions), Double) / func.nullif(
    cast(func.sum(EpisodeRow.num_steps), Double), 0.0
)
"""Per step, failed episodes included."""
