"""Where one can go from an episode: the others of its group, the groups before and after."""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from longhaul_core.store.models import EpisodeRow
from longhaul_core.store.queries.base import Answer, columns
from longhaul_core.store.queries.episode_lists import unknown_episode

__all__ = ["GroupMember", "Neighbours", "neighbours"]


@dataclass(frozen=True, slots=True)
class GroupMember(Answer):
    """An episode of a group, in a word."""

    episode_id: str
    sample_index: int
    retry: int
    failed: bool
    success: bool | None
    episode_return: float | None
    num_steps: int


@dataclass(frozen=True, slots=True)
class Neighbours(Answer):
    """Episodes beside an episode."""

    members: tuple[GroupMember, ...]
    """Of its group, itself among them, failed tries included, by sample_index and retry."""
    earlier_group: str | None
    """First episode of the run's group before, of the same phase; None for the first group."""
    later_group: str | None


def neighbours(session: Session, *, episode_id: str) -> Neighbours:
    """The episodes of its group, and one of each group beside it.

    Groups are in order of the training step that played them, then of their place in it; what a
    resume rolled back is left out, unless the episode itself was.

    Raises:
        LookupError: There is no such episode.
    """
    key = session.execute(
        select(
            EpisodeRow.run_id,
            EpisodeRow.attempt,
            EpisodeRow.phase,
            EpisodeRow.training_step,
            EpisodeRow.group_index,
            EpisodeRow.rolled_back,
        ).where(EpisodeRow.id == episode_id)
    ).one_or_none()
    if key is None:
        raise unknown_episode(episode_id)
    members = session.execute(
        select(*columns(GroupMember, EpisodeRow, episode_id=EpisodeRow.id))
        .where(
            EpisodeRow.run_id == key.run_id,
            EpisodeRow.attempt == key.attempt,
            EpisodeRow.phase == key.phase,
            EpisodeRow.training_step == key.training_step,
            EpisodeRow.group_index == key.group_index,
        )
        .order_by(EpisodeRow.sample_index, EpisodeRow.retry)
    )
    here = (EpisodeRow.training_step, EpisodeRow.group_index)
    after = or_(
        here[0] > key.training_step,
        and_(here[0] == key.training_step, here[1] > key.group_index),
    )
    before = or_(
        here[0] < key.training_step,
        and_(here[0] == key.training_step, here[1] < key.group_index),
    )

    def first_of(bound: ColumnElement[bool], way: ColumnElement[bool], *, down: bool) -> str | None:
        first, second = (each.desc() if down else each for each in here)
        return session.scalar(
            select(EpisodeRow.id)
            .where(
                EpisodeRow.run_id == key.run_id,
                EpisodeRow.phase == key.phase,
                EpisodeRow.rolled_back == key.rolled_back,
                bound,
                way,
            )
            .order_by(first, second, EpisodeRow.sample_index, EpisodeRow.retry)
            .limit(1)
        )

    return Neighbours(
        members=tuple(GroupMember(*row) for row in members),
        # The outer bound lets the index on training steps be walked from here on.
        earlier_group=first_of(here[0] <= key.training_step, before, down=True),
        later_group=first_of(here[0] >= key.training_step, after, down=False),
    )
