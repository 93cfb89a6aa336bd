"""From names and options to environments that can be served; nothing is started here."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from longhaul_core.discovery import installed_environments
from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec, GymSource
from longhaul_envs.server.errors import Cause
from longhaul_envs.server.fleet import Fleet, FleetLimits
from longhaul_envs.server.table import Served
from longhaul_envs.server.workers import Backend, ProcessBackend
from longhaul_envs.sources import environment_source

__all__ = ["EnvironmentToServe", "full_id"]

_REGISTRY = "longhaul_envs.registry"


def full_id(name: str) -> str:
    """The id of an installed environment by its id or its short name: `textcraft`, `number_line`.

    Raises:
        ConfigError: If none or several have the name.
    """
    installed = installed_environments()
    if name in installed:
        return name
    fitting = [one for one in installed if _short(one) == _plain(name)]
    if len(fitting) != 1:
        found = f"several have that name: {', '.join(fitting)}" if fitting else "there is none"
        raise ConfigError(
            f"no environment {name!r}: {found}; installed are {', '.join(installed)}. One of your "
            "own needs --import-module, or import_modules in the file"
        )
    return fitting[0]


def _short(environment_id: str) -> str:
    """`longhaul/TextCraft-v0` as `textcraft`."""
    name = environment_id.rpartition("/")[2]
    return _plain(re.sub(r"-v\d+$", "", name))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentToServe:
    """An environment, its options, and what its workers may take."""

    id: str
    """A full id; one that is not installed is Gymnasium's."""
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    import_modules: tuple[str, ...] = ()
    """Modules that register it with Gymnasium, where it is not installed."""
    limits: FleetLimits = field(default_factory=FleetLimits)
    sessions_per_worker: int | None = None
    """None: as many as the environment declares (`episodes_per_process`)."""

    def built(
        self,
        *,
        backend: Callable[[str], Backend] = ProcessBackend,
        on_replaced: Callable[[Cause], None] = lambda cause: None,
    ) -> Served:
        """What a session table serves. Within an event loop; its fleet is not started yet.

        Args:
            backend: Makes the back end from a `GymEnvironmentSpec` as text.
            on_replaced: Called for each worker that is lost.

        Raises:
            ConfigError: If the environment is not known, refuses its options, is no Gymnasium
                environment, or may not play as many sessions in one worker.
        """
        source = self.source()
        limits = self._limits(source)
        fleet = Fleet(backend(source.spec.to_json()), limits=limits, on_replaced=on_replaced)
        return Served(
            description=source.describe(), options=self.options, tasks=source.tasks, fleet=fleet
        )

    def source(self) -> GymSource:
        """What describes it and lists its tasks. Raises as `built`."""
        spec = GymEnvironmentSpec(
            environment_id=self.id,
            options=self.options,
            import_modules=(_REGISTRY, *self.import_modules),
        )
        source = environment_source(spec)
        if not isinstance(source, GymSource):
            raise ConfigError(
                f"{self.id!r} cannot be served: it is no Gymnasium environment but plays by "
                "itself, as a client of another server does; let runs name that server"
            )
        source.describe()
        self._limits(source)
        return source

    def _limits(self, source: GymSource) -> FleetLimits:
        declared = source.describe().episodes_per_process
        sessions = declared if self.sessions_per_worker is None else self.sessions_per_worker
        if sessions > 1 and declared == 1:
            raise ConfigError(
                f"{self.id!r} plays one episode a process, and {sessions} sessions in one worker "
                "were asked for; its class declares no more (episodes_per_process)"
            )
        num_warm = min(self.limits.num_warm, sessions)
        return replace(self.limits, sessions_per_worker=sessions, num_warm=num_warm)
