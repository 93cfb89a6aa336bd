"""KeyDoor's tasks: a layout of two rooms each.

A task id is `SIZE/SEED`, e.g. `7/00042`: cells across a room, and what draws the layout. A layout
belongs to one split by its hash.
"""

import re
from dataclasses import dataclass

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.key_door.rooms import Rooms
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.task_lists import procedural_tasks

__all__ = ["KeyDoorOptions", "rooms_of", "source", "tasks"]

_PROMPT = EnvironmentPrompt(
    system=(
        "There are two rooms side by side, and a wall with one door between them. Take the key in "
        "the west room, unlock the door, and reach the goal in the east room. You see how far the "
        "key, the door and the goal are from you. The actions are north, south, west, east, take "
        "(on the key) and unlock (west of the door, with the key)."
    ),
    instruction="Which action comes next?",
)
_TASK_ID = re.compile(r"([0-9]{1,2})/([0-9]{1,9})")
_MIN_SIZE, _MAX_SIZE = 3, 15


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDoorOptions(PackagedOptions):
    """What can be chosen about KeyDoor."""

    environment_id = "longhaul/KeyDoor-v0"
    episodes_per_process = 16

    room_size: int = 7
    """Cells across and down each room, 3 to 15. Chooses tasks."""

    def __post_init__(self) -> None:
        _refuse_impossible_size(self.room_size)


def tasks(split: Split, options: KeyDoorOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`, by seed."""
    size = options.room_size
    return procedural_tasks(
        split,
        limit=limit,
        content_of=lambda seed: Rooms.laid_out(size, seed).in_words(),
        task_of=lambda seed: options.task(
            f"{size}/{seed:05}",
            split,
            goal="take the key, unlock the door and reach the goal",
            seed=seed,
        ),
    )


def rooms_of(task_id: str) -> Rooms:
    """The layout of a task.

    Raises:
        ValueError: No task has this id.
    """
    match = _TASK_ID.fullmatch(task_id)
    if match is None:
        raise ValueError(
            f"no KeyDoor task is called {task_id!r}; ids look like '7/00042' (cells across a room, "
            "seed)"
        )
    size, seed = map(int, match.groups())
    _refuse_impossible_size(size)
    return Rooms.laid_out(size, seed)


def _refuse_impossible_size(size: int) -> None:
    if not _MIN_SIZE <= size <= _MAX_SIZE:
        raise ConfigError(f"room_size must be from {_MIN_SIZE} to {_MAX_SIZE}, got {size}")


source = PackagedSource(
    KeyDoorOptions,
    tasks,
    lambda options: options.description(
        summary="take a key, unlock a door, reach a goal: some 20 steps, paid at the end alone",
        prompt=_PROMPT,
        actions="`north`, `south`, `west`, `east`, `take` or `unlock`",
    ),
)
