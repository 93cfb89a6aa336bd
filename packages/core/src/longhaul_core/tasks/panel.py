"""Fixed lists of tasks that a policy is judged on.

A panel never changes during a run, so that scores of two moments are paired task by
task, and it shares no content with what is trained on.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task

__all__ = ["Panel", "refuse_shared_content", "task_content"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The tasks of one validation or test."""

    split: Split
    tasks: tuple[Task, ...]

    def __post_init__(self) -> None:
        strays = sorted(task.task_id for task in self.tasks if task.split is not self.split)
        if strays:
            raise ConfigError(f"panel of split {self.split} holds tasks of another: {strays[:5]}")
        if not self.tasks:
            raise ConfigError(f"panel of split {self.split} holds no task")

    @property
    def parts(self) -> "dict[str, Panel]":
        """Its tasks of each environment, by a name such as `validation/longhaul/TextCraft-v0`.

        Empty where all tasks are of one environment: the panel itself, which goes by the name of
        its split, is then all there is.
        """
        environments = list(dict.fromkeys(task.environment for task in self.tasks))
        if len(environments) == 1:
            return {}
        return {
            f"{self.split}/{environment}": Panel(
                split=self.split,
                tasks=tuple(task for task in self.tasks if task.environment == environment),
            )
            for environment in environments
        }

    @classmethod
    def spread(
        cls,
        tasks: Sequence[Task],
        *,
        split: Split,
        num_tasks: int,
        setting: str = "num_tasks",
    ) -> "Panel":
        """`num_tasks` of `tasks`, evenly spread over the list.

        Task lists are often sorted by kind or difficulty; the first few would be one kind.

        Args:
            tasks: All of the split.
            split: Theirs.
            num_tasks: In [1, number of tasks].
            setting: What set `num_tasks`, for the message.

        Raises:
            ConfigError: If fewer tasks than that exist, or none is requested.
        """
        if not 1 <= num_tasks <= len(tasks):
            raise ConfigError(
                f"{setting} must lie in [1, {len(tasks)}], the number of {split} tasks, got "
                f"{num_tasks}"
            )
        chosen = tuple(tasks[place * len(tasks) // num_tasks] for place in range(num_tasks))
        return cls(split=split, tasks=chosen)


def task_content(task: Task) -> str:
    """What a task is about, whatever it is called: environment, seed and goal, or its data."""
    if task.data:
        return f"{task.environment}\n{task.data}"
    return f"{task.environment}\n{task.seed}\n{task.goal}"


def refuse_shared_content(
    training: Iterable[Task], *held_out: Panel, content: Callable[[Task], str] = task_content
) -> None:
    """Make sure that no panel is trained on, and that no two panels share a task.

    Args:
        training: Every task of the training split.
        held_out: Panels of other splits.
        content: Identifies what a task is about. An environment that can name a task's
            initial state gives a sharper answer than the default.

    Raises:
        ConfigError: If a panel's task is met elsewhere under whatever name.
    """
    owners = {content(task): task for task in training}
    for panel in held_out:
        for task in panel.tasks:
            owner = owners.setdefault(content(task), task)
            if owner is not task:
                raise ConfigError(
                    f"task {task.task_id!r} of the {panel.split} panel has the same content as "
                    f"task {owner.task_id!r} of the {owner.split} split; a score on it would "
                    "measure memory, not skill"
                )
