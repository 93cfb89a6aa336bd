"""NumberLine as a Gymnasium environment of text, or of text and pictures."""

from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from longhaul_envs.number_line import tasks as task_list
from longhaul_envs.number_line.drawing import line_file, line_picture
from longhaul_envs.packaged import PackagedEnv
from longhaul_envs.pictures import picture_space

__all__ = ["NumberLine"]

_ACTIONS = {"-": -1, "+": 1}
_GOAL = "Goal: bring the current number to the target"


class NumberLine(PackagedEnv[Any, task_list.NumberLineOptions]):
    """Bring a number to a target by ones.

    Task:
        Two different numbers between 0 and `max_position`.
    Action:
        `+` adds one, `-` takes one away; beyond the ends of the line the number stays. Anything
        else changes nothing.
    Reward:
        1 for the step that reaches the target, -1 for a step that comes no nearer, 0 otherwise.
    Episode end:
        Terminated at the target. Never truncated here: the horizon belongs to the episode loop.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing.
        Without it the seed draws a pair of whatever split.
    Info:
        `admissible_actions`: always both. `anchor_state`: the line, the current number and the
        target. `success`. `action_accepted`: False for anything but `+` and `-`.
    """

    packaged = task_list.source

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        super().__init__(**options)
        self._in_text = self.options.observation == "text"
        if not self._in_text:
            self.observation_space = picture_space()
        self._line = task_list.Line(self.options.max_position, 0, 0)
        self._current = 0

    def expert_action(self) -> str:
        """The step towards the target."""
        return "+" if self._current < self._line.target else "-"

    def goal_parts(self) -> tuple[str, ...]:
        """The target."""
        return ("target",)

    def mistaken_action(self, part: str) -> str | None:
        """The step towards the end of the line that the target is not at; None there."""
        start, target = self._line.start, self._line.target
        other = 0 if start < target else self._line.max_position
        if self._current == other:
            return None
        return "+" if self._current < other else "-"

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if options is not None and "task_id" in options:
            self._line = task_list.line_of(str(options["task_id"]))
        else:
            seed_of_line = int(self.np_random.integers(2**31))
            self._line = task_list.draw_line(self.options, seed_of_line)
        self._current = self._line.start
        return self._observe(), self._info(accepted=True)

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._is_solved():
            raise ResetNeeded("there is no episode, or it is over; reset before the next step")
        word, before = action.strip(), self._current
        if word in _ACTIONS:
            self._current = min(max(before + _ACTIONS[word], 0), self._line.max_position)
        came_nearer = abs(self._current - self._line.target) < abs(before - self._line.target)
        reward = float(self._is_solved()) if came_nearer else -1.0
        said = "" if word in _ACTIONS else "That is no action here: the actions are + and -"
        info = self._info(accepted=word in _ACTIONS)
        if word not in _ACTIONS and self.options.scoring == "verl-agent":
            reward = 0.0
        return self._observe(said), reward, self._is_solved(), False, info

    def render(self) -> NDArray[np.uint8]:
        """The line: (220, 422, 3), red, green and blue."""
        line = self._line
        return line_picture(
            current=self._current, target=line.target, max_position=line.max_position
        )

    def _is_solved(self) -> bool:
        return self._current == self._line.target

    def _observe(self, said: str = "") -> str | dict[str, Any]:
        numbers = [f"Target: {self._line.target}", f"Current: {self._current}"]
        if self._in_text:
            return "\n".join([_GOAL, *numbers, *filter(None, [said])])
        return {
            "text": "\n".join([_GOAL, *filter(None, [said])]),
            "picture": line_file(
                current=self._current,
                target=self._line.target,
                max_position=self._line.max_position,
            ),
        }

    def _info(self, *, accepted: bool) -> dict[str, Any]:
        return {
            "admissible_actions": [] if self._is_solved() else list(_ACTIONS),
            "anchor_state": f"{self._line.max_position}/{self._current}-{self._line.target}",
            "success": self._is_solved(),
            "action_accepted": accepted,
        }
