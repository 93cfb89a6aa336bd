"""Labels and notes: what was said of episodes and steps."""

import getpass
import os
import time

from longhaul_core.store import labelling, queries
from longhaul_core.store.queries import LabelDetail
from longhaul_core.store.records import Label
from longhaul_viewer.data.store import reading, writer

__all__ = ["author", "of_episode", "put", "remove"]


def author() -> str:
    """Who writes here: the name of the person's account, or the number of one without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def of_episode(episode_id: str) -> list[LabelDetail]:
    """The labels of an episode and its steps, those of the whole episode first."""
    with reading() as session:
        return queries.labels_of(session, episode_ids=[episode_id])[episode_id]


def put(episode_id: str, step_index: int | None, *, name: str, value: str) -> None:
    """Write a label of this person's, in the place of an earlier one of the same name.

    Args:
        episode_id: The episode.
        step_index: One of its steps; None: the whole episode.
        name: What kind of remark, e.g. `note`.
        value: The remark.

    Raises:
        StoreError: The viewer is read-only, or the store refused.
    """
    labelling.put_label(writer(), _label(episode_id, step_index, name=name, value=value))


def remove(episode_id: str, step_index: int | None, *, name: str) -> None:
    """Take a label of this person's away.

    Raises:
        StoreError: The viewer is read-only, or the store refused.
    """
    labelling.remove_label(writer(), _label(episode_id, step_index, name=name, value=""))


def _label(episode_id: str, step_index: int | None, *, name: str, value: str) -> Label:
    return Label(
        episode_id=episode_id,
        step_index=step_index,
        name=name.strip(),
        value=value.strip(),
        author=author(),
        created_at=time.time(),
    )
