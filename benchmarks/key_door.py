"""Two rooms, a key, a locked door, a goal: the world of `learning.py`.

The left room holds the agent and the key, the right one the goal; the wall between them has one
door. The agent must stand on the key to take it, and west of the door, with the key, to unlock
it. Only the step that reaches the goal is rewarded. Walls, and actions that do nothing, cost
nothing but a step. The whole state is in each observation, in words of one token each.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Gymnasium is typed in part.

from typing import Any

import gymnasium

from longhaul_envs.text import text_space

ID = "longhaul-benchmarks/KeyDoor-v0"
ROOM_SIZE = 7
"""Cells across and down each room."""
DOOR_COLUMN = ROOM_SIZE
NUM_COLUMNS = 2 * ROOM_SIZE + 1
MOVES = {"north": (-1, 0), "south": (1, 0), "west": (0, -1), "east": (0, 1)}
ACTIONS = (*MOVES, "take", "unlock")
WORDS = (
    *("key", "taken", "-", "door", "shut", "open", "goal", "level"),
    *map(str, range(NUM_COLUMNS)),
)
"""Of the observations, beside the moves."""

Cell = tuple[int, int]


class KeyDoor(gymnasium.Env[str, str]):
    """A task is a seed, and the seed's layout decides its split: splits share no layout."""

    observation_space = action_space = text_space()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Lay out the rooms."""
        super().reset(seed=seed)
        del options
        at, key = self.np_random.choice(ROOM_SIZE**2, size=2, replace=False).tolist()
        goal = int(self.np_random.integers(ROOM_SIZE**2))
        self.at: Cell = divmod(at, ROOM_SIZE)
        self.key: Cell | None = divmod(key, ROOM_SIZE)
        self.goal: Cell = (goal // ROOM_SIZE, DOOR_COLUMN + 1 + goal % ROOM_SIZE)
        self.door: Cell = (int(self.np_random.integers(ROOM_SIZE)), DOOR_COLUMN)
        self.shut = True
        return self._observation(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Do `action`, or nothing where it cannot be done."""
        if action in MOVES and self._is_free(cell := _beside(self.at, action)):
            self.at = cell
        elif action == "take" and self.at == self.key:
            self.key = None
        elif action == "unlock" and self.key is None and _beside(self.at, "east") == self.door:
            self.shut = False
        won = self.at == self.goal
        return self._observation(), float(won), won, False, {"success": won}

    def place_to_go(self) -> Cell:
        """Where the expert would go next: the key, the cell west of the door, the goal."""
        if self.key is not None:
            return self.key
        return _beside(self.door, "west") if self.shut else self.goal

    def room_corners(self) -> list[Cell]:
        """Of the room that the agent is in."""
        west = 0 if self.at[1] <= DOOR_COLUMN else DOOR_COLUMN + 1
        last = ROOM_SIZE - 1
        return [(row, west + column) for row in (0, last) for column in (0, last)]

    def action_toward(self, place: Cell) -> str:
        """The next step of a shortest way, rows before columns; what is to be done there if there.

        Args:
            place: A cell of this room, or, with the door open, of the right one.
        """
        if self.at == place:
            return "unlock" if self.key is None else "take"
        if self.at[1] <= DOOR_COLUMN < place[1]:
            west_of_it = _beside(self.door, "west")
            return "east" if self.at in (west_of_it, self.door) else _toward(self.at, west_of_it)
        return _toward(self.at, place)

    def _is_free(self, cell: Cell) -> bool:
        row, column = cell
        if column == DOOR_COLUMN:
            return cell == self.door and not self.shut
        return 0 <= row < ROOM_SIZE and 0 <= column < NUM_COLUMNS

    def _observation(self) -> str:
        """Always 16 words: `key north 2 west 1 door south 0 east 3 shut goal south 1 east 8`."""
        key = "taken - - -" if self.key is None else _way(self.at, self.key)
        door = f"{_way(self.at, self.door)} {'shut' if self.shut else 'open'}"
        return f"key {key} door {door} goal {_way(self.at, self.goal)}"


def _way(start: Cell, end: Cell) -> str:
    """How far `end` lies from `start`, down and across."""
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


gymnasium.register(ID, entry_point=f"{__name__}:KeyDoor")
