"""Gymnasium environments that do not speak text: their numbered actions get names.

Importing this module registers `text/Discrete-v0` and `picture/Discrete-v0` with Gymnasium. What
they adapt is an option:

    [environment]
    id = "text/Discrete-v0"
    import_modules = ["longhaul_envs.adapters"]
    options = { env = "Taxi-v4" }

They take any environment with discrete actions that draws itself: the first as text
(`render_mode="ansi"`), as Gymnasium's toy texts do, the second as pictures (`"rgb_array"`).
"""

import os
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, cast

import gymnasium
import numpy as np
from gymnasium.envs.toy_text.frozen_lake import generate_random_map
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Discrete, Space
from gymnasium.spaces.utils import flatten
from numpy.typing import NDArray

from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_envs.pictures import DrawnEnv, Seen, picture_space, png, text_picture
from longhaul_envs.registration import register
from longhaul_envs.text import MAX_ACTION_CHARACTERS, text_space

__all__ = ["DiscreteAsPictures", "DiscreteAsText"]

_NAMES: Mapping[str, tuple[str, ...]] = {
    "Acrobot": ("turn one way", "do nothing", "turn the other way"),
    "Blackjack": ("stick", "hit"),
    "CartPole": ("left", "right"),
    "CliffWalking": ("up", "right", "down", "left"),
    "FrozenLake": ("left", "down", "right", "up"),
    "MountainCar": ("left", "do nothing", "right"),
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


class _Discrete(DrawnEnv[Seen], Generic[Seen]):
    """What both have in common."""

    example: ClassVar[str]
    drawn: ClassVar[Literal["ansi", "rgb_array"]]
    """The render mode of the environment that is adapted: whether text is seen, or pictures."""

    def __init__(
        self,
        *,
        env: str = "",
        actions: Sequence[str] | None = None,
        render_mode: str | None = "rgb_array",
        **options: object,
    ) -> None:
        """Adapt an environment.

        Args:
            env: Its Gymnasium id.
            actions: Names of its actions by number, in small letters; by default those of
                Gymnasium's own, or `action 0`, `action 1`, ….
            render_mode: Of this environment's pictures.
            options: Of the environment that is adapted.

        Raises:
            ConfigError: If it has no discrete actions or does not draw itself so, or the number of
                names is not that of its actions.
        """
        if not env:
            raise ConfigError(
                f"options.env must name the Gymnasium id to adapt, such as {self.example!r}; "
                f"there are {', '.join(options) or 'no options'}"
            )
        self.render_mode = render_mode
        self._id, self._options = env, options
        self._family = env.rpartition(":")[2].rpartition("/")[2].partition("-")[0]
        modes = _render_modes(env)
        if self.drawn not in modes:
            others = [name for name, kind in _ADAPTERS.items() if kind.drawn in modes]
            raise ConfigError(
                f"{env!r} does not draw itself so: its render modes are {modes}, without "
                f"{self.drawn!r}; "
                + (
                    f"environment.id = {others[0]!r} adapts it"
                    if others
                    else "wrap it in an environment of your own"
                )
            )
        # pygame, which draws some, opens no window here, and else reports that it finds no screen.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        self._env = self._made(seed=0)
        space = self._env.action_space
        if not isinstance(space, Discrete):
            raise ConfigError(f"{env!r} cannot be played by names of actions: they are {space}")
        count, first = int(space.n), int(space.start)
        names = tuple(actions or _NAMES.get(self._family, ())) or tuple(
            f"action {number}" for number in range(count)
        )
        names = tuple(name.strip().lower() for name in names)
        if len(set(names)) != count:
            raise ConfigError(f"{env!r} has {count} actions, and {len(set(names))} names: {names}")
        self._numbers = {name: first + place for place, name in enumerate(names)}
        self.observation_space = self._space()
        self.action_space = text_space(MAX_ACTION_CHARACTERS)
        self._hidden: object = None  # the environment's own observation, which is not shown
        self._mask: object = None
        self._over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """Begin an episode, by the seed alone."""
        super().reset(seed=seed)
        self._begin(seed if seed is not None else int(self.np_random.integers(2**31)))
        return self._seen(), self._info(accepted=True)

    def step(self, action: str) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """Do what `action` names."""
        if self._over:
            raise ResetNeeded("there is no episode, or it is over; reset before the next step")
        name = action.strip().lower()
        if name not in self._numbers:
            listed = ", ".join(self._numbers)
            seen = self._seen(f"There is no such action; there are {listed}.\n")
            return seen, 0.0, False, False, self._info(accepted=False)
        admissible = self._admissible()
        self._hidden, reward, terminated, truncated, info = self._env.step(self._numbers[name])
        self._mask, self._over = info.get("action_mask"), terminated or truncated
        facts = self._info(accepted=name in admissible)
        if self._family == "CliffWalking":  # whose rewards are all below 0
            facts["success"] = bool(terminated)
        # Gymnasium's time limit cuts a last step off also where it ends the task
        cut_off = bool(truncated and not terminated)
        return self._seen(), float(reward), bool(terminated), cut_off, facts

    def _begin(self, seed: int) -> None:
        """Begin an episode, and draw nothing."""
        if self._family == "FrozenLake":
            self._env.close()
            self._env = self._made(seed=seed)
        self._hidden, info = self._env.reset(seed=seed)
        self._mask, self._over = info.get("action_mask"), False

    @abstractmethod
    def _space(self) -> Space[Seen]:
        """Of its observations."""

    @abstractmethod
    def _seen(self, said: str = "") -> Seen:
        """What it draws now, after something that is said."""

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _made(self, *, seed: int) -> gymnasium.Env[Any, Any]:
        options: dict[str, Any] = dict(self._options)
        if self._family == "FrozenLake" and not options.keys() & {"desc", "map_name"}:
            options["desc"] = generate_random_map(size=4, p=0.8, seed=seed)
        return gymnasium.make(self._id, render_mode=self.drawn, disable_env_checker=True, **options)

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


class DiscreteAsText(_Discrete[str]):
    """An environment with numbered actions, played by their names and seen as the text it draws.

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

    example, drawn = "Taxi-v4", "ansi"

    def render(self) -> NDArray[np.uint8]:
        """What the agent sees, as a picture."""
        return text_picture(self._seen() if not self._over else "")

    def _space(self) -> Space[str]:
        return text_space()

    def _seen(self, said: str = "") -> str:
        drawn = _marked(cast("str", self._env.render())).strip("\n")
        return said + "\n".join(filter(None, [_LEGENDS.get(self._family), drawn]))


class DiscreteAsPictures(_Discrete[dict[str, Any]]):
    """An environment with numbered actions, played by their names and seen as pictures of it.

    Task, action, reward, episode end and info:
        As `DiscreteAsText` has them, and `anchor_state`: a picture shows no speed, and moves of
        less than a pixel not at all, so it is the environment's own observation.
    """

    example, drawn = "CartPole-v1", "rgb_array"

    def start_of(self, seed: int) -> str:
        """The state that a seed begins with; nothing is drawn."""
        self._begin(seed)
        self._over = True
        return self._state()

    def render(self) -> NDArray[np.uint8]:
        """What the agent sees."""
        return np.asarray(self._env.render(), dtype=np.uint8)

    def _space(self) -> Space[dict[str, Any]]:
        return picture_space()

    def _info(self, *, accepted: bool) -> dict[str, Any]:
        return super()._info(accepted=accepted) | {"anchor_state": self._state()}

    def _state(self) -> str:
        """The environment's own observation, and its map if it has one."""
        numbers = np.asarray(flatten(self._env.observation_space, self._hidden)).tolist()
        world = getattr(self._env.unwrapped, "desc", None)
        return repr((numbers, None if world is None else np.asarray(world).tolist()))

    def _seen(self, said: str = "") -> dict[str, Any]:
        return {
            "text": f"{said}The picture shows the present state.",
            "picture": png(self.render()),
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


_ADAPTERS: Mapping[str, type[_Discrete[Any]]] = {
    "text/Discrete-v0": DiscreteAsText,
    "picture/Discrete-v0": DiscreteAsPictures,
}
for _name, _kind in _ADAPTERS.items():
    register(_name, f"{_kind.__module__}:{_kind.__qualname__}")
