"""The world of `scale.py`: rooms of long texts, which several episodes of a group visit.

From a task's seed follow the text of each room and where each move leads; the text has as many
words as asked for, so that prompts have the length that is to be measured.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Gymnasium is typed in part.

import random
from typing import Any

import gymnasium

from longhaul_envs.text import text_space

ID = "longhaul-benchmarks/Rooms-v0"
MOVES = ("north", "south", "east", "west")
NUM_ROOMS = 40
# fmt: off
WORDS = (
    "the", "a", "of", "and", "to", "in", "is", "on", "at", "with", "door", "room", "key", "table",
    "lamp", "window", "wall", "floor", "chair", "book", "box", "shelf", "cup", "plate", "stone",
    "wood", "metal", "glass", "red", "blue", "green", "black", "white", "small", "large", "old",
    "new", "open", "closed", "left", "right", "under", "behind", "near", "far", "north", "south",
    "east", "west", "path", "stairs", "garden", "kitchen", "water", "fire", "light", "dark",
)
# fmt: on


class Rooms(gymnasium.Env[str, str]):
    """Ends after a number of steps, with success in every second room."""

    observation_space = action_space = text_space()
    episodes_per_process = 64

    def __init__(self, *, num_steps: int = 50, num_words: int = 440) -> None:
        self._episode_steps = num_steps
        self._num_words = num_words

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin in the first room."""
        super().reset(seed=seed)
        assert seed is not None
        self._seed, self._room, self._num_steps = seed, 0, 0
        return self._observation(), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Go where a move leads; anything else leads nowhere."""
        if action in MOVES:
            self._room = (3 * self._room + MOVES.index(action) + 1) % NUM_ROOMS
        self._num_steps += 1
        over = self._num_steps == self._episode_steps
        success = over and self._room % 2 == 0
        return self._observation(), float(success), over, False, self._info() | {"success": success}

    def _observation(self) -> str:
        words = random.Random(f"{self._seed}/{self._room}").choices(WORDS, k=self._num_words)
        return f"Room {self._room} of {self._seed}: {' '.join(words)}."

    def _info(self) -> dict[str, Any]:
        return {"admissible_actions": list(MOVES)}


gymnasium.register(ID, entry_point=f"{__name__}:Rooms", disable_env_checker=True)
