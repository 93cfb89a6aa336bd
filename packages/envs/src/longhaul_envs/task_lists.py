"""Task lists whose train, validation and test parts share no content.

What decides a task's split is a hash of its content (initial state and goal), never its
place in a list. Two forms: `split_of` gives each content its split by itself and suits
procedural worlds, where content has no end; `shared_out` ranks a finite collection by
hash and cuts it, so that no split is empty.
"""

import hashlib
import importlib.metadata
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from typing import Any

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task

__all__ = [
    "DEFAULT_NUM_TASKS",
    "HELD_OUT_SHARE",
    "content_hash",
    "procedural_tasks",
    "release_of",
    "rules_version",
    "shared_out",
    "split_of",
    "stable_seed",
    "tasks_from_rows",
]

HELD_OUT_SHARE = 0.15
"""Of the content, in validation and in test each; the rest trains."""

DEFAULT_NUM_TASKS = {Split.TRAIN: 1024, Split.VALIDATION: 256, Split.TEST: 256}
"""Length of a procedural task list where no limit is given."""

_MAX_BARREN_SEEDS = 500
"""In a row; fresh content misses a split of 15 % that often with a chance below 1e-35."""


def content_hash(content: str) -> str:
    """32 hexadecimal digits that identify `content`, the same in every process."""
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def stable_seed(text: str) -> int:
    """A seed in [0, 2^31) that depends on `text` alone."""
    return int(content_hash(text)[:8], 16) & 0x7FFFFFFF


def split_of(content: str) -> Split:
    """The split that `content` belongs to, whatever else exists."""
    fraction = int(content_hash(content)[:12], 16) / 16**12
    if fraction < HELD_OUT_SHARE:
        return Split.VALIDATION
    if fraction < 2 * HELD_OUT_SHARE:
        return Split.TEST
    return Split.TRAIN


@cache
def release_of(distribution: str) -> str:
    """The version of an installed distribution, which each task of a list asks for."""
    return importlib.metadata.version(distribution)


def shared_out(contents: Iterable[str]) -> dict[Split, list[str]]:
    """`contents` cut into three disjoint parts, each in order of hash.

    Args:
        contents: Distinct texts; their order does not matter.

    Returns:
        Validation and test get `HELD_OUT_SHARE` each, rounded up, training the rest.

    Raises:
        ConfigError: There are fewer than three, so that some split would be empty.
    """
    ranked = sorted(set(contents), key=content_hash)
    if len(ranked) < len(Split):
        raise ConfigError(f"{len(ranked)} distinct tasks cannot fill {len(Split)} splits")
    num_held_out = math.ceil(len(ranked) * HELD_OUT_SHARE)
    return {
        Split.VALIDATION: ranked[:num_held_out],
        Split.TEST: ranked[num_held_out : 2 * num_held_out],
        Split.TRAIN: ranked[2 * num_held_out :],
    }


def procedural_tasks(
    split: Split,
    *,
    limit: int | None,
    content_of: Callable[[int], str | None],
    task_of: Callable[[int], Task],
    is_wanted: Callable[[int], bool] = lambda _: True,
) -> tuple[Task, ...]:
    """The first `limit` tasks whose content falls into `split`, by ascending seed.

    Args:
        split: Which part.
        limit: Number of tasks; None for `DEFAULT_NUM_TASKS`.
        content_of: Initial state and goal of a seed, or None if the seed has no task.
        task_of: The task of a seed.
        is_wanted: Asked last, so it may be slow: whether a seed of this split is listed.

    Returns:
        Tasks of distinct content. Fewer than `limit` if the world runs out of new content.
    """
    wanted = DEFAULT_NUM_TASKS[split] if limit is None else limit
    seen: set[str] = set()
    found: list[Task] = []
    seed = last_found = 0
    while len(found) < wanted and seed - last_found <= _MAX_BARREN_SEEDS:
        content = content_of(seed)
        if content is not None and content not in seen and split_of(content) is split:
            seen.add(content)
            if is_wanted(seed):
                found.append(task_of(seed))
                last_found = seed
        seed += 1
    return tuple(found)


def tasks_from_rows(
    environment: str, rows: Mapping[str, str], *, version: str = "1"
) -> dict[Split, tuple[Task, ...]]:
    """Tasks for a user's own data, shared out over the three splits by content.

    Args:
        environment: Gymnasium id that plays them.
        rows: Task id to content, e.g. question and answer as one text. Rows of equal
            content stay in one split.
        version: Of the environment's rules.

    Raises:
        ConfigError: Fewer than three distinct contents.
    """
    data = "\n".join(f"{task_id}\t{rows[task_id]}" for task_id in sorted(rows))
    ids_by_content: dict[str, list[str]] = {}
    for task_id in sorted(rows):
        ids_by_content.setdefault(rows[task_id], []).append(task_id)
    return {
        split: tuple(
            Task(
                environment=environment,
                version=version,
                data_hash=content_hash(data),
                task_id=task_id,
                seed=stable_seed(task_id),
                split=split,
                goal=content.splitlines()[0] if content else "",
            )
            for content in contents
            for task_id in ids_by_content[content]
        )
        for split, contents in shared_out(ids_by_content).items()
    }


def rules_version(base: str, options: Any, *, rules: Sequence[str]) -> str:  # noqa: ANN401
    """`base`, followed by every option that changes an episode and is not at its default.

    Two tasks that differ in such an option are different tasks, and `Task.version` is
    where they say so: `"1"` by default, `"1+show_inventory=False"` otherwise.

    Args:
        base: Version of the environment's code.
        options: A dataclass instance, every named field of which has a default.
        rules: Names of the fields that change an episode, unlike those that only choose
            which tasks are listed.
    """
    assert is_dataclass(options)
    assert not isinstance(options, type)
    defaults = {field.name: field.default for field in fields(options)}
    values = asdict(options)
    changed = [f"{name}={values[name]}" for name in rules if values[name] != defaults[name]]
    return "+".join([base, *changed])
