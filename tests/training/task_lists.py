"""The tasks of the worlds of these tests: a few of each split, told apart by number alone."""

from collections.abc import Sequence

from longhaul_core.types import Split, Task

NUM_TASKS = 16


def numbered_tasks(
    environment: str, split: Split, limit: int | None, *, goal: str, kinds: Sequence[str] = ()
) -> list[Task]:
    """The first `limit` tasks of `split`; their ids end with each of `kinds` in turn."""
    offset = 1000 * list(Split).index(split)
    endings = [f"/{kind}" for kind in kinds] or [""]
    return [
        Task(
            environment=environment,
            version="1",
            data_hash="",
            task_id=f"{split}/{number}{endings[number % len(endings)]}",
            seed=offset + number,
            split=split,
            goal=f"{goal} ({offset + number})",
        )
        for number in range(NUM_TASKS)
    ][:limit]
