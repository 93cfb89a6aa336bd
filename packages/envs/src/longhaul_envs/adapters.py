"""Gymnasium environments that do not speak text, made to: numbered actions get names.

Importing this module registers `text/Discrete-v0` with Gymnasium. What it adapts is an option:

    [environment]
    id = "text/Discrete-v0"
    import_modules = ["longhaul_envs.adapters"]
    options = { env = "Taxi-v4" }

It takes any environment with discrete actions that draws itself as text (`render_mode="ansi"`), as
Gymnasium's toy texts do.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.envs.toy_text.frozen_lake import generate_random_map
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_envs.pictures import DrawnEnv, text_picture
from longhaul_envs.registration import register
from longhaul_envs.text import MAX_ACTION_CHARACTERS, text_space

__all__ = ["DiscreteAsText"]

_NAMES: Mapping[str, tuple[str, ...]] = {
    "CliffWalking": ("up", "right", "down", "left"),
    "FrozenLake": ("left", "down", "right", "up"),
    "Taxi": ("south", "north", "east", "west", "pick up", "drop off"),
}
_LEGENDS: Mapping[str, str] = {
    "CliffWalking": "x is you, C the cliff, T the goal. From the cliff you begin again.",
    "FrozenLake": "S is the start, F is frozen, H is a hole, G is the goal.",
    "Taxi": "Bring the passenger to the *destination*. <> is the free taxi, {} the taxi with the "
    "passenger, () the waiting passenger; | is a wall, : is none.",
}
_MARKS: Mapping[str, str] = {"41": "[]", "42": "{}", "43": "<>", "34;1": "()", "35": "**"}
"""What is put around what the terminal would show in a colour."""
_COLOUR = re.compile("\x1b\\[([0-9;]+)m")


class DiscreteAsText(DrawnEnv[str]):
    """An environment with numbered actions, played by their names and seen as it draws itself.

    Task:
        A seed. `FrozenLake` gets a new lake for each, unless its options name one.
    Action:
        The name of an action; anything else changes nothing, and is not accepted.
    Reward and episode end:
        The environment's own.
    Info:
        `admissible_actions`: every action, or those that an `action_mask` names.
        `action_accepted`.
    """

    def __init__(
        self,
        *,
        env: str,
        actions: Sequence[str] | None = None,
        render_mode: str | None = "rgb_array",
        **options: object,
    ) -> None:
        """Adapt an environment.

        Args:
            env: Its Gymnasium id.
            actions: Names of its actions by number; by default those of the toy texts, or
                `action 0`, `action 1`, ….
            render_mode: Of this environment's pictures.
            options: Of the environment that is adapted.

        Raises:
            ConfigError: If it has no discrete actions or draws no text, or the number of names is
                not that of its actions.
        """
        self.render_mode = render_mode
        self._id, self._options = env, options
        self._family = env.rpartition(":")[2].rpartition("/")[2].partition("-")[0]
        modes = _render_modes(env)
        if "ansi" not in modes:
            raise ConfigError(
                f"{env!r} draws no text: its render modes are {modes}, without 'ansi'; wrap it in "
                "an environment whose observations are text"
            )
        self._env = self._made(seed=0)
        space = self._env.action_space
        if not isinstance(space, Discrete):
            raise ConfigError(f"{env!r} cannot be played by names of actions: they are {space}")
        count, first = int(space.n), int(space.start)
        names = tuple(actions or _NAMES.get(self._family, ())) or tuple(
            f"action {number}" for number in range(count)
        )
        if len(set(names)) != count:
            raise ConfigError(f"{env!r} has {count} actions, and {len(set(names))} names: {names}")
        self._numbers = {name: first + place for place, name in enumerate(names)}
        self.observation_space = text_space()
        self.action_space = text_space(MAX_ACTION_CHARACTERS)
        self._mask: object = None
        self._over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode, by the seed alone."""
        super().reset(seed=seed)
        number = seed if seed is not None else int(self.np_random.integers(2**31))
        if self._family == "FrozenLake":
            self._env.close()
            self._env = self._made(seed=number)
        _, info = self._env.reset(seed=number)
        self._mask, self._over = info.get("action_mask"), False
        return self._shown(), self._info(accepted=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Do what `action` names."""
        if self._over:
            raise ResetNeeded("there is no episode, or it is over; reset before the next step")
        name = action.strip().lower()
        if name not in self._numbers:
            listed = ", ".join(self._numbers)
            text = f"There is no such action; there are {listed}.\n{self._shown()}"
            return text, 0.0, False, False, self._info(accepted=False)
        admissible = self._admissible()
        _, reward, terminated, truncated, info = self._env.step(self._numbers[name])
        self._mask, self._over = info.get("action_mask"), terminated or truncated
        facts = self._info(accepted=name in admissible)
        if self._family == "CliffWalking":  # whose rewards are all below 0
            facts["success"] = bool(terminated)
        # Gymnasium's time limit cuts a last step off also where it ends the task
        cut_off = bool(truncated and not terminated)
        return self._shown(), float(reward), bool(terminated), cut_off, facts

    def render(self) -> NDArray[np.uint8]:
        """What the agent sees, as a picture."""
        return text_picture(self._shown() if not self._over else "")

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _made(self, *, seed: int) -> gymnasium.Env[Any, Any]:
        options: dict[str, Any] = dict(self._options)
        if self._family == "FrozenLake" and not options.keys() & {"desc", "map_name"}:
            options["desc"] = generate_random_map(size=4, p=0.8, seed=seed)
        return gymnasium.make(self._id, render_mode="ansi", disable_env_checker=True, **options)

    def _shown(self) -> str:
        drawn = _marked(cast("str", self._env.render())).strip("\n")
        return "\n".join(filter(None, [_LEGENDS.get(self._family), drawn]))

    def _admissible(self) -> list[str]:
        if self._mask is None:
            return list(self._numbers)
        mask = np.asarray(self._mask)
        return [name for place, name in enumerate(self._numbers) if mask[place]]

    def _info(self, *, accepted: bool) -> dict[str, Any]:
        return {
            "admissible_actions": [] if self._over else self._admissible(),
            "action_accepted": accepted,
        }


def _render_modes(env: str) -> list[str]:
    """Of the class that Gymnasium knows by the id, which is not built."""
    made_by: object = GymEnvironmentSpec(environment_id=env).load()
    metadata = cast("Mapping[str, Any]", getattr(made_by, "metadata", {}))
    return list(metadata.get("render_modes", []))


def _marked(drawn: str) -> str:
    """Text of a terminal, with marks in place of its colours, one around the other."""
    parts = _COLOUR.split(drawn)
    text, open_marks = parts[0], list[str]()
    for code, following in zip(parts[1::2], parts[2::2], strict=True):
        if code == "0":
            text += "".join(mark[-1:] for mark in reversed(open_marks))
            open_marks = []
        else:
            open_marks.append(_MARKS.get(code, ""))
            text += open_marks[-1][:1]
        text += following
    return text


register("text/Discrete-v0", "longhaul_envs.adapters:DiscreteAsText")
