"""Modules that an extra of `longhaul-envs` brings: imported when used, or refused by name."""

import importlib
from types import ModuleType

from longhaul_core.errors import ConfigError

__all__ = ["required"]


def required(module: str, extra: str) -> ModuleType:
    """The imported module `module`, which `longhaul-envs[EXTRA]` installs.

    Raises:
        ConfigError: If it is not installed. One that is installed and fails to import raises
            what it raises.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise
        raise ConfigError(
            f"{module} is not installed; install longhaul-envs[{extra}], e.g. by "
            f"`pip install 'longhaul-envs[{extra}]'`"
        ) from error
