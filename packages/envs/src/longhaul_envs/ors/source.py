"""An ORS server as a source: described and listed by what it answers, without a session."""

from collections.abc import Mapping, Sequence

from longhaul_core.environment import (
    Determinism,
    Environment,
    EnvironmentDescription,
    EnvironmentPrompt,
)
from longhaul_core.errors import ConfigError
from longhaul_core.gym import options_from
from longhaul_core.types import Split, Task
from longhaul_envs.extras import required
from longhaul_envs.ors import tasks as task_list
from longhaul_envs.ors.tools import Tools

__all__ = ["OrsSource", "source"]


def source(options: Mapping[str, object]) -> "OrsSource":
    """An ORS server under `options`, those of `OrsOptions`.

    Raises:
        ConfigError: If there is no such option, a value is out of its range, or aiohttp is not
            installed.
    """
    required("aiohttp", "ors")
    return OrsSource(
        options_from(task_list.OrsOptions, options, environment_id=task_list.ENVIRONMENT_ID)
    )


class OrsSource:
    """An `EnvironmentSource` whose episodes are sessions of an ORS server."""

    def __init__(self, options: task_list.OrsOptions) -> None:
        from longhaul_envs.wire import Places

        self._options = options
        self._places = Places(options.max_episodes)
        self._name = ""
        self._tools: Tools | None = None
        self._tasks: dict[Split, tuple[Task, ...]] = {}

    def describe(self) -> EnvironmentDescription:
        """See `EnvironmentSource.describe`; the server is asked for its tools, once."""
        tools = self._known_tools()
        listed = "\n".join(f"- {line}" for line in tools.descriptions.values())
        return EnvironmentDescription(
            id=task_list.ENVIRONMENT_ID,
            version=self._options.version,
            summary=f"{self._known_name()}, on the ORS server at {self._options.base_url}",
            prompt=EnvironmentPrompt(
                system=f"You solve a task by calling tools. A call is {tools.words}.\n"
                f"Tools:\n{listed or '- none'}",
                instruction="What is the next call?",
            ),
            actions=tools.words,
            determinism=Determinism(self._options.determinism),
        )

    def tasks(self, split: Split) -> Sequence[Task]:
        """See `EnvironmentSource.tasks`; the server is asked for its tasks, once."""
        if not self._tasks:
            self._tasks = task_list.tasks(self._options, name=self._known_name())
        return self._tasks[split]

    def make(self, task: Task) -> Environment:
        """See `EnvironmentSource.make`."""
        from longhaul_envs.ors.environment import OrsEnvironment

        return OrsEnvironment(
            self._options, name=self._known_name(), tools=self._known_tools(), places=self._places
        )

    def _known_name(self) -> str:
        if not self._name:
            self._name = task_list.environment_name(self._options)
        return self._name

    def _known_tools(self) -> Tools:
        if self._tools is None:
            path = f"/{self._known_name()}/tools"
            try:
                self._tools = Tools.of(self._options.asked(path))
            except TypeError as error:
                raise ConfigError(f"{self._options.base_url}{path}: {error}") from error
        return self._tools
