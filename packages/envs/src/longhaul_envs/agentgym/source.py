"""An AgentGym server as a source: described and listed without asking it."""

from collections.abc import Mapping, Sequence

from longhaul_core.environment import Environment, EnvironmentDescription
from longhaul_core.gym import options_from
from longhaul_core.types import Split, Task
from longhaul_envs.agentgym import tasks as task_list
from longhaul_envs.extras import required

__all__ = ["AgentGymSource", "source"]


def source(options: Mapping[str, object]) -> "AgentGymSource":
    """An AgentGym server under `options`: those of `AgentGymOptions`, or AgentGym-RL's names.

    Raises:
        ConfigError: If there is no such option, a value is out of its range, or aiohttp is not
            installed.
    """
    required("aiohttp", "agentgym")
    return AgentGymSource(
        options_from(
            task_list.AgentGymOptions,
            task_list.under_our_names(options),
            environment_id=task_list.ENVIRONMENT_ID,
        )
    )


class AgentGymSource:
    """An `EnvironmentSource` whose episodes are played by an AgentGym server."""

    def __init__(self, options: task_list.AgentGymOptions) -> None:
        from longhaul_envs.agentgym.environment import Server

        self._options = options
        self._server = Server(options)

    def describe(self) -> EnvironmentDescription:
        """See `EnvironmentSource.describe`."""
        dialect = self._options.dialect
        return EnvironmentDescription(
            id=task_list.ENVIRONMENT_ID,
            version=self._options.version,
            summary=f"{dialect.summary}, on the AgentGym server at {self._options.base_url}",
            prompt=dialect.prompt,
            actions=dialect.actions,
            determinism=dialect.determinism,
        )

    def tasks(self, split: Split) -> Sequence[Task]:
        """See `EnvironmentSource.tasks`."""
        return task_list.tasks(split, self._options)

    def make(self, task: Task) -> Environment:
        """See `EnvironmentSource.make`."""
        return self._server.environment()
