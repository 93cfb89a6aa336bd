"""KeyDoor as a Gymnasium environment of text."""

from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from longhaul_envs.key_door import tasks as task_list
from longhaul_envs.key_door.drawing import rooms_picture
from longhaul_envs.key_door.rooms import ACTIONS, Rooms
from longhaul_envs.packaged import PackagedEnv
from longhaul_envs.text import MAX_ACTION_CHARACTERS

__all__ = ["KeyDoor"]


class KeyDoor(PackagedEnv[str, task_list.KeyDoorOptions]):
    """Take the key, unlock the door, reach the goal.

    Task:
        A layout of two rooms: where the agent, the key, the door and the goal are.
    Action:
        `north`, `south`, `west`, `east`, `take` on the key's cell, `unlock` with the key on the
        cell west of the door. Any other text, and an action that is impossible here, changes
        nothing.
    Reward:
        1 for the step that reaches the goal, 0 otherwise.
    Episode end:
        Terminated at the goal. Never truncated here: the horizon belongs to the episode loop.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing. Without it
        the seed draws a layout of whatever split.
    Info:
        `admissible_actions`: those that change something. `success`. `action_accepted`: False if
        nothing changed. The observation names the whole state, so it is the anchor too.
    """

    packaged = task_list.source

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        super().__init__(**options)
        self.rooms = Rooms.laid_out(self.options.room_size, seed=0)
        self._is_played = False

    def expert_action(self) -> str | None:
        """The next step of a shortest way; None at the goal."""
        if self.rooms.is_won:
            return None
        return self.rooms.action_toward(self.rooms.place_to_go())

    def goal_parts(self) -> tuple[str, ...]:
        """The cell to reach."""
        return ("goal",)

    def mistaken_action(self, part: str) -> str | None:
        """The expert's step, up to the one that would reach the goal."""
        action = self.expert_action()
        return None if action is None or self.rooms.after(action).is_won else action

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        if options is not None and "task_id" in options:
            self.rooms = task_list.rooms_of(str(options["task_id"]))
        else:
            drawn = int(self.np_random.integers(2**31))
            self.rooms = Rooms.laid_out(self.options.room_size, drawn)
        self._is_played = True
        return self.rooms.in_words(), _info(self.rooms, accepted=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        before = self.rooms
        if not self._is_played or before.is_won:
            raise ResetNeeded("there is no episode, or it is over; reset before the next step")
        rooms = before.after(" ".join(action[:MAX_ACTION_CHARACTERS].lower().split()))
        self.rooms = rooms
        info = _info(rooms, accepted=rooms is not before)
        return rooms.in_words(), float(rooms.is_won), rooms.is_won, False, info

    def render(self) -> NDArray[np.uint8]:
        """Both rooms from above, red, green and blue; see `rooms_picture`."""
        return rooms_picture(self.rooms)


def _info(rooms: Rooms, *, accepted: bool) -> dict[str, Any]:
    possible = [action for action in ACTIONS if rooms.after(action) is not rooms]
    return {
        "admissible_actions": [] if rooms.is_won else possible,
        "success": rooms.is_won,
        "action_accepted": accepted,
    }
