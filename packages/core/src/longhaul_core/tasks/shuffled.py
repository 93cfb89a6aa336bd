"""Training tasks in passes: every task once, in a new order each time.

Each pass over the tasks is shuffled by the seed and the number of the pass alone, so
the whole future of a stream is known from three small values, which a checkpoint keeps.
The shuffle sorts raw draws of PCG64, whose stream NumPy guarantees for all versions;
`Generator.permutation` carries no such promise.
"""

from collections.abc import Sequence
from typing import Literal, TypedDict

import numpy as np

from longhaul_core.tasks.stream import check_task_list, refuse_other_tasks, task_list_hash
from longhaul_core.types import GroupOutcome, Task

__all__ = ["ShuffledState", "ShuffledStream"]


class ShuffledState(TypedDict):
    """Where a shuffled stream stands, as plain JSON."""

    order: Literal["shuffled"]
    seed: int
    num_taken: int
    """Tasks given out so far, over all passes."""
    fingerprint: str
    """See `task_list_hash`."""


class ShuffledStream:
    """Training tasks, every one of them once in each pass, in a new order each time."""

    def __init__(self, tasks: Sequence[Task], *, seed: int) -> None:
        """Begin a stream.

        Args:
            tasks: At least one; their order is part of the stream's identity.
            seed: Not negative; decides the order of every pass.

        Raises:
            ConfigError: If there is no task or the seed is negative.
        """
        check_task_list(tasks, seed=seed)
        self._tasks = tuple(tasks)
        self._fingerprint = task_list_hash(self._tasks)
        self._seed = seed
        self._num_taken = 0
        self._pass_index = -1
        self._order: list[int] = []

    def next(self, num_tasks: int) -> list[Task]:
        """See `TaskStream.next`; a task may come twice where a pass ends and the next begins."""
        if num_tasks < 0:
            raise ValueError(f"num_tasks must not be negative, got {num_tasks}")
        return [self._take() for _ in range(num_tasks)]

    def record(self, outcomes: Sequence[GroupOutcome]) -> None:
        """Nothing: the order is decided by the seed alone."""

    def state(self) -> ShuffledState:
        """Where the stream stands; `from_state` goes on from there exactly."""
        return ShuffledState(
            order="shuffled",
            seed=self._seed,
            num_taken=self._num_taken,
            fingerprint=self._fingerprint,
        )

    @classmethod
    def from_state(cls, tasks: Sequence[Task], state: ShuffledState) -> "ShuffledStream":
        """The stream that `state` was taken of.

        Raises:
            ConfigError: If `tasks` are not the tasks that the stream was begun with.
        """
        stream = cls(tasks, seed=state["seed"])
        refuse_other_tasks(len(tasks), stream._fingerprint, begun_with=state["fingerprint"])
        stream._num_taken = state["num_taken"]
        return stream

    def _take(self) -> Task:
        pass_index, place = divmod(self._num_taken, len(self._tasks))
        if pass_index != self._pass_index:
            self._order = _shuffled(len(self._tasks), seed=self._seed, pass_index=pass_index)
            self._pass_index = pass_index
        self._num_taken += 1
        return self._tasks[self._order[place]]


def _shuffled(num_tasks: int, *, seed: int, pass_index: int) -> list[int]:
    draws = np.random.PCG64([seed, pass_index]).random_raw(num_tasks)
    return np.argsort(np.asarray(draws), kind="stable").tolist()
