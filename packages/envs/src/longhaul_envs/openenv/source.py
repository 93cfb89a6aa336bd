"""An OpenEnv server as a source: described and listed by what it answers, without a session."""

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
from longhaul_envs.openenv import tasks as task_list
from longhaul_envs.openenv.actions import ActionForm
from longhaul_envs.served import field_of

__all__ = ["OpenEnvSource", "source"]


def source(options: Mapping[str, object]) -> "OpenEnvSource":
    """An OpenEnv server under `options`, those of `OpenEnvOptions`.

    Raises:
        ConfigError: If there is no such option, a value is out of its range, or aiohttp is not
            installed.
    """
    required("aiohttp", "openenv")
    return OpenEnvSource(
        options_from(task_list.OpenEnvOptions, options, environment_id=task_list.ENVIRONMENT_ID)
    )


class OpenEnvSource:
    """An `EnvironmentSource` whose episodes are sessions of an OpenEnv server."""

    def __init__(self, options: task_list.OpenEnvOptions) -> None:
        from longhaul_envs.wire import Places

        self._options = options
        self._places = Places(options.max_episodes)
        self._form: ActionForm | None = None
        self._tasks: dict[Split, tuple[Task, ...]] = {}

    def describe(self) -> EnvironmentDescription:
        """See `EnvironmentSource.describe`; the server is asked for its schema, once."""
        words = self._action_form().words
        return EnvironmentDescription(
            id=task_list.ENVIRONMENT_ID,
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
            self._tasks = task_list.tasks(self._options)
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
