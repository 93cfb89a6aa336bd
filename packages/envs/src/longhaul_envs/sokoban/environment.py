"""Sokoban as a Gymnasium environment of text or pictures, with levels of its own or Boxoban's."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from longhaul_envs.packaged import PackagedEnv
from longhaul_envs.pictures import picture_space, png
from longhaul_envs.sokoban import tasks as task_list
from longhaul_envs.sokoban.board import ACTIONS, Board, Position
from longhaul_envs.sokoban.expert import Expert
from longhaul_envs.sokoban.picture import picture_of
from longhaul_envs.sokoban.solver import solve

__all__ = ["Sokoban"]

_OTHER_TARGETS = 12
"""Cells that are tried in place of a target."""


class Sokoban(PackagedEnv[Any, task_list.SokobanOptions]):
    """Push every box onto a target.

    Task:
        A walled square with as many targets as boxes. Every level is solvable from its
        start, but not from everywhere: a box in a corner stays there. With the option
        `observation = "image"` the room is shown as a picture of 32 by 32 pixels a cell.
    Action:
        `up`, `down`, `left`, `right`. Into a box pushes it, unless a wall or another box is
        behind it. Anything else changes nothing.
    Reward:
        1.0 for the step that solves the level, plus `box_reward` for each box that came onto
        a target in this step, minus it for each that left, minus `step_penalty`.
    Episode end:
        Terminated when every box is on a target. Never truncated here, stuck or not: the
        horizon belongs to the episode loop.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing.
        Without it the seed draws a level of whatever split.
    Info:
        `admissible_actions`: the moves that change something. `anchor_state`: the board.
        `success`. `action_accepted`: False if nothing changed.
    """

    packaged = task_list.source

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        super().__init__(**options)
        if self.options.observation == "image":
            self.observation_space = picture_space()
        self._board = Board(0, frozenset(), frozenset())
        self._position = Position(0, frozenset())
        self._expert: Expert | None = None
        self._mistaken: Iterator[str] | None = None

    def expert_action(self) -> str | None:
        """The next move of a solution; None if a box is stuck."""
        if self._expert is None:
            self._expert = Expert(self._board)
        return self._expert.next_action(self._position)

    def goal_parts(self) -> tuple[str, ...]:
        """Where the boxes belong."""
        return ("targets",)

    def mistaken_action(self, part: str) -> str | None:
        """The next move towards a board with its first target elsewhere; None at its end."""
        if self._mistaken is None:
            self._mistaken = self._way_to_other_targets()
        return next(self._mistaken, None)

    def _way_to_other_targets(self) -> Iterator[str]:
        others = self._board.floor - self._board.targets - self._position.boxes
        for cell in sorted(others)[:_OTHER_TARGETS]:
            targets = frozenset({*sorted(self._board.targets)[1:], cell})
            position = self._position
            moves = solve(replace(self._board, targets=targets), position) or []
            met = list(accumulate(moves, self._board.move, initial=position))
            if moves and not any(map(self._board.is_solved, met)):
                return iter(moves)
        return iter(())

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if options is not None and "task_id" in options:
            start = task_list.start_of(str(options["task_id"]), self.options)
        else:
            start = task_list.draw_start(self.options, int(self.np_random.integers(2**31)))
        (self._board, self._position), self._expert, self._mistaken = start, None, None
        return self._observe(), self._info(accepted=True)

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._board.is_solved(self._position):
            raise ResetNeeded("there is no episode, or it is over; reset before the next step")
        before = self._position
        word = action.strip().lower()
        if word in ACTIONS:
            self._position = self._board.move(before, word)
        num_gained = len(self._position.boxes & self._board.targets) - len(
            before.boxes & self._board.targets
        )
        solved = self._board.is_solved(self._position)
        reward = float(solved) + self.options.box_reward * num_gained - self.options.step_penalty
        info = self._info(accepted=self._position != before)
        return self._observe(), reward, solved, False, info

    def render(self) -> NDArray[np.uint8]:
        """The room; see `longhaul_envs.sokoban.picture`."""
        return picture_of(self._board, self._position)

    def _observe(self) -> str | dict[str, str | bytes]:
        if self.options.observation == "image":
            return {
                "text": "Goal: push every box onto a target\nThe picture shows the room.",
                "picture": png(self.render()),
            }
        return self._observe_in_words()

    def _observe_in_words(self) -> str:
        if self.options.observation == "grid":
            # one token a cell for most tokenizers, instead of runs of various lengths
            grid = "\n".join(" ".join(row) for row in self._board.rows(self._position))
            return f"Goal: push every box onto a target\n{grid}"
        open_boxes = sorted(self._position.boxes - self._board.targets)
        open_targets = sorted(self._board.targets - self._position.boxes)
        around = [f"{action} {self._beside(action)}" for action in ACTIONS]
        return "\n".join(
            [
                "Goal: push every box onto a target",
                f"Boxes: {self._list(open_boxes)}",
                f"Targets: {self._list(open_targets)}",
                f"Beside you: {', '.join(around)}",
            ]
        )

    def _list(self, cells: list[int]) -> str:
        return "; ".join(self._offset(cell) for cell in cells) or "none"

    def _offset(self, cell: int) -> str:
        row, column = divmod(cell, self._board.size)
        player_row, player_column = divmod(self._position.player, self._board.size)
        down, right = row - player_row, column - player_column
        words = [f"{abs(down)} {'down' if down > 0 else 'up'}"] * bool(down)
        words += [f"{abs(right)} {'right' if right > 0 else 'left'}"] * bool(right)
        return " ".join(words) or "here"

    def _beside(self, action: str) -> str:
        cell = self._position.player + self._board.steps[action]
        if cell in self._position.boxes:
            return "box"
        return "free" if cell in self._board.floor else "wall"

    def _info(self, *, accepted: bool) -> dict[str, Any]:
        solved = self._board.is_solved(self._position)
        return {
            "admissible_actions": [] if solved else self._board.effective_actions(self._position),
            "anchor_state": "\n".join(self._board.rows(self._position)),
            "success": solved,
            "action_accepted": accepted,
        }
