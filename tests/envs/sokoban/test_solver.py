"""The solver against exhaustive search, and its solutions played."""

from collections import deque
from collections.abc import Iterable

import pytest

from longhaul_envs.sokoban.board import ACTIONS, Board, Position
from longhaul_envs.sokoban.levels import make_start
from longhaul_envs.sokoban.solver import solve


def fewest_pushes(board: Board, start: Position) -> int | None:
    """By trying everything: breadth-first over moves, those without a push costing nothing."""
    costs = {start: 0}
    queue = deque([start])
    while queue:
        position = queue.popleft()
        for action in ACTIONS:
            reached = board.move(position, action)
            cost = costs[position] + (reached.boxes != position.boxes)
            if reached not in costs or cost < costs[reached]:
                costs[reached] = cost
                if reached.boxes == position.boxes:
                    queue.appendleft(reached)
                else:
                    queue.append(reached)
    return min(
        (cost for position, cost in costs.items() if board.is_solved(position)), default=None
    )


def played(board: Board, start: Position, moves: list[str]) -> tuple[Position, int]:
    position, num_pushes = start, 0
    for move in moves:
        reached = board.move(position, move)
        assert reached != position, "a solution holds no blocked move"
        num_pushes += reached.boxes != position.boxes
        position = reached
    return position, num_pushes


@pytest.mark.parametrize(
    ("size", "num_boxes", "seeds"),
    [
        (6, 1, range(40)),
        (6, 2, range(40)),
        (8, 2, [130]),  # where an estimate that is too high would miss the best solution
    ],
)
def test_solutions_solve_with_the_fewest_pushes_there_are(
    size: int, num_boxes: int, seeds: Iterable[int]
) -> None:
    for seed in seeds:
        made = make_start(size, num_boxes, seed)
        assert made is not None
        moves = solve(*made)
        assert moves is not None
        final, num_pushes = played(*made, moves)
        assert made[0].is_solved(final)
        assert num_pushes == fewest_pushes(*made)


def test_a_box_in_a_corner_has_no_solution() -> None:
    size = 5
    floor = frozenset(row * size + column for row in (1, 2, 3) for column in (1, 2, 3))
    board = Board(size, floor, targets=frozenset({2 * size + 2}))
    assert solve(board, Position(3 * size + 3, frozenset({size + 1}))) is None


def test_a_solved_position_needs_no_move() -> None:
    size = 5
    floor = frozenset(row * size + column for row in (1, 2, 3) for column in (1, 2, 3))
    board = Board(size, floor, targets=frozenset({2 * size + 2}))
    assert solve(board, Position(size + 1, frozenset({2 * size + 2}))) == []


def test_the_search_gives_up_at_its_limit() -> None:
    made = make_start(8, 3, 0)
    assert made is not None
    assert solve(*made) is not None
    assert solve(*made, max_nodes=1) is None
