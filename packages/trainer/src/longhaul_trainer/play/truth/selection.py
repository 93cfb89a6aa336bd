"""Which stored steps are measured: groups first, then steps of all of their episodes.

Both are drawn evenly, by a seed, from what is in order in the store, so that the same call chooses
the same steps again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from sqlalchemy.orm import Session

from longhaul_core.errors import ConfigError
from longhaul_core.rollout import Branch
from longhaul_core.store import queries
from longhaul_core.store.queries import GroupFilter, GroupId

__all__ = ["MeasuredStep", "Place", "Selection", "select_steps"]

_PAGE = 500

Place = tuple[str, int]
"""Episode and step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A step of which V and Q are measured."""

    choice: Branch
    """Whoever goes on chooses the action: V."""
    taken: Branch
    """The stored action is taken first: Q."""

    @property
    def episode_id(self) -> str:
        """Of the stored episode."""
        return self.choice.episode_id

    @property
    def step_index(self) -> int:
        """0-based."""
        return self.choice.step_index


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Steps, and the groups that they are of."""

    groups: tuple[GroupId, ...]
    """In the order in which they were played."""
    steps: tuple[MeasuredStep, ...]
    """By group, episode and step."""
    num_steps: int
    """Of all episodes of the groups."""

    @property
    def episode_ids(self) -> list[str]:
        """Of the episodes with a measured step."""
        return list(dict.fromkeys(step.episode_id for step in self.steps))


def select_steps(
    session: Session,
    run_id: str,
    *,
    training_steps: tuple[int, int] | None,
    num_groups: int,
    num_steps: int,
    seed: int,
) -> Selection:
    """Draw groups of a run's training, and steps of the episodes in them that ended.

    Args:
        session: Only read from.
        run_id: Whose.
        training_steps: First and last; None means all.
        num_groups: At most so many, at least 2.
        num_steps: At most so many, of all groups together.
        seed: Of both draws.

    Raises:
        ConfigError: There are fewer than 2 groups; a judgement's intervals are over groups.
        StoreError: The texts of an episode with a drawn step are gone.
    """
    random = Random(f"credit-truth/{seed}")
    found = _groups(session, run_id, training_steps)
    if min(len(found), num_groups) < 2:
        place = "" if training_steps is None else " {}..{}".format(*training_steps)
        raise ConfigError(
            f"credit is judged over at least 2 groups, and there are {len(found)} with an episode "
            f"that ended in training steps{place} of {run_id}"
            if len(found) < 2
            else f"credit is judged over at least 2 groups, got --groups {num_groups}"
        )
    groups = (
        [found[at] for at in sorted(random.sample(range(len(found)), num_groups))]
        if (num_groups < len(found))
        else found
    )
    places = [
        (member.episode_id, step)
        for group in groups
        for member in queries.get_group(session, group).members
        if not member.failed
        for step in range(member.num_steps)
    ]
    drawn = sorted(random.sample(range(len(places)), min(num_steps, len(places))))
    return Selection(
        groups=tuple(groups),
        steps=_measured(session, [places[at] for at in drawn]),
        num_steps=len(places),
    )


def _groups(session: Session, run_id: str, training_steps: tuple[int, int] | None) -> list[GroupId]:
    """Those of training with an episode that ended, the oldest first."""
    first, last = training_steps or (None, None)
    where = GroupFilter(phase="train", min_training_step=first, max_training_step=last)
    found: list[GroupId] = []
    after = None
    while True:
        page = queries.list_groups(
            session, run_id=run_id, where=where, descending=False, after=after, limit=_PAGE
        )
        found += [group.group_id for group in page.rows if group.num_episodes]
        after = page.next_key
        if after is None:
            return found


def _measured(session: Session, places: Sequence[tuple[str, int]]) -> tuple[MeasuredStep, ...]:
    recorded = {
        episode_id: queries.recorded_episode(session, episode_id)
        for episode_id in dict.fromkeys(episode_id for episode_id, _ in places)
    }

    def branch(episode_id: str, step_index: int, *, takes: bool) -> Branch:
        episode = recorded[episode_id]
        return Branch(
            episode_id=episode_id,
            recorded=episode,
            step_index=step_index,
            action=episode.steps[step_index].action if takes else None,
        )

    return tuple(
        MeasuredStep(choice=branch(*place, takes=False), taken=branch(*place, takes=True))
        for place in places
    )
