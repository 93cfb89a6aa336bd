"""Maze as a Gymnasium environment of text."""

from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from longhaul_envs.maze import tasks as task_list
from longhaul_envs.maze.drawing import maze_picture
from longhaul_envs.maze.layouts import DOUBLE_T, STEPS, Cell
from longhaul_envs.packaged import PackagedEnv
from longhaul_envs.text import MAX_ACTION_CHARACTERS

__all__ = ["Maze"]

_BESIDE = {
    "to your right": "move right",
    "to your left": "move left",
    "above you": "move up",
    "below you": "move down",
}


class Maze(PackagedEnv[str, task_list.MazeOptions]):
    """Reach the goal of a maze.

    Task:
        A maze, a goal and a start. The goal can be reached from every open cell.
    Action:
        `move up`, `move down`, `move left`, `move right`; into a wall changes nothing, and
        neither does anything else.
    Reward:
        By the option `reward`: `success` pays 1 for the step that reaches the goal.
    Episode end:
        Terminated at the goal. Never truncated here: the horizon belongs to the episode loop.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing.
        Without it the seed draws a maze of whatever split.
    Info:
        `admissible_actions`: the moves that no wall stops. `anchor_state`: the maze with goal and
        player. `success`. `action_accepted`: False if nothing changed.
    """

    packaged = task_list.source

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        super().__init__(**options)
        self._layout = DOUBLE_T
        self._walked: list[Cell] = [DOUBLE_T.goal]

    def expert_action(self) -> str | None:
        """The next move of a shortest way; None at the goal."""
        distances = self._layout.distances()
        for action in STEPS:
            if distances[self._layout.move(self._cell, action)] < distances[self._cell]:
                return action
        return None

    def goal_parts(self) -> tuple[str, ...]:
        """The cell to reach."""
        return ("goal",)

    def mistaken_action(self, part: str) -> str | None:
        """The way to a cell beside the goal's way, one step from the start; None there."""
        if len(self._walked) > 1:
            return None
        goal = self._layout.goal
        open_moves = self._open_moves()
        return next((a for a in open_moves if self._layout.move(self._cell, a) != goal), None)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        if options is not None and "task_id" in options:
            self._layout, start = task_list.start_of(str(options["task_id"]))
        else:
            seed_of_maze = int(self.np_random.integers(2**31))
            self._layout, start = task_list.draw_start(self.options, seed_of_maze)
        self._walked = [start]
        return self._observe(), self._info(accepted=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._is_solved():
            raise ResetNeeded("there is no episode, or it is over; reset before the next step")
        rule = task_list.REWARDS[self.options.reward]
        word = " ".join(action[:MAX_ACTION_CHARACTERS].lower().split())
        if word not in STEPS:
            seen = self._observe(f"That is no action here: the actions are {', '.join(STEPS)}")
            return seen, rule.unreadable, False, False, self._info(accepted=False)
        before = self._cell
        reached = self._layout.move(before, word)
        if reached != before:
            self._walked.append(reached)
        reward = rule.at_goal if self._is_solved() else rule.elsewhere
        seen = self._observe("A wall stopped you" if reached == before else "")
        return seen, reward, self._is_solved(), False, self._info(accepted=reached != before)

    def render(self) -> NDArray[np.uint8]:
        """The whole maze and the way walked, (28 rows, 28 columns, 3), red, green and blue."""
        return maze_picture(self._layout, self._walked)

    @property
    def _cell(self) -> Cell:
        return self._walked[-1]

    def _is_solved(self) -> bool:
        return self._cell == self._layout.goal

    def _open_moves(self) -> list[str]:
        return [action for action in STEPS if self._layout.move(self._cell, action) != self._cell]

    def _observe(self, said: str = "") -> str:
        lines = ["Goal: reach the goal of the maze"]
        if self.options.observation == "grid":
            lines += [" ".join(row) for row in self._grid()]
        if self.options.observation == "position":
            (row, column), (goal_row, goal_column) = self._cell, self._layout.goal
            lines.append(f"The goal is at position {goal_row}, {goal_column}.")
            lines.append(f"You are at position {row}, {column}.")
        if self.options.observation != "grid":
            lines.append(self._walls())
        if self._is_solved():
            lines.append("You reached the goal.")
        return "\n".join([*lines, *filter(None, [said])])

    def _walls(self) -> str:
        open_moves = self._open_moves()
        walls = [place for place, action in _BESIDE.items() if action not in open_moves]
        return f"Walls: {', '.join(walls) or 'none'}."

    def _grid(self) -> list[str]:
        def sign(cell: Cell) -> str:
            if cell == self._cell:
                return "@"
            if cell == self._layout.goal:
                return "G"
            return "." if self._layout.is_open(cell) else "#"

        return [
            "".join(sign((row, column)) for column in range(len(line)))
            for row, line in enumerate(self._layout.rows)
        ]

    def _info(self, *, accepted: bool) -> dict[str, Any]:
        row, column = self._layout.goal
        return {
            "admissible_actions": [] if self._is_solved() else self._open_moves(),
            "anchor_state": "\n".join([*self._grid(), f"goal {row}, {column}"]),
            "success": self._is_solved(),
            "action_accepted": accepted,
        }
