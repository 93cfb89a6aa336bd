"""What the trainer knows of the step behind a row, and of where a row belongs.

It travels beside the row through TransferQueue. Nothing here imports verl, so credit can
be worked out, and tested, without it.

Row keys in TransferQueue are `{group}_{position}_{step}`, so a group's name holds no `_`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

NOTE = "longhaul"
"""Our key in a row's `extra_fields`."""


class RowNote(NamedTuple):
    """What the trainer must know about the step behind a row."""

    group_index: int
    """0-based place of the task in its training step."""
    position: int
    """0-based place of the episode in its group."""
    retry: int
    """How many tries of this episode failed before."""
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
