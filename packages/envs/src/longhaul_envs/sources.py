"""The source of any environment: an installed one's own, or one that asks the class."""

from dataclasses import replace
from functools import cache

from longhaul_core.discovery import installed_environments, installed_source
from longhaul_core.environment import EnvironmentSource
from longhaul_core.gym import GymEnvironmentSpec, GymSource
from longhaul_envs.extras import required
from longhaul_envs.inspected import InspectedEnvironment

__all__ = ["environment_source", "new_source", "source_at"]


def environment_source(spec: GymEnvironmentSpec) -> EnvironmentSource:
    """What answers for the environment that `spec` names; equal specs give the same source.

    An installed environment (`longhaul_core.discovery`) answers for itself. Any other id is
    Gymnasium's, and its class is asked in a worker process, which builds it once.

    Raises:
        ConfigError: If an installed environment refuses the options. Whether Gymnasium knows
            another id, and what its class says to the options, is known when it is asked.
    """
    return _source(spec.to_json())


def source_at(server: str | None, spec: GymEnvironmentSpec) -> EnvironmentSource:
    """What answers for an environment that a server plays, or this machine.

    Args:
        server: Address of an environment server; None for this machine.
        spec: The environment. A server imports what it needs by itself.

    Raises:
        ConfigError: See `environment_source`; or a server's client is not installed.
    """
    if server is None:
        return environment_source(spec)
    required("aiohttp", "server")
    from longhaul_envs.remote.source import remote_source

    return remote_source(server, spec.environment_id, spec.options)


@cache
def _source(spec_json: str) -> EnvironmentSource:
    return new_source(GymEnvironmentSpec.from_json(spec_json))


def new_source(spec: GymEnvironmentSpec) -> EnvironmentSource:
    """`environment_source` for a process that is asked for any number of them and keeps none.

    The worker process of one, where it has one, ends with it.

    Raises:
        ConfigError: See `environment_source`.
    """
    if spec.environment_id not in installed_environments():
        asked = InspectedEnvironment(spec)
        return GymSource(spec, describe=asked.describe, list_tasks=asked.tasks)
    source = installed_source(spec.environment_id, spec.options)
    if isinstance(source, GymSource) and spec.import_modules:
        source.spec = replace(
            source.spec, import_modules=(*source.spec.import_modules, *spec.import_modules)
        )
    return source
