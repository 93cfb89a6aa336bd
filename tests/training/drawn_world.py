"""An environment that shows a picture beside its text, and pays for words as `wordy_world` does."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from longhaul_core.types import Split, Task
from longhaul_envs.pictures import picture_space, png
from longhaul_envs.registration import register
from longhaul_envs.text import MAX_ACTION_CHARACTERS, text_space
from training.task_lists import numbered_tasks

ID = "longhaul-tests/Drawn-v0"


def picture(step: int) -> bytes:
    """What is shown before step `step`: each step has a colour of its own."""
    return png(np.full((8, 8, 3), (40 * step, 255 - 40 * step, 90), dtype=np.uint8))


class DrawnWorld(gymnasium.Env[dict[str, Any], str]):
    """Every word is paid; an action of an even number of characters ends the episode."""

    def __init__(self) -> None:
        self.observation_space = picture_space()
        self.action_space = text_space(MAX_ACTION_CHARACTERS)

    def tasks(self, split: Split, limit: int | None = None) -> Sequence[Task]:
        return numbered_tasks(ID, split, limit, goal="write words")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._written = 0
        return self._seen("Write words."), {}

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self._written += 1
        over = len(action) % 2 == 0
        seen = self._seen(f"You wrote {self._written} times.")
        return seen, len(action.split()) / 10, over, False, {"success": over}

    def _seen(self, text: str) -> dict[str, Any]:
        return {"text": text, "picture": picture(self._written)}


register(ID, f"{__name__}:DrawnWorld")
