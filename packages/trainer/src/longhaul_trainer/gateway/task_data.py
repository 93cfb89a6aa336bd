"""A task as a program reads it: what the gateway answers, and what a program is started with."""

import json
from typing import cast

from longhaul_core.types import Task

__all__ = ["named_task", "task_data"]


def task_data(task: Task) -> dict[str, object]:
    """What a program is given of a task: its data, or what names it where it has none."""
    if not task.data:
        return named_task(task)
    return cast("dict[str, object]", json.loads(task.data))


def named_task(task: Task) -> dict[str, object]:
    """What names a task of an environment."""
    return {
        "id": task.task_id,
        "environment": task.environment,
        "version": task.version,
        "split": task.split.value,
        "seed": task.seed,
        "goal": task.goal,
    }
