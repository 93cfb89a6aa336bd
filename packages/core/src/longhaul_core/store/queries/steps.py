"""What was done in episodes, without what was read and said."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from longhaul_core.store.models import StepRow
from longhaul_core.store.queries.answers import Answer, columns

__all__ = ["StepAction", "step_actions"]

_IN_LIST = 500


@dataclass(frozen=True, slots=True)
class StepAction(Answer):
    """A step without its text: what was done, what it was paid and what credit it got."""

    episode_id: str
    step_index: int
    action: str
    action_valid: bool
    reward: float
    shaped_reward: float | None
    return_to_go: float | None
    episode_advantage: float | None
    step_advantage: float | None
    advantage: float | None
    trained: bool
    anchor_hash: str
    """Equal for steps of a group that were taken in the same anchor state."""


def step_actions(session: Session, *, episode_ids: Collection[str]) -> dict[str, list[StepAction]]:
    """Actions, rewards and credit of whole episodes without any text, by episode id.

    Args:
        session: Only read from.
        episode_ids: Which; one that is not in the store has an empty list.
    """
    found: dict[str, list[StepAction]] = {episode_id: [] for episode_id in episode_ids}
    wanted = sorted(found)
    for start in range(0, len(wanted), _IN_LIST):
        rows = session.execute(
            select(*columns(StepAction, StepRow))
            .where(StepRow.episode_id.in_(wanted[start : start + _IN_LIST]))
            .order_by(StepRow.episode_id, StepRow.step_index)
        )
        for row in rows:
            found[row.episode_id].append(StepAction(*row))
    return found
