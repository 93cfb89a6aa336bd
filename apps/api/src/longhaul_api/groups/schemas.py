"""What the group routes answer."""

from longhaul_api.episodes.schemas import Episode
from longhaul_api.schemas import Answer

__all__ = ["Group", "GroupDetail", "GroupPage"]


class Group(Answer):
    """The attempts at one task of one training step. Returns are of episodes that ended."""

    run_id: str
    attempt: int
    """Of the run: 0, or how often it had been resumed."""
    phase: str
    training_step: int
    group_index: int
    """Place of the task in the training step's batch, or in the panel."""
    environment: str
    task_id: str
    goal: str
    group_size: int | None
    """Episodes asked for."""
    rolled_back: bool
    """Whether a resume went on from before this group."""
    num_episodes: int
    num_failed_episodes: int
    """Failed tries, retried ones included."""
    mean_return: float | None
    min_return: float | None
    max_return: float | None
    success_rate: float | None
    """In [0, 1]."""
    max_abs_advantage: float | None
    """Largest |advantage| of a step; 0: the policy loss learned nothing from the group; null: no
    step was given credit."""


class GroupPage(Answer):
    """Part of a list of groups."""

    total: int
    """Matching groups in all."""
    rows: tuple[Group, ...]


class GroupDetail(Answer):
    """A group and its episodes."""

    summary: Group
    members: tuple[Episode, ...]
    """Failed tries included."""
