"""Sokoban's expert: the solver's solution, solved anew only when the player leaves it."""

from longhaul_envs.sokoban.board import Board, Position
from longhaul_envs.sokoban.solver import solve

__all__ = ["Expert"]

_MAX_NODES = 50_000


class Expert:
    """Gives advice in one episode."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._plan: dict[Position, str] = {}
        """Every position on the way to success, to the move that it takes."""

    def next_action(self, position: Position) -> str | None:
        """The next move of a solution; None if a box is stuck, or no solution was found."""
        if position not in self._plan:
            moves = solve(self._board, position, max_nodes=_MAX_NODES)
            on_the_way = position
            for move in moves or []:
                self._plan[on_the_way] = move
                on_the_way = self._board.move(on_the_way, move)
        return self._plan.get(position)
