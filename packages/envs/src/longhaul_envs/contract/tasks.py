"""Rules of task lists: ids, content, and what a task begins with."""

import json
from collections.abc import Iterator

from longhaul_core.tasks import task_content
from longhaul_core.types import Split, Task
from longhaul_envs.contract.recording import shown
from longhaul_envs.contract.subject import Subject
from longhaul_envs.players import opened

__all__ = ["disjoint_content", "same_start_in_any_order", "task_lists"]


def task_lists(subject: Subject) -> Iterator[str]:
    """No task is in two splits, by its id or by what it is about."""
    by_id: dict[str, Task] = {}
    by_content: dict[str, Task] = {}
    for split in Split:
        for task in subject.tasks[split]:
            other = by_id.setdefault(task.task_id, task)
            if other is not task:
                yield f"task {task.task_id!r} is in {other.split.value} and in {split.value}"
                continue
            owner = by_content.setdefault(task_content(task), task)
            if owner.split is not split:
                yield (
                    f"tasks {owner.task_id!r} ({owner.split.value}) and {task.task_id!r} "
                    f"({split.value}) have the same seed and goal"
                )


def disjoint_content(subject: Subject) -> Iterator[str]:
    """No two splits have a task that starts with the same observation."""
    if not subject.repeats_starts:
        return
    met: dict[str, Task] = {}
    with opened(subject.spec) as player:
        for task in subject.starts:
            other = met.setdefault(json.dumps(shown(player.start(task))), task)
            if other.split is not task.split:
                yield (
                    f"tasks {other.task_id!r} ({other.split.value}) and {task.task_id!r} "
                    f"({task.split.value}) start with the same observation; if they differ in "
                    "something hidden, let `anchor_state` say so"
                )


def same_start_in_any_order(subject: Subject) -> Iterator[str]:
    """A task starts the same whatever was played before it."""
    if not subject.repeats_starts:
        return
    with opened(subject.spec) as player:
        forwards = [shown(player.start(task)) for task in subject.sample]
    with opened(subject.spec) as player:
        backwards = [shown(player.start(task)) for task in subject.sample[::-1]][::-1]
    for task, first, second in zip(subject.sample, forwards, backwards, strict=True):
        if first != second:
            yield f"the start of task {task.task_id!r} depends on what was played before it"
