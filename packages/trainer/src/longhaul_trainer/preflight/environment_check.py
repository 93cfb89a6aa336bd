"""Is a run's environment there, and does it speak text? Asked before anything starts.

Two depths: `require_known` only looks the id up, in a fraction of a second;
`require_playable` asks the environment to describe itself, so that wrong options are met here
and not by the first episode.
"""

import gymnasium

from longhaul_core.components import import_module
from longhaul_core.discovery import installed_environments
from longhaul_core.errors import ConfigError
from longhaul_envs.registry import register_all
from longhaul_trainer.config import EnvironmentConfig
from longhaul_trainer.play.environments import source_of


def require_known(environment: EnvironmentConfig, *, setting: str = "environment") -> None:
    """Import the run's modules and look an environment up.

    Args:
        environment: Of the run.
        setting: Table of the run that describes it, for messages.

    Raises:
        ConfigError: If a module cannot be imported, or neither an installed distribution nor
            Gymnasium knows the id.
    """
    if environment.server is not None:  # the server says whether it knows it
        return
    register_all()
    module_of_id, colon, name = environment.id.partition(":")  # Gymnasium's `module:Name-v0`
    modules = [*environment.import_modules, *([module_of_id] if colon else [])]
    for module in modules:
        import_module(module, setting=f"{setting}.id or {setting}.import_modules")
    installed = installed_environments()
    if environment.id in installed:
        return
    try:
        gymnasium.spec(name if colon else environment.id)
    except gymnasium.error.Error as error:
        raise ConfigError(
            f"{setting}.id = {environment.id!r}: {error}; installed are {', '.join(installed)}; "
            f"an environment of your own is registered by a module that {setting}.import_modules "
            "names"
        ) from error


def require_playable(environment: EnvironmentConfig, *, setting: str = "environment") -> None:
    """Ask an environment to describe itself under the run's options.

    Args:
        environment: Of the run.
        setting: Table of the run that describes it, for messages.

    Raises:
        ConfigError: If it is not known, refuses its options, or does not speak text; if a server
            plays it, whatever `RemoteSource.describe` refuses.
    """
    require_known(environment, setting=setting)
    try:
        source_of(environment).describe()
    except ConfigError as error:
        about = "options" if environment.server is None else "server"
        raise ConfigError(f"{setting}.{about}: {error}") from error
