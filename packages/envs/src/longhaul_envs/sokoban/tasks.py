"""Sokoban's tasks: a size, a number of boxes and a seed.

A task id is `SIZExSIZE-BOXES/SEED`, e.g. `6x6-1/00012`: any instance can play any of them.
The split is decided by a hash of the start that is the same for its eight turns and
reflections, so no test level is a training level seen in a mirror.
"""

import re
from dataclasses import dataclass

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.sokoban.board import symmetric_forms
from longhaul_envs.sokoban.levels import Level, make_level, make_start
from longhaul_envs.task_lists import procedural_tasks, rules_version

__all__ = ["ENVIRONMENT_ID", "SokobanOptions", "draw_level", "level_of", "tasks"]

ENVIRONMENT_ID = "longhaul/Sokoban-v0"
_TASK_ID = re.compile(r"([0-9]+)x\1-([0-9])/([0-9]+)")
_MIN_SIZE, _MAX_SIZE, _MAX_BOXES = 5, 10, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SokobanOptions:
    """What can be chosen about Sokoban."""

    size: int = 6
    """Rows and columns with the wall around, 5 to 10. Chooses tasks."""
    num_boxes: int = 1
    """Boxes, 1 to 4, and at most 1 for every 4 cells within the wall. Chooses tasks."""
    min_pushes: int = 2
    """Pushes that a listed level takes at least. Chooses tasks."""
    observation: str = "grid"
    """`grid`, or `relative`: where things are from the player. A rule."""
    box_reward: float = 0.0
    """Paid for a box that comes onto a target, and taken back if it leaves. A rule."""
    step_penalty: float = 0.0
    """Taken off for every step. A rule."""

    def __post_init__(self) -> None:
        _refuse_if_impossible(self.size, self.num_boxes)
        if self.min_pushes < 1:
            raise ConfigError(f"min_pushes must be at least 1, got {self.min_pushes}")
        if self.observation not in ("grid", "relative"):
            raise ConfigError(f"observation must be grid or relative, got {self.observation!r}")
        for name in ("box_reward", "step_penalty"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} must lie in [0, 1], got {getattr(self, name)}")

    @property
    def version(self) -> str:
        """The value of `Task.version`."""
        return rules_version("1", self, rules=("observation", "box_reward", "step_penalty"))


def tasks(split: Split, options: SokobanOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`, by seed."""

    def content_of(seed: int) -> str | None:
        made = make_start(options.size, options.num_boxes, seed)
        return None if made is None else min(symmetric_forms(made[0].rows(made[1])))

    def is_wanted(seed: int) -> bool:
        level = make_level(options.size, options.num_boxes, seed)
        return level is not None and level.num_pushes >= options.min_pushes

    def task_of(seed: int) -> Task:
        return Task(
            environment=ENVIRONMENT_ID,
            version=options.version,
            data_hash="",
            task_id=f"{options.size}x{options.size}-{options.num_boxes}/{seed:05}",
            seed=seed,
            split=split,
            goal=f"push {options.num_boxes} box{'es' * (options.num_boxes > 1)} onto targets",
        )

    return procedural_tasks(
        split, limit=limit, content_of=content_of, task_of=task_of, is_wanted=is_wanted
    )


def level_of(task_id: str) -> Level:
    """The level that a task id stands for.

    Raises:
        ValueError: No task has this id.
    """
    match = _TASK_ID.fullmatch(task_id)
    if match is None:
        raise ValueError(
            f"no Sokoban task is called {task_id!r}; ids look like '6x6-1/00012' "
            "(size, boxes, seed)"
        )
    size, num_boxes, seed = int(match[1]), int(match[2]), int(match[3])
    _refuse_if_impossible(size, num_boxes)
    level = make_level(size, num_boxes, seed)
    if level is None:
        raise ValueError(f"no Sokoban task is called {task_id!r}: its seed gives no level")
    return level


def draw_level(options: SokobanOptions, first_seed: int) -> Level:
    """The level of the first seed from `first_seed` on that gives one."""
    seed = first_seed
    while (level := make_level(options.size, options.num_boxes, seed)) is None:
        seed += 1
    return level


def _refuse_if_impossible(size: int, num_boxes: int) -> None:
    if not _MIN_SIZE <= size <= _MAX_SIZE:
        raise ConfigError(f"size must be from {_MIN_SIZE} to {_MAX_SIZE}, got {size}")
    most = min(_MAX_BOXES, (size - 2) ** 2 // 4)
    if not 1 <= num_boxes <= most:
        raise ConfigError(f"num_boxes must be from 1 to {most} for size {size}, got {num_boxes}")
