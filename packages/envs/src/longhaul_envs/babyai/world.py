"""A MiniGrid world with names for its objects, a memory of what was seen, and a way to walk.

This is the only file of the folder that touches MiniGrid's objects. Cells are (column, row)
and directions 0 to 3 clockwise from east, as MiniGrid has them. An object's name is fixed at
the start of the episode (`red ball 1`, numbered by row and column among its equals), so that
it does not depend on the way by which the agent first saw it.

Array axes: X columns and Y rows of the world; U cells across and V cells away in the view,
C channels.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, STATE_TO_IDX
from minigrid.core.world_object import Door, WorldObj
from minigrid.envs.babyai.core import roomgrid_level
from minigrid.minigrid_env import MiniGridEnv

from longhaul_envs.babyai.levels import ids_by_level
from longhaul_envs.task_lists import content_hash

__all__ = ["Cell", "InView", "Move", "Outcome", "Place", "Sight", "World"]


def _say_nothing(*_: object) -> None:
    pass


# The level generator prints each rejected draw; a module's own `print` hides the built-in one.
roomgrid_level.__dict__["print"] = _say_nothing

_STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))
_KINDS = ("key", "ball", "box", "door")
_DOOR_STATES = {index: state for state, index in STATE_TO_IDX.items()}

Cell = tuple[int, int]


class Move(IntEnum):
    """MiniGrid's own actions, by its numbers."""

    LEFT = 0
    RIGHT = 1
    FORWARD = 2
    PICKUP = 3
    DROP = 4
    TOGGLE = 5


class Place(NamedTuple):
    """Where the agent stands and looks."""

    column: int
    row: int
    direction: int

    @property
    def cell(self) -> Cell:
        """The cell that it is in."""
        return self.column, self.row

    @property
    def front(self) -> Cell:
        """The cell in front."""
        step = _STEPS[self.direction]
        return self.column + step[0], self.row + step[1]

    def after(self, move: Move) -> "Place":
        """The place after a step, which nothing stops, or a turn; another move changes none."""
        if move is Move.FORWARD:
            return self._replace(column=self.front[0], row=self.front[1])
        turn = {Move.RIGHT: 1, Move.LEFT: -1}.get(move, 0)
        return self._replace(direction=(self.direction + turn) % 4)


