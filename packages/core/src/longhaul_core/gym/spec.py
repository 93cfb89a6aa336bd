"""Which Gymnasium environment to build, in a form that can be sent to a worker process."""

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, SupportsFloat, cast

import gymnasium
from gymnasium.envs.registration import load_env_creator
from gymnasium.wrappers import TimeLimit

from longhaul_core.errors import ConfigError

__all__ = ["GymEnvironmentSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GymEnvironmentSpec:
    """A Gymnasium id and its options."""

    environment_id: str
    """E.g. `"longhaul/TextCraft-v0"`."""
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    """Keyword arguments of the environment; plain JSON."""
    import_modules: tuple[str, ...] = ()
    """Modules to import beforehand: those that register the id."""

    def __post_init__(self) -> None:
        try:
            self.to_json()
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"options of {self.environment_id!r} must be plain JSON, got {self.options!r}"
            ) from error

    def load(self) -> object:
        """Import whatever `make` will need, so that it costs no import later.

        Returns:
            What makes the environment: its class, as a rule.

        Raises:
            ConfigError: If Gymnasium does not know the id after the imports.
        """
        module, _, registered_id = self.environment_id.rpartition(":")  # Gymnasium's `module:id`
        for name in (*self.import_modules, *filter(None, [module])):
            importlib.import_module(name)
        registered = gymnasium.registry.get(registered_id)
        if registered is None:
            raise ConfigError(
                f"no environment {self.environment_id!r} is registered with Gymnasium after "
                f"importing {list(self.import_modules)}; name the module that registers it in "
                "import_modules"
            )
        entry_point = registered.entry_point
        return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point

    def episodes_per_process(self) -> int:
        """How many episodes one process may play at once: what the environment's class declares.

        A class attribute `episodes_per_process` declares it: that instances share no state that
        changes, and that a call takes milliseconds, since those of one process are made one after
        the other. Without it, 1.

        Raises:
            ConfigError: If Gymnasium does not know the id, or what is declared is no number from
                1 to 65,536.
        """
        declared = getattr(self.load(), "episodes_per_process", 1)
        if not (isinstance(declared, int) and 1 <= declared <= 2**16):
            raise ConfigError(
                f"episodes_per_process of {self.environment_id!r} must be a whole number from 1 to "
                f"{2**16}, got {declared!r}"
            )
        return declared

    def make(self) -> gymnasium.Env[str, str]:
        """A new environment. Gymnasium's own time limits and wrappers apply.

        A time limit does not truncate a step that ends the task. Gymnasium's passive checker does
        not apply: it would test each step of each episode for what a contract suite tests once.
        """
        self.load()
        options = cast("dict[str, Any]", dict(self.options))
        made = gymnasium.make(self.environment_id, disable_env_checker=True, **options)
        if isinstance(made, TimeLimit):
            made = _EndsInOneWay(made)
        return cast("gymnasium.Env[str, str]", made)

    def to_json(self) -> str:
        """The spec as text, for another process."""
        return json.dumps([self.environment_id, dict(self.options), list(self.import_modules)])

    @classmethod
    def from_json(cls, text: str) -> "GymEnvironmentSpec":
        """What `to_json` wrote."""
        environment_id, options, import_modules = json.loads(text)
        return cls(
            environment_id=environment_id, options=options, import_modules=tuple(import_modules)
        )


class _EndsInOneWay(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Under Gymnasium's time limit, which truncates the last step also if it ends the task."""

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:  # noqa: ANN401
        seen, reward, terminated, truncated, info = self.env.step(action)
        return seen, reward, terminated, truncated and not terminated, info
