"""Sokoban's tasks: a size, a number of boxes and a seed.

A task id is `SIZExSIZE-BOXES/SEED`, e.g. `6x6-1/00012`, or `gym-sokoban/6x6-1/00012` of the other
generator: any instance can play any of them.
The split is decided by a hash of the start that is the same for its eight turns and
reflections, so no test level is a training level seen in a mirror.

With `boxoban` the tasks are levels of that data set, and an id names a file and a place in it, e.g.
`boxoban/unfiltered/train/000/17`.
"""

import re
from dataclasses import dataclass, fields
from pathlib import Path

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs import data
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.sokoban import boxoban
from longhaul_envs.sokoban.board import CELL_PIXELS, Board, Position, symmetric_forms
from longhaul_envs.sokoban.levels import make_level, make_start
from longhaul_envs.task_lists import content_hash, procedural_tasks, stable_seed

__all__ = ["OBSERVATIONS", "SokobanOptions", "draw_start", "source", "start_of", "tasks"]

_TASK_ID = re.compile(r"(gym-sokoban/)?([0-9]+)x\2-([0-9])/([0-9]+)")
_BOXOBAN = "boxoban/"
_MIN_SIZE, _MAX_SIZE, _MAX_BOXES = 5, 10, 4
OBSERVATIONS = ("grid", "relative", "image")
_GENERATORS = ("pulls", "gym-sokoban")


@dataclass(frozen=True, slots=True, kw_only=True)
class SokobanOptions(PackagedOptions):
    """What can be chosen about Sokoban."""

    environment_id = "longhaul/Sokoban-v0"
    episodes_per_process = 16
    rules = ("observation", "box_reward", "step_penalty")

    size: int = 6
    """Rows and columns with the wall around, 5 to 10. Chooses tasks."""
    num_boxes: int = 1
    """Boxes, 1 to 4, and at most 1 for every 4 cells within the wall. Chooses tasks."""
    min_pushes: int = 2
    """Pushes that a listed level takes at least. Chooses tasks."""
    generator: str = "pulls"
    """`pulls`, or `gym-sokoban`: levels as verl-agent plays them, easier. Chooses tasks."""
    observation: str = "grid"
    """`grid`; `relative`: where things are from the player; `image`: a picture. A rule."""
    box_reward: float = 0.0
    """Paid for a box that comes onto a target, and taken back if it leaves. A rule."""
    step_penalty: float = 0.0
    """Taken off for every step. A rule."""
    boxoban: str = ""
    """A set of Boxoban's levels instead of made ones: `unfiltered`, `medium` or `hard`. Chooses
    tasks, and `size`, `num_boxes` and `min_pushes` are then the levels' own."""
    boxoban_folder: str = ""
    """Folder with the sets; empty for that of `trainer data fetch boxoban`."""
    boxoban_levels: int = 1000
    """Levels of each split that are listed at most, at least 1. Chooses tasks."""

    def __post_init__(self) -> None:
        _refuse_if_impossible(self.size, self.num_boxes)
        self._refuse_what_does_not_go_with_boxoban()
        if self.min_pushes < 1:
            raise ConfigError(f"min_pushes must be at least 1, got {self.min_pushes}")
        if self.generator not in _GENERATORS:
            raise ConfigError(
                f"generator must be {' or '.join(_GENERATORS)}, got {self.generator!r}"
            )
        if self.observation not in OBSERVATIONS:
            raise ConfigError(
                f"observation must be {', '.join(OBSERVATIONS[:-1])} or {OBSERVATIONS[-1]}, got "
                f"{self.observation!r}"
            )
        for name in ("box_reward", "step_penalty"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} must lie in [0, 1], got {getattr(self, name)}")

    def _refuse_what_does_not_go_with_boxoban(self) -> None:
        defaults = {field.name: field.default for field in fields(self)}
        of_others = ["boxoban_folder", "boxoban_levels"]
        if self.boxoban:
            of_others = ["size", "num_boxes", "min_pushes", "generator"]
            if self.boxoban not in boxoban.SETS:
                raise ConfigError(
                    f"boxoban must be one of {', '.join(boxoban.SETS)}, got {self.boxoban!r}"
                )
        changed = [name for name in of_others if getattr(self, name) != defaults[name]]
        if changed:
            raise ConfigError(
                f"{changed[0]} = {getattr(self, changed[0])!r} has no effect with boxoban = "
                f"{self.boxoban!r}; leave it out"
            )
        if self.boxoban_levels < 1:
            raise ConfigError(f"boxoban_levels must be at least 1, got {self.boxoban_levels}")

    @property
    def boxoban_root(self) -> Path:
        """The folder that holds Boxoban's sets."""
        return Path(self.boxoban_folder) if self.boxoban_folder else data.folder("boxoban")


