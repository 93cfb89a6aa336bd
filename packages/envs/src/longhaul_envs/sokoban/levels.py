"""Levels made backwards: from boxes on their targets, by pulling, then solved forwards.

A start made by legal pulls is solvable; the solver is still asked, because its solution
measures the difficulty and is a proof that a reader can replay. Only `Random.random` is
drawn from, the one method whose values Python promises never to change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from longhaul_envs.sokoban import gym_sokoban
from longhaul_envs.sokoban.board import Board, Position
from longhaul_envs.sokoban.draws import draw, draw_several
from longhaul_envs.sokoban.solver import solve
from longhaul_envs.task_lists import stable_seed

__all__ = ["Level", "make_level", "make_start"]

_MAX_WALL_SHARE = 0.3
_NUM_ATTEMPTS = 50
_PULLS_PER_BOX = 12


@dataclass(frozen=True, slots=True)
class Level:
    """A start, and the proof that it can be solved."""

    board: Board
    start: Position
    solution: tuple[str, ...]
    """Moves of a solution with the fewest pushes."""
    num_pushes: int


@cache
def make_level(size: int, num_boxes: int, seed: int, generator: str = "pulls") -> Level | None:
    """The level of a seed: its start, solved.

    Returns:
        None for the seeds that give no start, or one that the solver finds too hard.
    """
    made = make_start(size, num_boxes, seed, generator)
    solution = None if made is None else solve(*made)
    if made is None or solution is None:
        return None
    return Level(*made, tuple(solution), _count_pushes(*made, solution))


@cache
def make_start(
    size: int, num_boxes: int, seed: int, generator: str = "pulls"
) -> tuple[Board, Position] | None:
    """A board and a position with every box off the targets.

    Args:
        size: Rows and columns, the wall around included.
        num_boxes: Boxes, and targets.
        seed: Any integer; together with the others it decides everything.
        generator: `pulls`, or `gym-sokoban` for that module's.

    Returns:
        None for the few seeds that give none in 50 attempts, or in gym-sokoban's four.
    """
    if generator == "gym-sokoban":
        return gym_sokoban.make_start(size, num_boxes, seed)
    random = Random(stable_seed(f"sokoban {size} {num_boxes} {seed}"))
    for _ in range(_NUM_ATTEMPTS):
        floor = _dig(size, random)
        if len(floor) < 3 * num_boxes:
            continue
        board = Board(size, floor, frozenset(draw_several(sorted(floor), num_boxes, random)))
        start = _pull_apart(board, random)
        if not start.boxes & board.targets:
            return board, start
    return None


def _dig(size: int, random: Random) -> frozenset[int]:
    """Connected floor within the outer wall, with walls strewn over it."""
    inside = range(1, size - 1)
    floor = {row * size + column for row in inside for column in inside}
    num_walls = int(random.random() * _MAX_WALL_SHARE * len(floor))
    for _ in range(num_walls):
        rest = frozenset(floor - {draw(sorted(floor), random)})
        board = Board(size, rest, frozenset())
        if board.region(Position(min(rest), frozenset())).bit_count() == len(rest):
            floor &= rest
    return frozenset(floor)


def _pull_apart(board: Board, random: Random) -> Position:
    """The boxes after a number of random pulls, fewer if they come to a dead end."""
    free = sorted(board.floor - board.targets)
    position = Position(draw(free, random), board.targets)
    for _ in range(_PULLS_PER_BOX * len(board.targets)):
        pulls = _pulls(board, position)
        if not pulls:
            break
        position = draw(pulls, random)
    return Position(draw(sorted(board.reachable(position)), random), position.boxes)


def _pulls(board: Board, position: Position) -> list[Position]:
    """Every position that one pull leads to."""
    region = board.region(position)
    pulled: list[Position] = []
    for box in sorted(position.boxes):
        for step in board.steps.values():
            stand, retreat = box + step, box + 2 * step
            if region >> stand & 1 and retreat in board.floor and retreat not in position.boxes:
                pulled.append(Position(retreat, position.boxes - {box} | {stand}))
    return pulled


def _count_pushes(board: Board, start: Position, moves: Sequence[str]) -> int:
    position, num_pushes = start, 0
    for move in moves:
        following = board.move(position, move)
        num_pushes += following.boxes != position.boxes
        position = following
    return num_pushes
