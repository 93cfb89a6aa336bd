"""OpenEnv's tasks: those that the server lists, or else seeds, with ids `seed/NUMBER`."""

from dataclasses import dataclass
from typing import ClassVar

from longhaul_core.types import Split, Task
from longhaul_envs.task_api import (
    NotOffered,
    TaskServerOptions,
    a_task,
    environments,
    split_names,
    task_ids,
)
from longhaul_envs.task_lists import DEFAULT_NUM_TASKS, split_of

__all__ = ["ENVIRONMENT_ID", "OpenEnvOptions", "reset_data", "tasks"]

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
