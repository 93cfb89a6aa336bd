"""An environment in which a random model is right about every other time, and often all at once."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# Gymnasium is typed in part.

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.spaces import Text

from longhaul_core.types import Split, Task, Trajectory
from training.task_lists import numbered_tasks

ID = "longhaul-tests/Coin-v0"
PRICE = 0.125
"""What `cheaper` takes for each step; a float has it exactly."""
PLAYERS = "LONGHAUL_TEST_PLAYERS"
"""Variable: a folder, where `cheaper` leaves a file named by the process that it is called in."""


class CoinWorld(gymnasium.Env[str, str]):
    """An action of an even number of characters ends the episode, and wins if by 4."""

    observation_space = Text(200)
    action_space = Text(200)

    def tasks(self, split: Split, limit: int | None = None) -> Sequence[Task]:
        return numbered_tasks(ID, split, limit, goal="throw a coin")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return "Throw a coin.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        over, won = len(action) % 2 == 0, len(action) % 4 == 0
        return "It fell.", float(won), over, False, {"success": won}


def cheaper(episode: Trajectory) -> list[float]:
    """Each step costs something."""
    (Path(os.environ[PLAYERS]) / str(os.getpid())).touch()
    return [step.reward - PRICE for step in episode.steps]


gymnasium.register(ID, entry_point=f"{__name__}:CoinWorld")
