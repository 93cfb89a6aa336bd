"""KeyDoor's world: two rooms, a key in the left one, a goal in the right one, a door between."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

__all__ = ["ACTIONS", "MOVES", "Cell", "Rooms"]

Cell = tuple[int, int]
"""Row and column, from the north-west corner of the left room."""

MOVES = {"north": (-1, 0), "south": (1, 0), "west": (0, -1), "east": (0, 1)}
ACTIONS = (*MOVES, "take", "unlock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """Where everything is."""

    size: int
    """Cells across and down each room; the wall between them is column `size`."""
    at: Cell
    """The agent's."""
    key: Cell | None
    """None once it is taken."""
    door: Cell
    goal: Cell
    is_shut: bool = True

    @classmethod
    def laid_out(cls, size: int, seed: int) -> Self:
        """Drawn by `seed`: the agent and the key in the left room, the goal in the right one."""
        draw = np.random.default_rng(seed)
        at, key = draw.choice(size**2, size=2, replace=False).tolist()
        goal = int(draw.integers(size**2))
        return cls(
            size=size,
            at=divmod(at, size),
            key=divmod(key, size),
            goal=(goal // size, size + 1 + goal % size),
            door=(int(draw.integers(size)), size),
        )

    @property
    def is_won(self) -> bool:
        """Whether the agent is at the goal."""
        return self.at == self.goal

    def after(self, action: str) -> Self:
        """The rooms after one of `ACTIONS`; themselves where it does nothing.

        `take` needs the key's cell. `unlock` needs the key, and the cell west of the door.
        """
        if action in MOVES and self._is_free(cell := _beside(self.at, action)):
            return replace(self, at=cell)
        if action == "take" and self.at == self.key:
            return replace(self, key=None)
        if action == "unlock" and self.key is None and self.is_shut and self.at == self.before_door:
            return replace(self, is_shut=False)
        return self

    @property
    def before_door(self) -> Cell:
        """The cell west of the door."""
        return _beside(self.door, "west")

    def in_words(self) -> str:
        """16 words: `key north 2 west 1 door south 0 east 3 shut goal south 1 east 8`."""
        key = "taken - - -" if self.key is None else _way(self.at, self.key)
        door = f"{_way(self.at, self.door)} {'shut' if self.is_shut else 'open'}"
        return f"key {key} door {door} goal {_way(self.at, self.goal)}"

    def place_to_go(self) -> Cell:
        """Where the expert goes next: the key, the cell west of the door, the goal."""
        if self.key is not None:
            return self.key
        return self.before_door if self.is_shut else self.goal

    def room_corners(self) -> list[Cell]:
        """Of the room that the agent is in."""
        west = 0 if self.at[1] <= self.size else self.size + 1
        last = self.size - 1
        return [(row, west + column) for row in (0, last) for column in (0, last)]

    def action_toward(self, place: Cell) -> str:
        """The next step of a shortest way, rows before columns; there, what is to be done there.

        Args:
            place: A cell of this room, or, with the door open, of the right one.
        """
        if self.at == place:
            return "unlock" if self.key is None else "take"
        if self.at[1] <= self.size < place[1]:
            through = self.at in (self.before_door, self.door)
            return "east" if through else _toward(self.at, self.before_door)
        return _toward(self.at, place)

    def _is_free(self, cell: Cell) -> bool:
        row, column = cell
        if column == self.size:
            return cell == self.door and not self.is_shut
        return 0 <= row < self.size and 0 <= column <= 2 * self.size


def _way(start: Cell, end: Cell) -> str:
    """How far `end` is from `start`, down and across."""
    down, across = end[0] - start[0], end[1] - start[1]
    return (
        f"{'level' if down == 0 else 'south' if down > 0 else 'north'} {abs(down)} "
        f"{'level' if across == 0 else 'east' if across > 0 else 'west'} {abs(across)}"
    )


def _beside(cell: Cell, move: str) -> Cell:
    return cell[0] + MOVES[move][0], cell[1] + MOVES[move][1]


def _toward(start: Cell, end: Cell) -> str:
    if start[0] != end[0]:
        return "south" if end[0] > start[0] else "north"
    return "east" if end[1] > start[1] else "west"