def tasks(split: Split, options: SokobanOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`, by seed or in the order of Boxoban's files."""
    if options.boxoban:
        return _boxoban_tasks(split, options)[:limit]

    prefix = "gym-sokoban/" if options.generator == "gym-sokoban" else ""

    def content_of(seed: int) -> str | None:
        made = make_start(options.size, options.num_boxes, seed, options.generator)
        return None if made is None else min(symmetric_forms(made[0].rows(made[1])))

    def is_wanted(seed: int) -> bool:
        level = make_level(options.size, options.num_boxes, seed, options.generator)
        return level is not None and level.num_pushes >= options.min_pushes

    def task_of(seed: int) -> Task:
        return options.task(
            f"{prefix}{options.size}x{options.size}-{options.num_boxes}/{seed:05}",
            split,
            goal=f"push {options.num_boxes} box{'es' * (options.num_boxes > 1)} onto targets",
            seed=seed,
        )

    return procedural_tasks(
        split, limit=limit, content_of=content_of, task_of=task_of, is_wanted=is_wanted
    )


def _boxoban_tasks(split: Split, options: SokobanOptions) -> tuple[Task, ...]:
    root = options.boxoban_root
    names = boxoban.level_ids(root, options.boxoban, options.boxoban_levels)[split]
    starts = {name: boxoban.level_at(root, name) for name in names}
    rows = {name: "\n".join(board.rows(start)) for name, (board, start) in starts.items()}
    data_hash = content_hash("\n".join(rows.values()))
    return tuple(
        options.task(
            f"{_BOXOBAN}{name}",
            split,
            goal=f"push {len(starts[name][1].boxes)} boxes onto targets",
            seed=stable_seed(rows[name]),
            data_hash=data_hash,
        )
        for name in names
    )


def start_of(task_id: str, options: SokobanOptions) -> tuple[Board, Position]:
    """The board and the start that a task id stands for.

    Raises:
        ValueError: No task has this id.
    """
    if task_id.startswith(_BOXOBAN):
        return boxoban.level_at(options.boxoban_root, task_id.removeprefix(_BOXOBAN))
    match = _TASK_ID.fullmatch(task_id)
    if match is None:
        raise ValueError(
            f"no Sokoban task is called {task_id!r}; ids look like '6x6-1/00012' "
            "(size, boxes, seed) or 'boxoban/unfiltered/train/000/17' (set, file, place)"
        )
    generator = "gym-sokoban" if match[1] else "pulls"
    size, num_boxes, seed = int(match[2]), int(match[3]), int(match[4])
    _refuse_if_impossible(size, num_boxes)
    level = make_level(size, num_boxes, seed, generator)
    if level is None:
        raise ValueError(f"no Sokoban task is called {task_id!r}: its seed gives no level")
    return level.board, level.start


def draw_start(options: SokobanOptions, draw: int) -> tuple[Board, Position]:
    """A training level of Boxoban by its place, or the first level made from a seed on."""
    if options.boxoban:
        listed = _boxoban_tasks(Split.TRAIN, options)
        return start_of(listed[draw % len(listed)].task_id, options)
    seed = draw
    made = options.size, options.num_boxes
    while (level := make_level(*made, seed, options.generator)) is None:
        seed += 1
    return level.board, level.start


def _refuse_if_impossible(size: int, num_boxes: int) -> None:
    if not _MIN_SIZE <= size <= _MAX_SIZE:
        raise ConfigError(f"size must be from {_MIN_SIZE} to {_MAX_SIZE}, got {size}")
    most = min(_MAX_BOXES, (size - 2) ** 2 // 4)
    if not 1 <= num_boxes <= most:
        raise ConfigError(f"num_boxes must be from 1 to {most} for size {size}, got {num_boxes}")


_RULES = (
    "You push boxes onto targets. Moving into a box pushes it one cell if the cell behind it is "
    "free; boxes cannot be pulled. The moves are up, down, left and right."
)

_SEEN = {
    "grid": (
        "In the grid, # is wall, @ is you, $ is a box, . is a target, * is a box on a target, + is "
        "you on a target, _ is floor."
    ),
    "relative": "Places are given as seen from you.",
    "image": (
        "The picture shows the room from above: bricks are wall, the blue circle is you, a yellow "
        "crate is a box, a red dot is a target, a green crate with a red dot is a box on a target."
    ),
}


def _prompt(options: SokobanOptions) -> EnvironmentPrompt:
    return EnvironmentPrompt(
        system=f"{_RULES} {_SEEN[options.observation]}", instruction="What is the next move?"
    )


source = PackagedSource(
    SokobanOptions,
    tasks,
    lambda options: options.description(
        summary="push boxes onto targets; every level proved solvable",
        prompt=_prompt(options),
        actions="`up`, `down`, `left` or `right`",
        shows_pictures=options.observation == "image",
        # Boxoban's levels have sizes of their own.
        picture_pixels=None if options.boxoban else (CELL_PIXELS * options.size) ** 2,
    ),
)
