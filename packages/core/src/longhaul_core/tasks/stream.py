"""The endless stream of training tasks.

Each pass over the tasks is shuffled by the seed and the number of the pass alone, so
the whole future of a stream is known from three small numbers, which a checkpoint keeps.
The shuffle sorts raw draws of PCG64, whose stream NumPy guarantees for all versions;
`Generator.permutation` carries no such promise.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import astuple
from typing import TypedDict

import numpy as np

from longhaul_core.errors import ConfigError
from longhaul_core.types import Task

__all__ = ["StreamState", "TaskStream"]


class StreamState(TypedDict):
    """Where a stream stands, as plain JSON."""

    seed: int
    num_taken: int
    """Tasks given out so far, over all passes."""
    fingerprint: str
    """Hash of the task list, so that a stream is never continued over another one."""


class TaskStream:
    """Training tasks, every one of them once in each pass, in a new order each time."""

    def __init__(self, tasks: Sequence[Task], *, seed: int) -> None:
        """Begin a stream.

        Args:
            tasks: At least one; their order is part of the stream's identity.
            seed: Not negative; decides the order of every pass.

        Raises:
            ConfigError: If there is no task or the seed is negative.
        """
        if not tasks:
            raise ConfigError("a task stream needs at least 1 task, got 0")
        if seed < 0:
            raise ConfigError(f"seed of a task stream must not be negative, got {seed}")
        self._tasks = tuple(tasks)
        self._seed = seed
        self._num_taken = 0
        self._pass_index = -1
        self._order: list[int] = []

    def next(self, num_tasks: int) -> list[Task]:
        """The next `num_tasks` tasks.

        A task may come twice in one call where a pass ends and the next begins.
        """
        if num_tasks < 0:
            raise ValueError(f"num_tasks must not be negative, got {num_tasks}")
        return [self._take() for _ in range(num_tasks)]

    def state(self) -> StreamState:
        """Where the stream stands; `from_state` goes on from there exactly."""
        return StreamState(
            seed=self._seed, num_taken=self._num_taken, fingerprint=_fingerprint(self._tasks)
        )

    @classmethod
    def from_state(cls, tasks: Sequence[Task], state: StreamState) -> "TaskStream":
        """The stream that `state` was taken of.

        Raises:
            ConfigError: If `tasks` are not the tasks that the stream was begun with.
        """
        stream = cls(tasks, seed=state["seed"])
        if (found := _fingerprint(stream._tasks)) != state["fingerprint"]:
            raise ConfigError(
                f"the {len(tasks)} training tasks (hash {found}) are not those that the stream "
                f"was begun with (hash {state['fingerprint']}); resume with the same "
                "environment, version and options"
            )
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


def _fingerprint(tasks: tuple[Task, ...]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for task in tasks:
        digest.update(repr(astuple(task)).encode())
    return digest.hexdigest()
