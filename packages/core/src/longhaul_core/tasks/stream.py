"""What gives a run its training tasks, and the checks that every such stream makes."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Protocol

from longhaul_core.errors import ConfigError
from longhaul_core.types import GroupOutcome, Task

__all__ = ["TaskStream", "check_task_list", "refuse_other_tasks", "task_list_hash"]


class TaskStream(Protocol):
    """The endless stream of training tasks.

    The tasks it yields depend on its list, its seed and the outcomes reported to it, never on
    time or machine, so a run that resumes from a checkpoint gets the tasks it would have had.
    """

    def next(self, num_tasks: int) -> list[Task]:
        """The next `num_tasks` tasks.

        Raises:
            ValueError: If `num_tasks` is negative.
        """
        ...

    def record(self, outcomes: Sequence[GroupOutcome]) -> None:
        """Learn how the groups of a training step came out."""
        ...

    def state(self) -> Mapping[str, object]:
        """Where the stream stands, as plain JSON."""
        ...


def check_task_list(tasks: Sequence[Task], *, seed: int) -> None:
    """Refuse what no stream can be made of.

    Raises:
        ConfigError: If there is no task or the seed is negative.
    """
    if not tasks:
        raise ConfigError("a task stream needs at least 1 task, got 0")
    if seed < 0:
        raise ConfigError(f"seed of a task stream must not be negative, got {seed}")


def task_list_hash(tasks: Sequence[Task]) -> str:
    """Hash of the tasks in their order, so that a stream is never continued over others."""
    digest = hashlib.blake2b(digest_size=8)
    for task in tasks:
        *others, data = astuple(task)
        # Without data, the hash is the one that checkpoints were written with before there was any.
        digest.update(repr((*others, data) if data else tuple(others)).encode())
    return digest.hexdigest()


def refuse_other_tasks(num_tasks: int, fingerprint: str, *, begun_with: str) -> None:
    """Make sure that a stream goes on over the tasks that it was begun with.

    Args:
        num_tasks: In the list that it would go on over.
        fingerprint: `task_list_hash` of that list.
        begun_with: `task_list_hash` of the list that the stream was begun with.

    Raises:
        ConfigError: If the two are not the same.
    """
    if fingerprint != begun_with:
        raise ConfigError(
            f"the {num_tasks} training tasks (hash {fingerprint}) are not those that the stream "
            f"was begun with (hash {begun_with}); resume with the same environment, version and "
            "options"
        )