class Outcome(NamedTuple):
    """How a sequence of moves ended."""

    reward: float
    """MiniGrid's own, in [0, 1]."""
    terminated: bool
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """An object that the agent knows of and does not carry."""

    name: str
    kind: str
    state: str
    """`open`, `closed` or `locked` for a door, otherwise empty."""
    cell: Cell
    ahead: int
    """Cells in front of the agent; negative if behind."""
    right: int
    """Cells to the right; negative if to the left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InView:
    """An object or a piece of wall that is in view at this moment."""

    kind: str
    """`key`, `ball`, `box`, `door` or `wall`."""
    color: str
    state: str
    """As in `Sight`."""
    cell: Cell
    ahead: int
    """Cells in front of the agent, at least 0."""
    right: int
    """Cells to the right; negative if to the left."""

    @property
    def look(self) -> str:
        """Colour, state and kind: `red locked door`, `grey box`."""
        return " ".join(filter(None, (self.color, self.state, self.kind)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ways:
    """The result of one breadth-first search from where the agent is."""

    reached_by: Mapping[Place, tuple[Place, Move] | None]
    """Every reachable place to the one before it and the move between them."""
    ranks: Mapping[Place, int]
    """Order of distance."""
    facing: Mapping[Cell, Place]
    """Cell to the nearest place from which it is in front."""


class World:
    """One MiniGrid level, played."""

    def __init__(self, level: str) -> None:
        environment = gymnasium.make(ids_by_level()[level], disable_env_checker=True).unwrapped
        assert isinstance(environment, MiniGridEnv)
        self.minigrid: Any = environment
        """Untyped on purpose: BabyAI's levels add attributes that MiniGrid's types lack."""
        self.level = level
        self.seed = -1
        self.moves: list[Move] = []
        """Made since the reset."""
        self.known_XY: npt.NDArray[np.bool_] = np.zeros((0, 0), dtype=bool)
        self._names: list[tuple[str, WorldObj]] = []
        self.view_UVC: npt.NDArray[np.uint8] = np.zeros((0, 0, 3), dtype=np.uint8)
        """MiniGrid's image of what is in view; see `_look`."""
        self._ways: _Ways | None = None

    def reset(self, seed: int) -> None:
        """Build the level of `seed` and look around once."""
        seen, _ = self.minigrid.reset(seed=seed)
        self.seed = seed
        self.moves = []
        self.known_XY = np.zeros((self.minigrid.width, self.minigrid.height), dtype=bool)
        self._names = []
        counts: dict[str, int] = {}
        carried = self.minigrid.carrying  # some levels put something into the agent's hands
        for found in (*(item for _, item in self._cells()), carried):
            for item in (found, getattr(found, "contains", None)):
                if isinstance(item, WorldObj) and item.type in _KINDS:
                    look = f"{item.color} {item.type}"
                    counts[look] = counts[look] + 1 if look in counts else 1
                    self._names.append((f"{look} {counts[look]}", item))
        self._look(seen["image"])

    @property
    def mission(self) -> str:
        """The instruction, in BabyAI's language."""
        return str(self.minigrid.mission)

    @property
    def place(self) -> Place:
        """Where the agent is."""
        column, row = self.minigrid.agent_pos
        return Place(int(column), int(row), int(self.minigrid.agent_dir))

    @property
    def carried(self) -> str | None:
        """Name of the carried object."""
        held = self.minigrid.carrying
        return None if held is None else self._name_of(held)

    @property
    def carried_key_color(self) -> str | None:
        """Colour of the carried key."""
        held = self.minigrid.carrying
        return str(held.color) if held is not None and held.type == "key" else None

    def snapshot(self) -> str:
        """A hash of the whole state: world, agent, instruction, progress, and what is known."""
        grid = np.ascontiguousarray(self.minigrid.grid.encode()).tobytes().hex()
        parts = (self.mission, grid, self.place, self.carried, self._progress())
        return content_hash(repr((*parts, self.known_XY.tobytes().hex())))

    def picture(self) -> npt.NDArray[np.uint8]:
        """MiniGrid's picture, of shape (height, width, 3) with 32 pixels a cell."""
        frame = self.minigrid.get_frame(highlight=True, tile_size=32, agent_pov=False)
        return np.asarray(frame, dtype=np.uint8)

    def layout(self) -> str:
        """Everything that the start of an episode consists of, as text."""
        grid = np.ascontiguousarray(self.minigrid.grid.encode()).tobytes().hex()
        inside = [f"{name}" for name, item in self._names if getattr(item, "contains", None)]
        return f"{self.mission} | {self.place} | {self.carried} | {inside} | {grid}"

    def forget(self) -> None:
        """Know nothing but what is in view now."""
        self.known_XY[:] = False
        self._look(self.view_UVC)

    def carry_out(self, moves: Sequence[Move]) -> Outcome:
        """Make `moves` in order, looking after each, until they or the episode end."""
        outcome = Outcome(0.0, terminated=False, truncated=False)
        for move in moves:
            seen, reward, terminated, truncated, _ = self.minigrid.step(move)
            self.moves.append(move)
            self._look(seen["image"])
            # MiniGrid's limit truncates a last move also where it ends the mission
            cut_off = bool(truncated and not terminated)
            outcome = Outcome(float(reward), bool(terminated), cut_off)
            if outcome.terminated or outcome.truncated:
                break
        return outcome

    def sights(self) -> list[Sight]:
        """Every known object, nearest first; equally near ones by name."""
        place = self.place
        ahead_u, ahead_v = _STEPS[place.direction]
        found: list[Sight] = []
        for cell, item in self._cells():
            if item is None or item.type not in _KINDS or not self.known_XY[cell]:
                continue
            u, v = cell[0] - place.column, cell[1] - place.row
            sight = Sight(
                name=self._name_of(item),
                kind=item.type,
                state=_door_state(item) if isinstance(item, Door) else "",
                cell=cell,
                ahead=u * ahead_u + v * ahead_v,
                right=v * ahead_u - u * ahead_v,
            )
            found.append(sight)
        return sorted(found, key=lambda s: (abs(s.ahead) + abs(s.right), s.name))

    def in_view(self) -> list[InView]:
        """What is in view, the farthest row first and each from left to right."""
        size = self.view_UVC.shape[0]
        found: list[InView] = []
        for away in range(size):
            for across in range(size):
                kind, color, state = map(int, self.view_UVC[across, away])
                ahead, right = size - 1 - away, across - size // 2
                name = IDX_TO_OBJECT[kind]
                if name in (*_KINDS, "wall") and (ahead or right):  # what is carried lies at (0, 0)
                    found.append(
                        InView(
                            kind=name,
                            color=IDX_TO_COLOR[color],
                            state=_DOOR_STATES[state] if name == "door" else "",
                            cell=self._cell_at(ahead, right),
                            ahead=ahead,
                            right=right,
                        )
                    )
        return found

    def window(self) -> tuple[range, range]:
        """Columns and rows of the view, as AgentGym's server bounds its walks.

        Towards smaller numbers each goes on for a cell beyond what is in view.
        """
        size = self.view_UVC.shape[0]
        first = self._cell_at(size - 1, -(size // 2))
        end = self._cell_at(-1, size - size // 2)
        columns, rows = (
            range(one, other) if one < other else range(other, one + 1)
            for one, other in zip(first, end, strict=True)
        )
        return columns, rows

    def free_ahead(self) -> int:
        """Known cells in front of the agent that can be walked on, up to the first that cannot."""
        place = self.place
        count = 0
        while self.is_walkable(place.front):
            count += 1
            place = Place(*place.front, place.direction)
        return count

    def is_walkable(self, cell: Cell) -> bool:
        """Whether `cell` is known, and empty or an open door."""
        if not self.known_XY[cell]:
            return False
        item = self.minigrid.grid.get(*cell)
        return item is None or bool(item.can_overlap())

    def is_empty(self, cell: Cell) -> bool:
        """Whether `cell` is known and something can be put down there."""
        return bool(self.known_XY[cell]) and self.minigrid.grid.get(*cell) is None

    def way_to_face(self, cells: Iterable[Cell]) -> list[Move] | None:
        """The fewest turns and steps over known free cells to face one of `cells`.

        Returns:
            No move if one is faced already; None if none of them can be faced.
        """
        ways = self._all_ways()
        facing = [ways.facing[cell] for cell in cells if cell in ways.facing]
        if not facing:
            return None
        place = min(facing, key=lambda place: ways.ranks[place])
        moves: list[Move] = []
        while (link := ways.reached_by[place]) is not None:
            place, move = link
            moves.append(move)
        return moves[::-1]

    def name_at(self, cell: Cell) -> str | None:
        """Name of the object in `cell`."""
        item = self.minigrid.grid.get(*cell)
        return None if item is None or item.type not in _KINDS else self._name_of(item)

    def names_faced(self, moves: Iterable[Move]) -> list[str]:
        """The names of what stands in front of the agent after each of `moves`."""
        places = accumulate(moves, Place.after, initial=self.place)
        return [name for place in places if (name := self.name_at(place.front)) is not None]

    def _look(self, view_UVC: npt.NDArray[np.uint8]) -> None:
        """Add what is in view to what is known.

        Args:
            view_UVC: MiniGrid's image, cells across, away (the last is the agent's own row)
                and channels, of which the first is 0 where the agent does not see.
        """
        size = view_UVC.shape[0]
        place = self.place
        ahead_u, ahead_v = _STEPS[place.direction]
        across, away = np.nonzero(view_UVC[:, :, 0])
        right, ahead = across - size // 2, size - 1 - away
        columns = place.column + ahead * ahead_u - right * ahead_v
        rows = place.row + ahead * ahead_v + right * ahead_u
        inside = (columns >= 0) & (columns < self.known_XY.shape[0])
        inside &= (rows >= 0) & (rows < self.known_XY.shape[1])
        self.known_XY[columns[inside], rows[inside]] = True
        self.view_UVC = view_UVC
        self._ways = None

    def _cell_at(self, ahead: int, right: int) -> Cell:
        """The cell so many in front of the agent and to its right."""
        place = self.place
        ahead_u, ahead_v = _STEPS[place.direction]
        return (
            place.column + ahead * ahead_u - right * ahead_v,
            place.row + ahead * ahead_v + right * ahead_u,
        )

    def _all_ways(self) -> "_Ways":
        """Where the agent can get to without opening or moving anything."""
        if self._ways is not None:
            return self._ways
        reached_by: dict[Place, tuple[Place, Move] | None] = {self.place: None}
        queue = [self.place]
        for place in queue:  # grows as it is walked through
            column, row, direction = place
            following = [
                (Move.LEFT, Place(column, row, (direction - 1) % 4)),
                (Move.RIGHT, Place(column, row, (direction + 1) % 4)),
            ]
            if self.is_walkable(front := place.front):
                following.insert(0, (Move.FORWARD, Place(*front, direction)))
            for move, reached in following:
                if reached not in reached_by:
                    reached_by[reached] = (place, move)
                    queue.append(reached)
        facing: dict[Cell, Place] = {}
        for place in queue:
            facing.setdefault(place.front, place)
        ranks = {place: rank for rank, place in enumerate(queue)}
        self._ways = _Ways(reached_by=reached_by, ranks=ranks, facing=facing)
        return self._ways

    def _cells(self) -> Iterator[tuple[Cell, WorldObj | None]]:
        """Cells with their contents, row by row."""
        width = int(self.minigrid.grid.width)
        for index, item in enumerate(self.minigrid.grid.grid):
            yield (index % width, index // width), item

    def _name_of(self, item: WorldObj) -> str:
        return next(name for name, named in self._names if named is item)

    def _progress(self) -> list[str]:
        """Which parts of a compound instruction are done."""
        instruction = self.minigrid.instrs
        return [str(getattr(instruction, part, "")) for part in ("a_done", "b_done")]


def _door_state(door: Door) -> str:
    if door.is_open:
        return "open"
    return "locked" if door.is_locked else "closed"
