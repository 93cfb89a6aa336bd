"""The world of `episode_loop.py`: it takes the time that was drawn for it, and then ends.

The number of a task is its seed; from it follow the episode's length and every time in it, here
and in the benchmark that plays it.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Gymnasium is typed in part.

import time
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from longhaul_envs.text import text_space

ID = "longhaul-benchmarks/Timed-v0"
HORIZON = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The drawn times of one episode, in seconds; as many as a lock-step batch may need."""

    num_steps: int
    reset_seconds: float
    policy_seconds: tuple[float, ...]
    environment_seconds: tuple[float, ...]

    @property
    def total_seconds(self) -> float:
        """Time of the episode if nothing is added."""
        steps = slice(self.num_steps)
        waiting = sum(self.policy_seconds[steps]) + sum(self.environment_seconds[steps])
        return self.reset_seconds + waiting


def script_of(number: int, *, waits: bool = True) -> Script:
    """What is drawn for episode `number`.

    Lengths are uniform in 4 to 40 steps; the engine takes 20 to 40 ms, the environment log-normal
    times around 15 ms. An episode that does not wait has 4 steps, and takes no time but its work.
    """
    if not waits:
        nothing = (0.0,) * HORIZON
        return Script(
            num_steps=4, reset_seconds=0.0, policy_seconds=nothing, environment_seconds=nothing
        )
    generator = np.random.default_rng(number)
    return Script(
        num_steps=int(generator.integers(4, HORIZON + 1)),
        reset_seconds=float(generator.uniform(0.02, 0.1)),
        policy_seconds=tuple(generator.uniform(0.02, 0.04, HORIZON).tolist()),
        environment_seconds=tuple(generator.lognormal(np.log(0.015), 1.0, HORIZON).tolist()),
    )


class TimedWorld(gymnasium.Env[str, str]):
    """Takes the scripted times of its task, then is solved."""

    observation_space = action_space = text_space()

    def __init__(self, *, waits: bool = True) -> None:
        self._waits = waits

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Take the scripted time."""
        super().reset(seed=seed)
        assert options is not None
        self._script = script_of(int(options["task_id"]), waits=self._waits)
        self._num_steps = 0
        time.sleep(self._script.reset_seconds)
        return self._observation(), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take the scripted time."""
        del action
        time.sleep(self._script.environment_seconds[self._num_steps])
        self._num_steps += 1
        over = self._num_steps >= self._script.num_steps
        return self._observation(), float(over), over, False, self._info() | {"success": over}

    def _observation(self) -> str:
        return f"You stand in room {self._num_steps}. " * 10

    def _info(self) -> dict[str, Any]:
        return {"admissible_actions": ["left", "right"]}


gymnasium.register(ID, entry_point=f"{__name__}:TimedWorld", disable_env_checker=True)
