"""An environment in which a random model earns something: it is paid for words."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# Gymnasium is typed in part.

from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.spaces import Text

from longhaul_core.types import Split, Task
from training.task_lists import numbered_tasks

ID = "longhaul-tests/Wordy-v0"


class WordyWorld(gymnasium.Env[str, str]):
    """Every word is paid; an action of an even number of characters ends the episode."""

    observation_space = Text(200)
    action_space = Text(200)

    def tasks(self, split: Split, limit: int | None = None) -> Sequence[Task]:
        return numbered_tasks(ID, split, limit, goal="write words")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self._written = 0
        return "Write words.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._written += 1
        over = len(action) % 2 == 0
        observation = f"You wrote {self._written} times."
        return observation, len(action.split()) / 10, over, False, {"success": over}


gymnasium.register(ID, entry_point=f"{__name__}:WordyWorld")
