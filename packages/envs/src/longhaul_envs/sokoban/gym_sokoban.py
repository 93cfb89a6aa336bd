"""Levels as gym-sokoban makes them, in the form of verl-agent, whose figures are of such levels.

A walk stamps small shapes of floor into the wall; boxes stand on their targets, and a search plays
backwards, each move pulling a box where it can. The start is the first state that scores highest:
how far the boxes are from their targets, times how often another box was pulled. Then the player
may walk off some steps. Written from a description of what those programs do, on a generator of
random numbers of its own: of levels the distribution is theirs, not the level of a seed.

Source:
    gym-sokoban 0.0.6, after Racaniere and others 2017, arXiv:1707.06203; verl-agent at 3483665 for
    the depth of the search, the moves that it tries and the walk at its end.
"""

from collections.abc import Iterator
from random import Random

from longhaul_envs.sokoban.board import ACTIONS, Board, Position
from longhaul_envs.sokoban.draws import draw, draw_several
from longhaul_envs.task_lists import stable_seed

__all__ = ["make_start"]

_TURNS = 0.35
_WALK_PER_SIDE = 1.7
_STAMPS = (
    ((0, -1), (0, 0), (0, 1)),
    ((-1, 0), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, -1), (1, 0)),
    ((0, 0), (0, 1), (1, 0)),
)
"""Shapes of floor, as rows and columns from the walker."""
_NUM_ROOMS = 4
_DEPTH = 30
_MOST_STATES = 300_000
_WALKS_OFF, _WALKS_OFF_NEAR, _WALKS_ON, _MOST_STEPS_OFF = 0.5, 0.8, 0.5, 3


def make_start(size: int, num_boxes: int, seed: int) -> tuple[Board, Position] | None:
    """A board and a position, every box off the targets; None where four rooms give none."""
    random = Random(stable_seed(f"gym-sokoban {size} {num_boxes} {seed}"))
    for _ in range(_NUM_ROOMS):
        floor = _floor(size, random)
        if len(floor) <= num_boxes + 1:
            return None
        player, *targets = draw_several(sorted(floor), 1 + num_boxes, random)
        board = Board(size, floor, frozenset(targets))
        start, distance = _Backwards(board, targets).played(player)
        if distance:
            off = _WALKS_OFF_NEAR if distance == 1 else _WALKS_OFF
            return board, _walked_off(board, start, off, random)
    return None


def _floor(size: int, random: Random) -> frozenset[int]:
    """The cells within the outer wall that the walk stamped."""
    row, column = (1 + int(random.random() * (size - 1)) for _ in range(2))
    moves = ((1, 0), (0, 1), (-1, 0), (0, -1))
    move = draw(moves, random)
    floor: set[int] = set()
    for _ in range(int(_WALK_PER_SIDE * 2 * size)):
        if random.random() < _TURNS:
            move = draw(moves, random)
        row, column = (
            max(1, min(size - 2, place + by)) for place, by in zip((row, column), move, strict=True)
        )
        for down, right in draw(_STAMPS, random):
            cell = (row + down, column + right)
            if all(0 < place < size - 1 for place in cell):
                floor.add(cell[0] * size + cell[1])
    return frozenset(floor)


class _Backwards:
    """The search from the solved room, a state once, in the order in which it is first met."""

    def __init__(self, board: Board, targets: list[int]) -> None:
        self._board = board
        self._targets = targets
        self._met: set[tuple[Position, frozenset[int]]] = set()
        self._best_score = -1
        self._best = (Position(0, frozenset()), 0)

    def played(self, player: int) -> tuple[Position, int]:
        """The best start, and how far its boxes are from their targets, in all."""
        self._search(player, tuple(self._targets), (), num_changes=0, depth=_DEPTH)
        return self._best

    def _search(
        self,
        player: int,
        boxes: tuple[int, ...],
        pulls: tuple[int, ...],
        *,
        num_changes: int,
        depth: int,
    ) -> None:
        state = Position(player, frozenset(boxes))
        # there, a box that came back to its target is told from one that never left it
        untouched = frozenset(box for n, box in enumerate(boxes) if n not in pulls)
        met = (state, untouched)
        if depth <= 1 or len(self._met) >= _MOST_STATES or met in self._met:
            return
        self._met.add(met)
        distance = sum(map(self._apart, boxes, self._targets))
        covered = self._board.targets & {player, *boxes}
        score = 0 if covered else num_changes * distance
        if score > self._best_score:
            self._best_score, self._best = score, (state, distance)
        for to, moved, pulled in self._moves(player, boxes):
            changes = num_changes + (pulled >= 0 and pulls[-1:] != (pulled,))
            pulled_by_now = pulls if pulled < 0 else (*pulls, pulled)
            self._search(to, moved, pulled_by_now, num_changes=changes, depth=depth - 1)

    def _moves(
        self, player: int, boxes: tuple[int, ...]
    ) -> Iterator[tuple[int, tuple[int, ...], int]]:
        """Where each move leads, the boxes after it, and which was pulled; -1 for none."""
        for action in ACTIONS:
            step = self._board.steps[action]
            to, behind = player + step, player - step
            if to not in self._board.floor or to in boxes:
                continue
            pulled = boxes.index(behind) if behind in boxes else -1
            yield to, tuple(player if n == pulled else b for n, b in enumerate(boxes)), pulled

    def _apart(self, one: int, other: int) -> int:
        (row, column), (other_row, other_column) = (
            divmod(cell, self._board.size) for cell in (one, other)
        )
        return abs(row - other_row) + abs(column - other_column)


def _walked_off(board: Board, start: Position, chance: float, random: Random) -> Position:
    """The player some steps on, never back."""
    if random.random() > chance:
        return start
    walked = [start.player]
    while len(walked) <= _MOST_STEPS_OFF:
        beside = [walked[-1] + step for step in board.steps.values()]
        free = [c for c in beside if c in board.floor - start.boxes and c not in walked]
        if not free:
            break
        walked.append(draw(free, random))
        if random.random() > _WALKS_ON:
            break
    return start._replace(player=walked[-1])
