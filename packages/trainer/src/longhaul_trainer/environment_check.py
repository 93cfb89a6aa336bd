"""Is a run's environment there, and does it speak text? Asked before anything starts.

Two depths: `require_known` only looks the id up, in a fraction of a second;
`require_playable` makes one environment, so that wrong options are met here and not by the
first episode.
"""

from typing import Any, cast

import gymnasium
from gymnasium.spaces import Text

from longhaul_core.components import import_module
from longhaul_core.errors import ConfigError, EnvironmentFailure, attributed_to
from longhaul_envs.pictures import is_observation_space
from longhaul_envs.registry import register_all
from longhaul_trainer.config import EnvironmentConfig


def require_known(environment: EnvironmentConfig) -> None:
    """Import the run's modules and look its environment up.

    Raises:
        ConfigError: If a module cannot be imported, or Gymnasium does not know the id.
    """
    register_all()
    module_of_id, colon, name = environment.id.partition(":")  # Gymnasium's `module:Name-v0`
    modules = [*environment.import_modules, *([module_of_id] if colon else [])]
    for module in modules:
        import_module(module, setting="environment.id or environment.import_modules")
    try:
        gymnasium.spec(name if colon else environment.id)
    except gymnasium.error.Error as error:
        raise ConfigError(
            f"environment.id = {environment.id!r}: {error}; an environment of your own is "
            "registered by a module that environment.import_modules names"
        ) from error


def require_playable(environment: EnvironmentConfig) -> None:
    """Make one environment with the run's options, and close it.

    Raises:
        ConfigError: If it is not known, refuses its options, or does not speak text.
    """
    require_known(environment)
    options = cast("dict[str, Any]", dict(environment.options))  # their types are its business
    try:
        with attributed_to(EnvironmentFailure, f"making {environment.id} with {options}"):
            made = cast("gymnasium.Env[object, object]", gymnasium.make(environment.id, **options))
            spaces = {"observations": made.observation_space, "actions": made.action_space}
            made.close()
    except EnvironmentFailure as error:
        raise ConfigError(f"environment.options: {error}") from error
    readable = {
        "observations": is_observation_space(spaces["observations"]),
        "actions": isinstance(spaces["actions"], Text),
    }
    for what, space in spaces.items():
        if not readable[what]:
            raise ConfigError(
                f"environment.id = {environment.id!r}: its {what} are {space}, and must be "
                "gymnasium.spaces.Text (observations with a picture: "
                "longhaul_envs.pictures.picture_space()); wrap it in one that speaks text"
            )
