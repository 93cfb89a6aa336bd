"""Which environments are installed: entry points, so that one can be a distribution of its own.

A distribution declares, in its `pyproject.toml`,

    [project.entry-points."longhaul.environments"]
    "mine/Capitals-v0" = "capitals.source:source"

where the name is the environment's id, and the function takes the options of a run, a table
of plain values, and returns an `EnvironmentSource`. Nothing is imported to list them.
"""

import importlib.metadata
from collections.abc import Callable, Mapping
from typing import cast

from longhaul_core.environment import EnvironmentSource
from longhaul_core.errors import ConfigError, EnvironmentFailure, attributed_to

__all__ = ["ENTRY_POINT_GROUP", "installed_environments", "installed_source"]

ENTRY_POINT_GROUP = "longhaul.environments"

SourceMaker = Callable[[Mapping[str, object]], EnvironmentSource]
"""What an entry point names: from the options of a run to the source."""


def installed_environments() -> dict[str, str]:
    """Id of every installed environment, in alphabetical order, to `module:function` of its source.

    Raises:
        ConfigError: If two distributions declare the same id.
    """
    declared = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    found: dict[str, str] = {}
    for entry_point in sorted(declared, key=lambda one: one.name):
        other = found.setdefault(entry_point.name, entry_point.value)
        if other != entry_point.value:
            raise ConfigError(
                f"environment {entry_point.name!r} is declared twice, as {other} and as "
                f"{entry_point.value}; uninstall one of the two distributions"
            )
    return found


def installed_source(environment_id: str, options: Mapping[str, object]) -> EnvironmentSource:
    """The source of an installed environment, under `options`.

    Raises:
        ConfigError: If no distribution declares the id (the message lists those that are), if
            its source cannot be imported, or if the source refuses the options.
    """
    installed = installed_environments()
    if environment_id not in installed:
        raise ConfigError(
            f"no environment {environment_id!r} is installed; there are "
            f"{', '.join(installed) or 'none'}"
        )
    value = installed[environment_id]
    entry_point = importlib.metadata.EntryPoint(environment_id, value, ENTRY_POINT_GROUP)
    try:
        with attributed_to(EnvironmentFailure, f"importing {value}"):
            make = cast("SourceMaker", entry_point.load())
        with attributed_to(EnvironmentFailure, f"{environment_id} with {dict(options)}"):
            return make(options)
    except EnvironmentFailure as error:
        cause = error.__cause__
        if not isinstance(cause, ConfigError):
            raise ConfigError(str(error)) from error
        words = str(cause)  # the source's own, which says what to do
        named = words if environment_id in words else f"{environment_id}: {words}"
        raise ConfigError(named) from error
