"""The task lists of any environment that Gymnasium knows.

An environment with a `tasks` method answers for itself. For any other, a task is a seed,
and the first observation that a seed gives decides its split: two splits may share seeds'
neighbourhoods, never a start.
"""

import json
from collections.abc import Sequence

import gymnasium

from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.tasks import TaskSource
from longhaul_core.types import Split, Task
from longhaul_envs.capabilities import ListsTasks
from longhaul_envs.task_lists import procedural_tasks

__all__ = ["ListedTasks", "SeedTasks", "task_source_for"]


def task_source_for(spec: GymEnvironmentSpec) -> TaskSource:
    """Where the tasks of `spec` come from.

    Raises:
        ConfigError: The id is not registered, or an option is out of range.
    """
    environment = spec.make()
    try:
        lists_tasks = isinstance(environment.unwrapped, ListsTasks)
    finally:
        environment.close()
    return ListedTasks(spec) if lists_tasks else SeedTasks(spec)


class ListedTasks:
    """Tasks that the environment lists itself."""

    def __init__(self, spec: GymEnvironmentSpec) -> None:
        self._spec = spec

    def tasks(self, split: Split, limit: int | None = None) -> Sequence[Task]:
        """The environment's own list.

        Raises:
            ConfigError: It is empty, holds a task of another split or environment, or the
                same task id twice.
        """
        environment = self._spec.make()
        try:
            lister = environment.unwrapped
            assert isinstance(lister, ListsTasks)
            listed = tuple(lister.tasks(split) if limit is None else lister.tasks(split, limit))
        finally:
            environment.close()
        self._refuse_if_wrong(split, listed)
        return listed

    def _refuse_if_wrong(self, split: Split, listed: Sequence[Task]) -> None:
        name = self._spec.environment_id
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


class SeedTasks:
    """Tasks that are seeds, for an environment without lists of its own."""

    def __init__(self, spec: GymEnvironmentSpec) -> None:
        self._spec = spec
        self._starts: list[str] = []
        registered = gymnasium.spec(spec.environment_id)
        self._version = str(registered.version or 0)
        if spec.options:
            self._version += f"+{json.dumps(dict(spec.options), sort_keys=True)}"

    def tasks(self, split: Split, limit: int | None = None) -> Sequence[Task]:
        """Seeds with a first observation of `split`, no observation twice.

        Costs one reset per seed looked at, once.

        Raises:
            ConfigError: The seeds give too few different first observations for `split`.
        """
        environment = self._spec.make()

        def start_of(seed: int) -> str:
            while len(self._starts) <= seed:
                text, _ = environment.reset(seed=len(self._starts))
                self._starts.append(text)
            return self._starts[seed]

        try:
            found = procedural_tasks(
                split,
                limit=limit,
                content_of=start_of,
                task_of=lambda seed: self._task(seed, split),
            )
        finally:
            environment.close()
        if not found:
            raise ConfigError(
                f"{self._spec.environment_id!r} has no task for split {split.value!r}: "
                f"{len(self._starts)} seeds give {len(set(self._starts))} different first "
                "observations; give the environment a `tasks` method"
            )
        return found

    def _task(self, seed: int, split: Split) -> Task:
        return Task(
            environment=self._spec.environment_id,
            version=self._version,
            data_hash="",
            task_id=f"seed/{seed:05}",
            seed=seed,
            split=split,
            goal="",
        )
