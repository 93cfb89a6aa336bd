"""An environment of Gymnasium as a source: described and listed by plain functions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, TypeVar, cast

from longhaul_core.environment import Environment, EnvironmentDescription
from longhaul_core.errors import ConfigError
from longhaul_core.gym.pool import ProcessPool
from longhaul_core.gym.spec import GymEnvironmentSpec
from longhaul_core.gym.thread import ThreadEnvironment
from longhaul_core.types import Split, Task

__all__ = ["GymSource", "PooledSource", "options_from"]

Options = TypeVar("Options")

_TYPES: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    tuple: "a list",
    Mapping: "a table",
}
"""In this order, since a bool is an int; each as the author of a run's file calls it."""


class GymSource:
    """A Gymnasium environment, described and listed without an instance of it.

    It is played in a thread of this process; `PooledSource` plays it in worker processes.
    """

    def __init__(
        self,
        spec: GymEnvironmentSpec,
        *,
        describe: Callable[[], EnvironmentDescription],
        list_tasks: Callable[[Split], Sequence[Task]],
    ) -> None:
        """Put a source together.

        Args:
            spec: How an instance is made, in any process.
            describe: Called once at most.
            list_tasks: Every task of a split in a fixed order; called once at most for each.
        """
        self.spec = spec
        self._describe = describe
        self._list_tasks = list_tasks
        self._description: EnvironmentDescription | None = None
        self._tasks: dict[Split, tuple[Task, ...]] = {}

    def describe(self) -> EnvironmentDescription:
        """See `EnvironmentSource.describe`."""
        if self._description is None:
            self._description = self._describe()
        return self._description

    def tasks(self, split: Split) -> Sequence[Task]:
        """See `EnvironmentSource.tasks`.

        Raises:
            ConfigError: If there is none, one is of another split or environment, or a task id
                stands twice.
        """
        if split not in self._tasks:
            listed = tuple(self._list_tasks(split))
            _refuse_if_wrong(self.spec.environment_id, split, listed)
            self._tasks[split] = listed
        return self._tasks[split]

    def make(self, task: Task) -> Environment:
        """See `EnvironmentSource.make`; see `ThreadEnvironment` for what a hang costs."""
        return ThreadEnvironment(self.spec.make)


class PooledSource:
    """A source whose episodes are played by worker processes of its own."""

    def __init__(
        self, source: GymSource, *, num_workers: int, most_in_one: int | None = None
    ) -> None:
        """Describe it; nothing is started yet.

        Args:
            source: That answers whatever needs no instance.
            num_workers: Most episodes at once, at least 1.
            most_in_one: See `ProcessPool`.

        Raises:
            ConfigError: If `num_workers` is out of range.
        """
        self._source = source
        self._pool = ProcessPool(source.spec, num_workers=num_workers, most_in_one=most_in_one)

    def describe(self) -> EnvironmentDescription:
        """See `EnvironmentSource.describe`."""
        return self._source.describe()

    def tasks(self, split: Split) -> Sequence[Task]:
        """See `EnvironmentSource.tasks`."""
        return self._source.tasks(split)

    def make(self, task: Task) -> Environment:
        """See `EnvironmentSource.make`."""
        return self._pool(task)

    async def close(self) -> None:
        """End every process."""
        await self._pool.close()


def options_from(
    kind: type[Options], options: Mapping[str, object], *, environment_id: str
) -> Options:
    """A table of options as the dataclass that checks them.

    A list becomes a tuple, and so does a lone text that stands for a list of it.

    Raises:
        ConfigError: If there is no option of a name, a value is not of its default's type, or it
            is refused.
    """
    assert is_dataclass(kind)
    known = [field.name for field in fields(kind)]
    for name in options:
        if name not in known:
            raise ConfigError(
                f"{environment_id} has no option {name!r}; there are {', '.join(known)}"
            )
    given = {
        name: tuple(cast("list[object]", value)) if isinstance(value, list) else value
        for name, value in options.items()
    }
    for field in fields(kind):
        if field.name in given:
            default = _default_of(field)
            _refuse_wrong_type(field.name, given[field.name], default)
            if isinstance(default, tuple) and isinstance(given[field.name], str):
                given[field.name] = (given[field.name],)
    return kind(**given)


def _default_of(field: "Field[Any]") -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _refuse_wrong_type(name: str, value: object, default: object) -> None:
    """Refuse a value that is not of its default's type; a lone text may stand for a list."""
    wanted = next((kind for kind in _TYPES if isinstance(default, kind)), None)
    if wanted is None:
        return
    fits = isinstance(value, (int, float) if wanted is float else wanted)
    if wanted is tuple:
        entries = cast("tuple[object, ...]", value if isinstance(value, tuple) else (value,))
        kind = type(cast("tuple[object, ...]", default)[0]) if default else str
        fits = (isinstance(value, tuple) or kind is str) and all(
            type(entry) is kind for entry in entries
        )
    if not fits or (isinstance(value, bool) and wanted is not bool):
        raise ConfigError(f"{name} must be {_TYPES[wanted]}, got {value!r}")


def _refuse_if_wrong(name: str, split: Split, listed: Sequence[Task]) -> None:
    if not listed:
        raise ConfigError(f"{name!r} lists no task for split {split.value!r}")
    if len({task.task_id for task in listed}) < len(listed):
        raise ConfigError(f"{name!r} lists a task id twice in split {split.value!r}")
    for task in listed:
        if task.split is not split or task.environment != name:
            raise ConfigError(
                f"{name!r} lists task {task.task_id!r} of environment {task.environment!r}, "
                f"split {task.split.value!r}, under split {split.value!r}"
            )
