"""What the trainer knows of the step behind a row, and of where a row belongs.

It travels beside the row through TransferQueue. Nothing here imports verl, so credit can
be worked out, and tested, without it.

Row keys in TransferQueue are `{group}_{position}_{step}`, so a group's name holds no `_`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from longhaul_core.types import GroupOutcome

NOTE = "longhaul"
"""Our key in a row's `extra_fields`."""


class RowNote(NamedTuple):
    """What the trainer must know about the step behind a row."""

    task_id: str
    group_index: int
    """0-based place of the task in its training step."""
    position: int
    """0-based place of the episode in its group."""
    retry: int
    """How many tries of this episode failed before."""
    horizon: int
    """Longest that the episode could be, in steps."""
    step: int
    num_steps: int
    reward: float
    """The environment's."""
    action_valid: bool
    anchor: str
    success: bool
    episode_return: float
    prompt_tokens: int
    action_tokens: int
    reference_kl: float = 0.0
    """Estimated divergence from the starting model, summed over the reply's tokens; known, and
    not 0, only where it is part of the reward and the learner has read the row."""


class RowKey(NamedTuple):
    """Where a row belongs, as its key says."""

    group: str
    position: int
    step: int

    @classmethod
    def parse(cls, key: str) -> RowKey:
        """Read a TransferQueue key."""
        group, position, step = key.split("_")
        return cls(group, int(position), int(step))


def read_notes(extra_fields: Sequence[dict[str, Any]]) -> list[RowNote]:
    """The notes of rows, in the order given."""
    return [RowNote(**fields[NOTE]) for fields in extra_fields]


def group_outcomes(notes: Mapping[str, RowNote]) -> list[GroupOutcome]:
    """How often each group solved its task, in the order of the group's first row.

    Args:
        notes: Row key → note, padding rows not among them; failed episodes have no row.
    """
    groups: dict[str, list[RowNote]] = defaultdict(list)
    for key, note in notes.items():
        if note.step == note.num_steps - 1:
            groups[RowKey.parse(key).group].append(note)
    return [
        GroupOutcome(
            task_id=episodes[0].task_id,
            horizon=episodes[0].horizon,
            num_successes=sum(note.success for note in episodes),
            num_episodes=len(episodes),
        )
        for episodes in groups.values()
    ]
