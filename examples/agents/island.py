"""A small island with a treasure: what the agents of this folder play, and the tasks they get.

Nothing here knows of Longhaul: the agents move about on a grid of squares and learn in which
direction the treasure lies only by what they are told.
"""

import json
import os

SIZE = 4
"""Squares in a row."""
MOVES = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
MOST_MOVES = 6
RULES = (
    f"You are on an island of {SIZE} by {SIZE} squares, and a treasure is buried on one of them. "
    f"You can go up, down, left or right, {MOST_MOVES} times."
)


class Island:
    """One hunt. Reaching the treasure is worth 1, and each step nearer to it 0.1."""

    def __init__(self, task: dict[str, list[int]]) -> None:
        self._here, self._treasure = tuple(task["start"]), tuple(task["treasure"])
        self.num_moves = 0
        self.reward = 0.0
        """Of the last move."""
        self.total = 0.0

    @property
    def found(self) -> bool:
        return self._here == self._treasure

    @property
    def is_over(self) -> bool:
        return self.found or self.num_moves >= MOST_MOVES

    @property
    def state(self) -> str:
        """Where the agent is, and where the treasure: what decides what is best now."""
        return f"{self._here} {self._treasure}"

    def look(self) -> str:
        """What the agent is told."""
        if self.found:
            return "You found the treasure!"
        x, y = self._here
        to_x, to_y = self._treasure
        ways = ["right" if to_x > x else "left"] * (to_x != x)
        ways += ["down" if to_y > y else "up"] * (to_y != y)
        return f"You are on square {x},{y}. The treasure lies {' and '.join(ways)} of you."

    def move(self, direction: str) -> str:
        """Go one square; returns what the agent is told then."""
        self.num_moves += 1
        before = self._distance()
        if direction not in MOVES:
            self.reward = 0.0
            return f"There is no way {direction!r}; say up, down, left or right."
        self._here = tuple(
            min(max(place + by, 0), SIZE - 1)
            for place, by in zip(self._here, MOVES[direction], strict=True)
        )
        self.reward = 1.0 if self.found else 0.1 * (before - self._distance())
        self.total += self.reward
        return self.look()

    def _distance(self) -> int:
        return sum(abs(a - b) for a, b in zip(self._here, self._treasure, strict=True))


HUNTS = [
    {"start": [x, y], "treasure": [to_x, to_y]}
    for x in range(SIZE)
    for y in range(SIZE)
    for to_x in range(SIZE)
    for to_y in range(SIZE)
    if (x, y) != (to_x, to_y)
]
"""Every hunt there is: `tasks.source = "island:HUNTS"`."""


def task_here() -> dict[str, list[int]]:
    """The task of this program: the run's, or the first one where it is tried by hand."""
    path = os.environ.get("LONGHAUL_TASK_FILE")
    if path is None:
        return HUNTS[0]
    with open(path, encoding="utf-8") as file:
        return json.load(file)
