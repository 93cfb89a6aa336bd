"""A source that is no Gymnasium environment: it plays by the protocol alone, as a client would."""

import random
from collections.abc import Mapping, Sequence

from longhaul_core.environment import (
    Determinism,
    Environment,
    EnvironmentDescription,
    StepResult,
)
from longhaul_core.types import Observation, Split, Task

ENVIRONMENT_ID = "mine/Counter-v0"


class Counter:
    """Count up to the task's number."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._goal = self._count = self._luck = 0
        self._open = False

    async def open(self) -> None:
        self._open = True

    async def reset(self, task: Task) -> Observation:
        assert self._open
        self._goal, self._count = int(task.task_id), 0
        return self._shown()

    async def step(self, action: str) -> StepResult:
        assert self._open
        accepted = action == "more" or self._kind == "trusting"
        self._count += accepted
        if self._kind == "lucky":
            self._luck = random.SystemRandom().getrandbits(64)
        if self._kind == "fragile" and not accepted:
            raise ValueError(action)
        done = self._count >= self._goal
        return StepResult(
            observation=self._shown(),
            reward=float(done),
            terminated=done,
            success=done,
            action_accepted=accepted,
        )

    async def close(self) -> None:
        if self._kind == "twice" and not self._open:
            raise RuntimeError("closed twice")
        self._open = False

    def _shown(self) -> Observation:
        return Observation(
            text=f"{self._count} of {self._goal} {self._luck or ''}", admissible_actions=("more",)
        )


class Source:
    def __init__(self, kind: str, determinism: Determinism) -> None:
        self._kind = kind
        self._determinism = determinism

    def describe(self) -> EnvironmentDescription:
        return EnvironmentDescription(
            id=ENVIRONMENT_ID, version="1", summary="count", determinism=self._determinism
        )

    def tasks(self, split: Split) -> Sequence[Task]:
        first = 2 + 10 * list(Split).index(split)
        return [
            Task(
                environment=ENVIRONMENT_ID,
                version="1",
                data_hash="",
                task_id=f"{number}",
                seed=number,
                split=split,
            )
            for number in range(first, first + 3)
        ]

    def make(self, task: Task) -> Environment:
        del task
        return Counter(self._kind)


def source(options: Mapping[str, object]) -> Source:
    chosen = {"kind": "sound", "determinism": "exact", **options}
    return Source(str(chosen["kind"]), Determinism(str(chosen["determinism"])))
