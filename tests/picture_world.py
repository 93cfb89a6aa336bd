"""A Gymnasium environment that shows a picture beside its text."""

from typing import Any

import gymnasium
import numpy as np

from longhaul_core.types import Split, Task
from longhaul_envs.pictures import picture_space, png
from longhaul_envs.text import MAX_ACTION_CHARACTERS, text_space

ENVIRONMENT_ID = "tests/Colours-v0"
COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def plain(colour: str) -> bytes:
    """A picture of one colour, 3 by 4."""
    return png(np.full((3, 4, 3), COLOURS[colour], dtype=np.uint8))


class Colours(gymnasium.Env[dict[str, Any], str]):
    """Say the colour that is shown; the text does not name it."""

    def __init__(self) -> None:
        self.observation_space = picture_space()
        self.action_space = text_space(MAX_ACTION_CHARACTERS)
        self._colour = "red"

    def tasks(self, split: Split, limit: int | None = None) -> list[Task]:
        """One colour a split."""
        colour = dict(zip(Split, COLOURS, strict=True))[split]
        task = Task(
            environment=ENVIRONMENT_ID,
            version="1",
            data_hash="",
            task_id=colour,
            seed=list(COLOURS).index(colour),
            split=split,
        )
        return [task][:limit]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._colour = str((options or {}).get("task_id", "red"))
        return self._seen("Which colour is it?"), {"admissible_actions": list(COLOURS)}

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        right = action == self._colour
        info: dict[str, Any] = {
            "admissible_actions": list(COLOURS),
            "action_accepted": action in COLOURS,
        }
        return self._seen("Right." if right else "No."), float(right), right, False, info

    def expert_action(self) -> str:
        """The colour."""
        return self._colour

    def _seen(self, text: str) -> dict[str, Any]:
        return {"text": text, "picture": plain(self._colour)}


class Shades(gymnasium.Env[dict[str, Any], str]):
    """Shows a shade of grey, drawn by the seed, and has no list of tasks."""

    def __init__(self) -> None:
        self.observation_space = picture_space()
        self.action_space = text_space(MAX_ACTION_CHARACTERS)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        shade = self.np_random.integers(256)
        pixels = np.full((2, 2, 3), shade, dtype=np.uint8)
        return {"text": "How bright is it?", "picture": png(pixels)}, {}

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        return {"text": "", "picture": None}, 0.0, True, False, {}


if ENVIRONMENT_ID not in gymnasium.registry:
    gymnasium.register(  # pyright: ignore[reportUnknownMemberType] its `kwargs` is a bare dict
        ENVIRONMENT_ID, entry_point="picture_world:Colours"
    )

if "tests/Shades-v0" not in gymnasium.registry:
    gymnasium.register(  # pyright: ignore[reportUnknownMemberType] its `kwargs` is a bare dict
        "tests/Shades-v0", entry_point="picture_world:Shades"
    )
