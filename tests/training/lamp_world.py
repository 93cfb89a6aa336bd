"""An environment whose text says nothing: its picture shows a lamp that is red or green."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from longhaul_core.types import Split, Task
from longhaul_envs.pictures import picture_space, png
from longhaul_envs.registration import register
from longhaul_envs.text import MAX_ACTION_CHARACTERS, text_space
from training.task_lists import numbered_tasks

ID = "longhaul-tests/Lamp-v0"
COLOURS = {"red": 0, "green": 1}
"""Channel of each that is lit."""
SIDE = 64
"""Pixels of a picture: four tokens."""


class LampWorld(gymnasium.Env[dict[str, Any], str]):
    """Say the colour. Lamps differ in brightness."""

    def __init__(self) -> None:
        self.observation_space = picture_space()
        self.action_space = text_space(MAX_ACTION_CHARACTERS)

    def tasks(self, split: Split, limit: int | None = None) -> Sequence[Task]:
        return numbered_tasks(ID, split, limit, goal="look", kinds=tuple(COLOURS))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._colour = str((options or {})["task_id"]).rpartition("/")[2]
        return self._seen(), {"admissible_actions": [*COLOURS]}

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        right = action == self._colour
        info: dict[str, Any] = {"success": right, "action_accepted": action in COLOURS}
        return self._seen(), float(right), True, False, info

    def expert_action(self) -> str:
        """The colour."""
        return self._colour

    def _seen(self) -> dict[str, Any]:
        pixels = np.zeros((SIDE, SIDE, 3), dtype=np.uint8)
        pixels[..., COLOURS[self._colour]] = self.np_random.integers(150, 256)
        return {"text": "Red or green?", "picture": png(pixels)}


register(ID, f"{__name__}:LampWorld")
