"""An environment of a user's: without tasks, prompt or source; it counts its constructions."""

import os
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium

from longhaul_envs.text import text_space


class Dice(gymnasium.Env[str, str]):
    """Shows a number of 1 to `sides`, drawn by the seed.

    Each construction leaves the number of its process in the file `constructions`.
    """

    def __init__(
        self,
        *,
        sides: int = 10_000,
        constructions: str = "",
        dies: bool = False,
        hangs: bool = False,
    ) -> None:
        self.observation_space = self.action_space = text_space()
        self.sides = sides
        if constructions:
            with Path(constructions).open("a", encoding="utf-8") as file:
                file.write(f"{os.getpid()}\n")
        if dies:
            os._exit(7)
        if hangs:
            threading.Event().wait()
        sys.stdout.write("what an environment prints is no answer of the worker\n")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return f"a {1 + self.np_random.integers(self.sides)}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", 1.0, True, False, {}


gymnasium.register(  # pyright: ignore[reportUnknownMemberType]
    "sources/Dice-v3",
    entry_point="dice:Dice",
    disable_env_checker=True,
)
