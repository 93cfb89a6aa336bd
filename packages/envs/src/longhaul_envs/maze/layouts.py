"""Mazes: their cells, the one that the authors play, and those that are made from a seed."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from random import Random

from longhaul_envs.task_lists import stable_seed

__all__ = ["DOUBLE_T", "STEPS", "Cell", "Layout", "make_layout"]

Cell = tuple[int, int]
"""Row and column, from 0 at the top left, the wall around included."""

STEPS: Mapping[str, Cell] = {
    "move up": (-1, 0),
    "move down": (1, 0),
    "move left": (0, -1),
    "move right": (0, 1),
}

_SHARE_OPENED = 0.08
"""Of the inner walls of a made maze that are taken away, so that some ways are loops."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which cells are open, and which of them is the goal."""

    rows: tuple[str, ...]
    """`#` for wall, `.` for an open cell."""
    goal: Cell

    def is_open(self, cell: Cell) -> bool:
        """Whether one can stand there."""
        row, column = cell
        return (
            0 <= row < len(self.rows)
            and 0 <= column < len(self.rows[0])
            and self.rows[row][column] == "."
        )

    def move(self, cell: Cell, action: str) -> Cell:
        """Where an action leads; the same cell where a wall is in the way."""
        step = STEPS[action]
        ahead = (cell[0] + step[0], cell[1] + step[1])
        return ahead if self.is_open(ahead) else cell

    def open_cells(self) -> list[Cell]:
        """Every cell that one can stand in, row by row."""
        return [
            (row, column)
            for row, line in enumerate(self.rows)
            for column, sign in enumerate(line)
            if sign == "."
        ]

    def distances(self) -> Mapping[Cell, int]:
        """Steps to the goal from every cell that it can be reached from."""
        return _distances(self)


@cache
def _distances(layout: Layout) -> Mapping[Cell, int]:
    found = {layout.goal: 0}
    frontier = [layout.goal]
    for cell in frontier:  # grows as it is walked through
        for action in STEPS:
            reached = layout.move(cell, action)
            if reached not in found:
                found[reached] = found[cell] + 1
                frontier.append(reached)
    return found


DOUBLE_T = Layout(
    rows=(
        "#############",
        "#.....#.....#",
        "###.#####.###",
        "###.#####.###",
        "###.#####.###",
        "###.......###",
        "######.######",
        "######.######",
        "######.######",
        "#############",
    ),
    goal=(8, 6),
)
"""The maze of LMRL-Gym and AgentGym: two T side by side on the stem of a third."""


@cache
def make_layout(height: int, width: int, seed: int) -> Layout:
    """A maze in which every cell reaches every other one.

    Args:
        height: Rows, the wall around included; odd, at least 7.
        width: Columns, likewise.
        seed: Any integer; together with the other two it decides everything.
    """
    random = Random(stable_seed(f"maze {height} {width} {seed}"))
    grid = [["#"] * width for _ in range(height)]
    grid[1][1] = "."
    path: list[Cell] = [(1, 1)]
    while path:  # depth first, through rooms at odd rows and columns
        row, column = path[-1]
        closed = [
            (down, right)
            for down, right in STEPS.values()
            if 0 < row + 2 * down < height - 1
            and 0 < column + 2 * right < width - 1
            and grid[row + 2 * down][column + 2 * right] == "#"
        ]
        if not closed:
            path.pop()
            continue
        down, right = closed[int(random.random() * len(closed))]
        grid[row + down][column + right] = grid[row + 2 * down][column + 2 * right] = "."
        path.append((row + 2 * down, column + 2 * right))
    for row in range(1, height - 1):
        for column in range(1, width - 1):
            between_rooms = row % 2 != column % 2
            if between_rooms and grid[row][column] == "#" and random.random() < _SHARE_OPENED:
                grid[row][column] = "."
    rooms = [(row, column) for row in range(1, height, 2) for column in range(1, width, 2)]
    goal = rooms[int(random.random() * len(rooms))]
    return Layout(tuple("".join(line) for line in grid), goal)
