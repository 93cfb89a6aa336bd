"""Maze's tasks: a maze, a goal in it, and a cell to start from.

A task id is `double_t/ROW-COLUMN`, e.g. `double_t/1-5`, or `HEIGHTxWIDTH/SEED`, e.g.
`9x13/00042`. Starts in the double T are shared out; a made maze belongs to one split, whatever
the start: no test maze is walked in training.
"""

import re
from dataclasses import dataclass
from functools import cache
from random import Random

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.maze.layouts import DOUBLE_T, Cell, Layout, make_layout
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.task_lists import procedural_tasks, shared_out, stable_seed

__all__ = [
    "OBSERVATIONS",
    "REWARDS",
    "MazeOptions",
    "draw_start",
    "source",
    "start_of",
    "tasks",
]

_MAZES = ("double_t", "random")
OBSERVATIONS = ("position", "walls", "grid")
_MIN_SIZE, _MAX_SIZE = 7, 31
_TASK_ID = re.compile(r"([0-9]{1,2})x([0-9]{1,2})/([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class RewardRule:
    """What a step is paid."""

    at_goal: float
    elsewhere: float
    unreadable: float
    """For an action that is none of the four."""


REWARDS = {
    "success": RewardRule(at_goal=1.0, elsewhere=0.0, unreadable=0.0),
    "standard_reward": RewardRule(at_goal=0.0, elsewhere=-1.0, unreadable=-4.0),
    "illegal_penalty_reward": RewardRule(at_goal=1.0, elsewhere=0.0, unreadable=-1.0),
    "illegal_penalty_diff_scale": RewardRule(at_goal=1.0, elsewhere=-1.0, unreadable=-100.0),
}
"""AgentGym's, and LMRL-Gym's three under their names there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MazeOptions(PackagedOptions):
    """What can be chosen about Maze."""

    environment_id = "longhaul/Maze-v0"
    episodes_per_process = 16
    rules = ("observation", "reward")

    mazes: tuple[str, ...] = _MAZES
    """`double_t`, `random`, or both. Chooses tasks."""
    height: int = 9
    """Rows of a random maze with the wall around, odd, 7 to 31. Chooses tasks."""
    width: int = 13
    """Columns, likewise. Chooses tasks."""
    min_steps: int = 4
    """Steps that a random maze takes at least. Chooses tasks."""
    max_steps: int = 50
    """Steps that a random maze takes at most, on the shortest way. Chooses tasks."""
    observation: str = "position"
    """`position`: goal, own position and walls beside; `walls`: walls beside alone; `grid`: the
    whole maze. A rule."""
    reward: str = "success"
    """`success`, `standard_reward`, `illegal_penalty_reward` or `illegal_penalty_diff_scale`. A
    rule."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.mazes if name not in _MAZES]
        if unknown or not self.mazes or len(set(self.mazes)) < len(self.mazes):
            raise ConfigError(
                f"mazes must be one or more of {', '.join(_MAZES)}, each once, got "
                f"{list(self.mazes)}"
            )
        _refuse_impossible_size(self.height, self.width)
        if not 1 <= self.min_steps <= self.max_steps:
            raise ConfigError(
                "min_steps must be at least 1 and at most max_steps, got "
                f"{self.min_steps} and {self.max_steps}"
            )
        if self.observation not in OBSERVATIONS:
            raise ConfigError(
                f"observation must be one of {', '.join(OBSERVATIONS)}, got {self.observation!r}"
            )
        if self.reward not in REWARDS:
            raise ConfigError(f"reward must be one of {', '.join(REWARDS)}, got {self.reward!r}")


def tasks(split: Split, options: MazeOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`: starts in the double T first, then made mazes by seed."""
    listed: list[Task] = []
    if "double_t" in options.mazes:
        listed += [_task(task_id, split, options) for task_id in _double_t_starts()[split]]
    if "random" in options.mazes:
        rest = None if limit is None else max(0, limit - len(listed))
        listed += _made(split, options, rest)
    return tuple(listed[:limit])


def start_of(task_id: str) -> tuple[Layout, Cell]:
    """The maze of a task, and the cell to start from.

    Raises:
        ValueError: No task has this id.
    """
    if any(task_id in starts for starts in _double_t_starts().values()):
        row, column = task_id.removeprefix("double_t/").split("-")
        return DOUBLE_T, (int(row), int(column))
    match = _TASK_ID.fullmatch(task_id)
    if match is None:
        raise ValueError(
            f"no Maze task is called {task_id!r}; ids look like 'double_t/1-5' (row, column) or "
            "'9x13/00042' (height, width, seed)"
        )
    height, width, seed = map(int, match.groups())
    _refuse_impossible_size(height, width)
    return _made_start(height, width, seed)


def draw_start(options: MazeOptions, seed: int) -> tuple[Layout, Cell]:
    """A maze and a start of any split; the same seed draws the same ones."""
    if options.mazes[seed % len(options.mazes)] == "double_t":
        every = [task_id for split in Split for task_id in _double_t_starts()[split]]
        return start_of(every[stable_seed(f"double_t {seed}") % len(every)])
    return _made_start(options.height, options.width, seed)


def _made(split: Split, options: MazeOptions, limit: int | None) -> tuple[Task, ...]:
    height, width = options.height, options.width

    def is_wanted(seed: int) -> bool:
        layout, start = _made_start(height, width, seed)
        return options.min_steps <= layout.distances()[start] <= options.max_steps

    return procedural_tasks(
        split,
        limit=limit,
        content_of=lambda seed: "\n".join(make_layout(height, width, seed).rows),
        task_of=lambda seed: _task(f"{height}x{width}/{seed:05}", split, options),
        is_wanted=is_wanted,
    )


def _task(task_id: str, split: Split, options: MazeOptions) -> Task:
    return options.task(task_id, split, goal="reach the goal of the maze")


@cache
def _double_t_starts() -> dict[Split, list[str]]:
    return shared_out(
        f"double_t/{row}-{column}"
        for row, column in DOUBLE_T.open_cells()
        if (row, column) != DOUBLE_T.goal
    )


def _made_start(height: int, width: int, seed: int) -> tuple[Layout, Cell]:
    layout = make_layout(height, width, seed)
    starts = [cell for cell in layout.open_cells() if cell != layout.goal]
    random = Random(stable_seed(f"maze start {height} {width} {seed}"))
    return layout, starts[int(random.random() * len(starts))]


def _refuse_impossible_size(height: int, width: int) -> None:
    for name, size in (("height", height), ("width", width)):
        if not _MIN_SIZE <= size <= _MAX_SIZE or size % 2 == 0:
            raise ConfigError(f"{name} must be odd and from {_MIN_SIZE} to {_MAX_SIZE}, got {size}")


_RULES = (
    "You walk through a maze to its goal, one cell a step. The actions are: move up, move down, "
    "move left, move right. A wall stops you."
)
_SEEN = {
    "position": (
        "Positions are row, column, from 0, 0 at the top left: moving down adds one to the row, "
        "moving right adds one to the column."
    ),
    "walls": "You see only the walls beside you; remember where you went.",
    "grid": "In the grid, # is wall, @ is you, G is the goal, . is free.",
}


def _prompt(options: MazeOptions) -> EnvironmentPrompt:
    return EnvironmentPrompt(
        system=f"{_RULES} {_SEEN[options.observation]}", instruction="What is the next move?"
    )


source = PackagedSource(
    MazeOptions,
    tasks,
    lambda options: options.description(
        summary="find the way through a maze, seeing little of it",
        prompt=_prompt(options),
        actions="`move up`, `move down`, `move left` or `move right`",
    ),
)
