"""What OpenEnv and ORS have in common: options of a server, its lists of tasks, and scored steps.

Both answer `/list_environments`, `/NAME/splits` and `/NAME/num_tasks`. A task id is `SPLIT/INDEX`;
a kind of split that a server does not have is taken out of its training tasks by a hash of their
ids.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from longhaul_core.environment import Determinism, StepResult
from longhaul_core.errors import ConfigError, EnvironmentFailure
from longhaul_core.text import well_formed
from longhaul_core.types import Observation, Split, Task
from longhaul_envs.served import ask, bearer, checked_url, field_of, items_of, with_every_split

__all__ = [
    "NotOffered",
    "TaskServerOptions",
    "a_task",
    "environments",
    "refused_step",
    "scored_step",
    "split_names",
    "task_ids",
]

_NOT_THERE = (404, 405, 501)
"""Statuses of a path that a server does not have."""
_SHOWN_CHARACTERS = 300


class NotOffered(ConfigError):
    """The server does not know what it was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskServerOptions(ABC):
    """What can be chosen about a server of either kind."""

    environment_id: ClassVar[str]
    system: ClassVar[str]
    """Whose server it should be, e.g. `an ORS`."""

    url: str = ""
    """Address of the server, `http` or `https`."""
    success_above: float = 0.0
    """A task is solved if the step that ends the episode has a reward above this."""
    max_episodes: int = 1
    """Episodes at once in an agent loop, at least 1."""
    timeout_seconds: float = 60.0
    """For one answer, above 0."""
    token_variable: str = ""
    """Environment variable with a token that the server, or a proxy before it, asks for."""
    determinism: str = Determinism.NONE.value
    """What the server promises of a task: `exact`, `first_observation` or `none`."""

    def __post_init__(self) -> None:
        checked_url(self.url, environment_id=self.environment_id)
        if self.max_episodes < 1:
            raise ConfigError(f"max_episodes must be at least 1, got {self.max_episodes}")
        if not self.timeout_seconds > 0:
            raise ConfigError(f"timeout_seconds must be above 0, got {self.timeout_seconds}")
        if self.determinism not in tuple(Determinism):
            raise ConfigError(
                f"determinism must be one of {', '.join(Determinism)}, got {self.determinism!r}"
            )

    @property
    def base_url(self) -> str:
        """The address without a slash at its end."""
        return self.url.rstrip("/")

    @property
    def headers(self) -> dict[str, str]:
        """Of every request."""
        return bearer(self.token_variable)

    @property
    @abstractmethod
    def version(self) -> str:
        """The value of `Task.version`: options that change what is played and what counts."""

    def asked(self, path: str, body: Mapping[str, object] | None = None) -> object:
        """What the server answers before a run, to a GET or to a POST of `body`.

        Raises:
            NotOffered: If it has no such path.
            ConfigError: If it cannot be asked, or answers another error.
        """
        url = self.base_url + path
        status, answer = ask(
            url, body=body, headers=self.headers, timeout_seconds=self.timeout_seconds
        )
        if status != 200:
            raise (NotOffered if status in _NOT_THERE else ConfigError)(
                f"{url} answered status {status}: {str(answer)[:_SHOWN_CHARACTERS]}; is it "
                f"{self.system} server?"
            )
        return answer


def environments(options: TaskServerOptions) -> list[str]:
    """Names of the server's environments, at least one. Raises as `TaskServerOptions.asked`."""
    return [str(name) for name in _some(options, "/list_environments")]


def split_names(options: TaskServerOptions, name: str) -> dict[str, Split]:
    """The splits of the environment `name` and their kinds.

    Raises:
        NotOffered: As `TaskServerOptions.asked`.
        ConfigError: As there, or if there are no splits or one of another kind.
    """
    found: dict[str, Split] = {}
    for split in _some(options, f"/{name}/splits"):
        called, kind = str(field_of(split, "name")), str(field_of(split, "type"))
        if kind not in tuple(Split):
            raise ConfigError(
                f"{options.base_url}: split {called!r} is of type {kind!r}, which must be one of "
                f"{', '.join(Split)}"
            )
        found[called] = Split(kind)
    return found


def task_ids(
    options: TaskServerOptions, name: str, splits: Mapping[str, Split]
) -> dict[Split, list[str]]:
    """Ids of all tasks, as the server counts them now.

    Raises:
        ConfigError: If it cannot be asked, or has too few tasks to fill three splits.
    """
    found: dict[Split, list[str]] = {}
    for called, split in splits.items():
        counted = options.asked(f"/{name}/num_tasks", {"split": called})
        count = field_of(counted, "num_tasks")
        if not isinstance(count, int):
            raise ConfigError(f"{options.base_url}: split {called!r} has {count!r} tasks")
        found.setdefault(split, []).extend(f"{called}/{index}" for index in range(count))
    return with_every_split(found, environment_id=f"{options.environment_id} at {options.base_url}")


def scored_step(
    observation: Observation, *, ended: object, reward: object, success_above: float
) -> StepResult:
    """A step that the server made. One that ends the episode solves it by a reward above a number.

    Args:
        observation: What it showed.
        ended: Whether the task itself ended, true or false.
        reward: Of the step; None counts as 0.
        success_above: The number.

    Raises:
        EnvironmentFailure: If `ended` is not true or false, or `reward` no finite number.
    """
    value = 0.0 if reward is None else reward
    if not isinstance(ended, bool):
        raise EnvironmentFailure(f"neither true nor false as its end, but {ended!r}")
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise EnvironmentFailure(f"no finite number as its reward, but {value!r}")
    return StepResult(
        observation=observation,
        reward=float(value),
        terminated=ended,
        success=ended and value > success_above,
    )


def refused_step(reason: str, *, before: Observation) -> StepResult:
    """A step that changed nothing: the reason, and what was shown before it."""
    text = f"{well_formed(reason)}\n{before.text}"
    return StepResult(observation=replace(before, text=text), reward=0.0, action_accepted=False)


def a_task(options: TaskServerOptions, task_id: str, *, split: Split, goal: str) -> Task:
    """A task, whose seed is the number at the end of its id."""
    return Task(
        environment=options.environment_id,
        version=options.version,
        data_hash="",
        task_id=task_id,
        seed=int(task_id.rpartition("/")[2]),
        split=split,
        goal=goal,
    )


def _some(options: TaskServerOptions, path: str) -> list[object]:
    answer = options.asked(path)
    if not items_of(answer):
        raise ConfigError(
            f"{options.base_url}{path} lists nothing: {str(answer)[:_SHOWN_CHARACTERS]}"
        )
    return items_of(answer)
