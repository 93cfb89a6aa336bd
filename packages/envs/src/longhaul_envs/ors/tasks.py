"""ORS's tasks: those that the server counts in each split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

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
from longhaul_envs.ors.tools import Tools
from longhaul_envs.served import bearer
from longhaul_envs.task_api import (
    TaskServerOptions,
    a_task,
    environments,
    split_names,
    task_ids,
)

__all__ = ["ENVIRONMENT_ID", "OrsOptions", "OrsSource", "environment_name", "source", "tasks"]

ENVIRONMENT_ID = "longhaul/ORS-v0"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrsOptions(TaskServerOptions):
    """What can be chosen about an ORS server."""

    environment_id: ClassVar[str] = ENVIRONMENT_ID
    system: ClassVar[str] = "an ORS"

    environment: str = ""
    """Which of the server's environments; "": its first."""
    max_episodes: int = 64
    """Episodes at once in an agent loop, at least 1."""
    timeout_seconds: float = 300.0
    """For one answer, and for a server that is starting, above 0."""

    @property
    def headers(self) -> dict[str, str]:
        """Of every request: a token, in the header of a proxy and in that of the platform."""
        given = bearer(self.token_variable)
        return {**given, "X-API-Key": next(iter(given.values())).split()[1]} if given else {}

    @property
    def version(self) -> str:
        """The value of `Task.version`: options that change what is played and what counts."""
        return f"1+environment={self.environment}+success_above={self.success_above}"


def environment_name(options: OrsOptions) -> str:
    """The environment that is played, as routes name it.

    Raises:
        ConfigError: If the server has none of that name.
    """
    known = environments(options)
    wanted = options.environment.lower() or known[0]
    if wanted not in known:
        raise ConfigError(
            f"{options.base_url} has no environment {options.environment!r}; it has "
            f"{', '.join(known)}"
        )
    return wanted


def tasks(options: OrsOptions, *, name: str) -> dict[Split, tuple[Task, ...]]:
    """Every task of the environment `name`, as the server counts them now.

    Raises:
        ConfigError: If the server cannot be asked, or has too few tasks to fill three splits.
    """
    listed = task_ids(options, name, split_names(options, name))
    return {
        split: tuple(a_task(options, item, split=split, goal=f"{name} {item}") for item in items)
        for split, items in listed.items()
    }


def source(options: Mapping[str, object]) -> "OrsSource":
    """An ORS server under `options`, those of `OrsOptions`.

    Raises:
        ConfigError: If there is no such option, a value is out of its range, or aiohttp is not
            installed.
    """
    required("aiohttp", "ors")
    return OrsSource(options_from(OrsOptions, options, environment_id=ENVIRONMENT_ID))


class OrsSource:
    """An `EnvironmentSource` whose episodes are sessions of an ORS server."""

    def __init__(self, options: OrsOptions) -> None:
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
            id=ENVIRONMENT_ID,
            version=self._options.version,
            summary=f"{self._known_name()}, on the ORS server at {self._options.base_url}",
            prompt=EnvironmentPrompt(
                system="You solve a task by calling tools.",
                instruction="What is the next call?",
                calls=f"A call is {tools.words}.\nTools:\n{listed or '- none'}",
            ),
            tools=tools.listed,
            actions=tools.words,
            determinism=Determinism(self._options.determinism),
        )

    def tasks(self, split: Split) -> Sequence[Task]:
        """See `EnvironmentSource.tasks`; the server is asked for its tasks, once."""
        if not self._tasks:
            self._tasks = tasks(self._options, name=self._known_name())
        return self._tasks[split]

    def make(self, task: Task) -> Environment:
        """See `EnvironmentSource.make`."""
        from longhaul_envs.ors.environment import OrsEnvironment

        return OrsEnvironment(
            self._options, name=self._known_name(), tools=self._known_tools(), places=self._places
        )

    def _known_name(self) -> str:
        if not self._name:
            self._name = environment_name(self._options)
        return self._name

    def _known_tools(self) -> Tools:
        if self._tools is None:
            path = f"/{self._known_name()}/tools"
            try:
                self._tools = Tools.of(self._options.asked(path))
            except TypeError as error:
                raise ConfigError(f"{self._options.base_url}{path}: {error}") from error
        return self._tools
