"""ORS's tasks: those that the server counts in each split."""

from dataclasses import dataclass
from typing import ClassVar

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.served import bearer
from longhaul_envs.task_api import (
    TaskServerOptions,
    a_task,
    environments,
    split_names,
    task_ids,
)

__all__ = ["ENVIRONMENT_ID", "OrsOptions", "environment_name", "tasks"]

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
