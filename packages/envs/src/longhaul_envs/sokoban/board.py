"""Sokoban's rules: what a board is, and what a push does to it.

A cell is its number, row by row from the top left, so that a step is an addition and the
searches are fast; the wall around a board keeps steps from running over its edges. Walls
and targets never move and make up the `Board`; player and boxes make up the `Position`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["ACTIONS", "CELL_PIXELS", "Board", "Position", "symmetric_forms"]

ACTIONS = ("up", "down", "left", "right")
CELL_PIXELS = 32
"""Height and width of a cell where a board is drawn."""


class Position(NamedTuple):
    """What moves."""

    player: int
    boxes: frozenset[int]


@dataclass(frozen=True, slots=True)
class Board:
    """What stays. Everything that is not `floor` is wall."""

    size: int
    """Rows and columns, the wall around included."""
    floor: frozenset[int]
    targets: frozenset[int]
    steps: dict[str, int] = field(init=False, compare=False)
    """Action to what it adds to a cell."""
    _floor_bits: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "steps", {"up": -self.size, "down": self.size, "left": -1, "right": 1}
        )
        object.__setattr__(self, "_floor_bits", _bits(self.floor))

    def is_solved(self, position: Position) -> bool:
        """Whether every box is on a target."""
        return position.boxes <= self.targets

    def move(self, position: Position, action: str) -> Position:
        """The position after `action`; the same one if a wall or a second box is in the way."""
        step = self.steps[action]
        ahead = position.player + step
        if ahead not in self.floor:
            return position
        if ahead not in position.boxes:
            return Position(ahead, position.boxes)
        beyond = ahead + step
        if beyond not in self.floor or beyond in position.boxes:
            return position
        return Position(ahead, position.boxes - {ahead} | {beyond})

    def effective_actions(self, position: Position) -> list[str]:
        """The actions that change something."""
        return [action for action in ACTIONS if self.move(position, action) != position]

    def reachable(self, position: Position) -> dict[int, int]:
        """Cells that the player can walk to without a push, each to the step that enters it.

        In order of distance; the player's own cell comes first and is entered by 0.
        """
        open_cells = self.floor - position.boxes
        entered_by = {position.player: 0}
        frontier = [position.player]
        for cell in frontier:  # grows as it is walked through
            for step in self.steps.values():
                reached = cell + step
                if reached in open_cells and reached not in entered_by:
                    entered_by[reached] = step
                    frontier.append(reached)
        return entered_by

    def region(self, position: Position) -> int:
        """The cells of `reachable`, as bits of one number: many times as fast.

        The number grows by all neighbours of its cells at once.
        """
        size, open_cells = self.size, self._floor_bits & ~_bits(position.boxes)
        region, grown = 0, 1 << position.player
        while grown != region:
            region = grown
            grown |= (grown << 1 | grown >> 1 | grown << size | grown >> size) & open_cells
        return region

    def rows(self, position: Position) -> list[str]:
        """The board as text.

        `#` wall, `@` player, `$` box, `.` target, `*` box on target, `+` player on target,
        `_` floor.
        """
        symbols = ["#"] * self.size**2
        for cell in self.floor:
            symbols[cell] = "." if cell in self.targets else "_"
        for cell in position.boxes:
            symbols[cell] = "*" if cell in self.targets else "$"
        symbols[position.player] = "+" if position.player in self.targets else "@"
        starts = range(0, len(symbols), self.size)
        return ["".join(symbols[start : start + self.size]) for start in starts]


def _bits(cells: Iterable[int]) -> int:
    bits = 0
    for cell in cells:
        bits |= 1 << cell
    return bits


def symmetric_forms(rows: Iterable[str]) -> Iterator[str]:
    """The eight turns and reflections of a board's text."""
    grid = [list(row) for row in rows]
    for _ in range(4):
        grid = [list(column) for column in zip(*grid[::-1], strict=True)]
        yield "\n".join("".join(row) for row in grid)
        yield "\n".join("".join(row[::-1]) for row in grid)
