"""An environment that breaks in each way there is, by the task it is asked to play."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# Gymnasium is typed in part.

import time
from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.spaces import Text

from longhaul_core.types import Split, Task
from training.task_lists import numbered_tasks

ID = "longhaul-tests/Faulty-v0"
KINDS = ("sound", "raises in reset", "raises in step", "never returns", *["sound"] * 4)


class FaultyWorld(gymnasium.Env[str, str]):
    """Pays for every word it is given; three tasks of eight break."""

    observation_space = Text(200)
    action_space = Text(200)

    def tasks(self, split: Split, limit: int | None = None) -> Sequence[Task]:
        # Held-out tasks are all sound: a panel must not fail as a whole.
        kinds = KINDS if split is Split.TRAIN else KINDS[:1]
        return numbered_tasks(ID, split, limit, goal="write words", kinds=kinds)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        assert options is not None
        self._kind = str(options["task_id"]).split("/")[-1]
        self._left = 3
        if self._kind == "raises in reset":
            raise ConnectionError("no world to reset")
        return "Write words.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._kind == "raises in step":
            raise ValueError("the world fell apart")
        if self._kind == "never returns":
            time.sleep(3600)
        self._left -= 1
        return "Write more.", len(action.split()) / 10, self._left == 0, False, {"success": False}


gymnasium.register(ID, entry_point=f"{__name__}:FaultyWorld")
