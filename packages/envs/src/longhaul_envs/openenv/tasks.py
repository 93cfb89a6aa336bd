"""OpenEnv's tasks: those that the server lists, or else seeds, with ids `seed/NUMBER`."""

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
from longhaul_envs.openenv.actions import ActionForm
from longhaul_envs.served import field_of
from longhaul_envs.task_api import (
    NotOffered,
    TaskServerOptions,
    a_task,
    environments,
    split_names,
    task_ids,
)
from longhaul_envs.task_lists import DEFAULT_NUM_TASKS, split_of

__all__ = ["ENVIRONMENT_ID", "OpenEnvOptions", "OpenEnvSource", "reset_data", "source", "tasks"]

ENVIRONMENT_ID = "longhaul/OpenEnv-v0"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEnvOptions(TaskServerOptions):
    """What can be chosen about an OpenEnv server."""

    environment_id: ClassVar[str] = ENVIRONMENT_ID
    system: ClassVar[str] = "an OpenEnv"

    action_field: str = ""
    """Field of the server's action that takes the text of an action. "": its one field of text;
    where it has several fields, an action is a JSON object of them."""
    observation_field: str = ""
    """Field of the server's observation that is shown. "": its one field, if that is text; else
    the whole observation, as JSON."""
    max_episodes: int = 1
    """Episodes at once in an agent loop, at least 1: sessions that the server allows (its
    `max_concurrent_envs`, 1 by default)."""
    timeout_seconds: float = 60.0
    """For one answer, above 0. The run's own deadlines hold beside it."""

    @property
    def version(self) -> str:
        """The value of `Task.version`: options that change what is shown and what counts."""
        rules = ("action_field", "observation_field", "success_above")
        return "+".join(["1", *(f"{rule}={getattr(self, rule)}" for rule in rules)])


def tasks(options: OpenEnvOptions) -> dict[Split, tuple[Task, ...]]:
    """Every task, as the server lists them now; 1,024, 256 and 256 seeds if it lists none.

    Raises:
        ConfigError: If the server cannot be asked, or has too few tasks to fill three splits.
    """
    try:
        name = environments(options)[0]
        splits = split_names(options, name)
    except NotOffered:  # servers before the task API
        listed = {split: _seeds(split) for split in Split}
    else:
        listed = task_ids(options, name, splits)
    return {
        split: tuple(a_task(options, item, split=split, goal=item) for item in items)
        for split, items in listed.items()
    }


def reset_data(task: Task) -> dict[str, object]:
    """What the server's `reset` is given to start `task`."""
    name, _, number = task.task_id.rpartition("/")
    if name == "seed":
        return {"seed": task.seed}
    return {"split": name, "index": int(number)}


def _seeds(split: Split) -> list[str]:
    """Ids of the first seeds whose hash falls into `split`."""
    found: list[str] = []
    seed = 0
    while len(found) < DEFAULT_NUM_TASKS[split]:
        if split_of(f"seed {seed}") is split:
            found.append(f"seed/{seed:05}")
        seed += 1
    return found


def source(options: Mapping[str, object]) -> "OpenEnvSource":
    """An OpenEnv server under `options`, those of `OpenEnvOptions`.

    Raises:
        ConfigError: If there is no such option, a value is out of its range, or aiohttp is not
            installed.
    """
    required("aiohttp", "openenv")
    return OpenEnvSource(options_from(OpenEnvOptions, options, environment_id=ENVIRONMENT_ID))


class OpenEnvSource:
    """An `EnvironmentSource` whose episodes are sessions of an OpenEnv server."""

    def __init__(self, options: OpenEnvOptions) -> None:
        from longhaul_envs.wire import Places

        self._options = options
        self._places = Places(options.max_episodes)
        self._form: ActionForm | None = None
        self._tasks: dict[Split, tuple[Task, ...]] = {}

    def describe(self) -> EnvironmentDescription:
        """See `EnvironmentSource.describe`; the server is asked for its schema, once."""
        words = self._action_form().words
        return EnvironmentDescription(
            id=ENVIRONMENT_ID,
            version=self._options.version,
            summary=f"the OpenEnv server at {self._options.base_url}",
            prompt=EnvironmentPrompt(
                system=f"You act in an environment. An action is {words}.",
                instruction="What is the next action?",
            ),
            actions=words,
            determinism=Determinism(self._options.determinism),
        )

    def tasks(self, split: Split) -> Sequence[Task]:
        """See `EnvironmentSource.tasks`; the server is asked for its tasks, once."""
        if not self._tasks:
            self._tasks = tasks(self._options)
        return self._tasks[split]

    def make(self, task: Task) -> Environment:
        """See `EnvironmentSource.make`."""
        from longhaul_envs.openenv.environment import OpenEnvEnvironment

        return OpenEnvEnvironment(self._options, form=self._action_form(), places=self._places)

    def _action_form(self) -> ActionForm:
        if self._form is None:
            answer = self._options.asked("/schema")
            schema = field_of(answer, "action")
            if schema is None:
                raise ConfigError(
                    f"{self._options.base_url}/schema names no action: {str(answer)[:300]}; is it "
                    "an OpenEnv server?"
                )
            try:
                self._form = ActionForm.of(schema, chosen=self._options.action_field)
            except (TypeError, ValueError) as error:
                raise ConfigError(f"{self._options.base_url}: {error}") from error
        return self._form
