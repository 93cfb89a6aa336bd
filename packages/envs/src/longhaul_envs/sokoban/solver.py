"""A search that proves a Sokoban position solvable by solving it.

A* over pushes: a node is where the boxes are and which region the player can walk in, an
edge is one push. The estimate is the cheapest assignment of boxes to targets, each box
pushed as if alone, which never exceeds the truth; so solutions have the fewest pushes
(not the fewest moves).
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

from longhaul_envs.sokoban.board import Board, Position

__all__ = ["MAX_NODES", "solve"]

MAX_NODES = 2000
"""Nodes looked at before a position is given up as too hard to decide."""


def solve(board: Board, position: Position, *, max_nodes: int = MAX_NODES) -> list[str] | None:
    """The moves of a solution with the fewest pushes.

    Returns:
        Moves, none if it is solved already; None if there is no solution or none was found
        within `max_nodes`.

    Source:
        The estimate is that of Junghanns and Schaeffer 2001, doi:10.1016/S0004-3702(01)00109-6.
    """
    distances = [_pushes_to(board, target) for target in sorted(board.targets)]
    estimate = _estimate(position.boxes, distances)
    if estimate is None:
        return None
    estimates: dict[frozenset[int], int | None] = {position.boxes: estimate}
    start = _node(board, position)
    came_from: dict[Position, tuple[Position, int, int] | None] = {start: None}
    num_pushes = {start: 0}
    frontier = [(estimate, 0, start)]
    num_seen = 0
    while frontier:
        _, _, node = heapq.heappop(frontier)
        if board.is_solved(node):
            return _moves(board, position, _pushes_of(node, came_from))
        pushes_so_far = num_pushes[node] + 1
        for box, step, pushed in _pushes_from(board, node):
            if pushed.boxes not in estimates:
                estimates[pushed.boxes] = _estimate(pushed.boxes, distances)
            estimate = estimates[pushed.boxes]
            if estimate is None:
                continue
            following = _node(board, pushed)
            if following in num_pushes and num_pushes[following] <= pushes_so_far:
                continue
            num_seen += 1
            if num_seen > max_nodes:
                return None
            num_pushes[following] = pushes_so_far
            came_from[following] = (node, box, step)
            # the count of nodes seen makes ties, and with them solutions, reproducible
            heapq.heappush(frontier, (pushes_so_far + estimate, num_seen, following))
    return None


def _pushes_to(board: Board, target: int) -> dict[int, int]:
    """Fewest pushes that bring a lone box from each cell to `target`; other cells are dead."""
    distances = {target: 0}
    frontier = [target]
    for cell in frontier:  # grows as it is walked through
        for step in board.steps.values():
            before, behind = cell - step, cell - 2 * step
            if before in board.floor and behind in board.floor and before not in distances:
                distances[before] = distances[cell] + 1
                frontier.append(before)
    return distances


def _estimate(boxes: frozenset[int], distances: Sequence[Mapping[int, int]]) -> int | None:
    """Pushes needed at least; None if no assignment of boxes to targets is possible."""
    best: int | None = None
    for ordered in permutations(boxes):
        total = 0
        for box, from_cell in zip(ordered, distances, strict=True):
            if box not in from_cell:
                break
            total += from_cell[box]
        else:
            best = total if best is None else min(best, total)
    return best


def _node(board: Board, position: Position) -> Position:
    """The one position that stands for all from which the player walks to the same cells."""
    region = board.region(position)
    return Position((region & -region).bit_length() - 1, position.boxes)


def _pushes_from(board: Board, node: Position) -> Iterator[tuple[int, int, Position]]:
    """Every possible push: the box, the step, and the position it leads to."""
    region = board.region(node)
    for box in sorted(node.boxes):
        for step in board.steps.values():
            beyond = box + step
            if region >> box - step & 1 and beyond in board.floor and beyond not in node.boxes:
                yield box, step, Position(box, node.boxes - {box} | {beyond})


def _pushes_of(
    node: Position, came_from: Mapping[Position, tuple[Position, int, int] | None]
) -> list[tuple[int, int]]:
    pushes: list[tuple[int, int]] = []
    link = came_from[node]
    while link is not None:
        before, box, step = link
        pushes.append((box, step))
        link = came_from[before]
    return pushes[::-1]


def _moves(board: Board, position: Position, pushes: list[tuple[int, int]]) -> list[str]:
    """The pushes with the walks between them."""
    action_of = {step: action for action, step in board.steps.items()}
    moves: list[str] = []
    for box, push in pushes:
        entered_by = board.reachable(position)
        cell = box - push
        walk: list[str] = []
        while step := entered_by[cell]:
            walk.append(action_of[step])
            cell -= step
        for move in [*walk[::-1], action_of[push]]:
            moves.append(move)
            position = board.move(position, move)
    return moves
