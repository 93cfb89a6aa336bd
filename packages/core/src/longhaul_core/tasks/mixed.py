"""Training tasks of several environments, mixed by weight.

Each environment keeps a stream of its own, in whatever order; which one gives the next task is
a raw draw of PCG64 by the seed and the draw's number, so it is the same on every machine.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypedDict

import numpy as np

from longhaul_core.errors import ConfigError
from longhaul_core.tasks.stream import TaskStream
from longhaul_core.types import GroupOutcome, Task

__all__ = ["MixedState", "MixedStream"]


class MixedState(TypedDict):
    """Where a mixture stands, as plain JSON."""

    order: Literal["mixed"]
    seed: int
    num_taken: int
    """Tasks given out so far, of all environments."""
    streams: dict[str, Mapping[str, object]]
    """State of each environment's own stream, by the environment."""


class MixedStream:
    """Training tasks, each of an environment that is drawn in proportion to its weight."""

    def __init__(
        self, streams: Mapping[str, TaskStream], *, weights: Mapping[str, float], seed: int
    ) -> None:
        """Begin a mixture.

        Args:
            streams: By environment, at least one; their order is part of the mixture's identity.
            weights: Of the same environments, each above 0; they need not add up to 1.
            seed: Not negative; decides every draw, together with the draw's number.

        Raises:
            ConfigError: If an argument is out of its range.
        """
        if not streams or set(streams) != set(weights):
            raise ConfigError(
                "a mixture of tasks needs a weight for each of its environments, at least 1; got "
                f"streams of {sorted(streams)} and weights of {sorted(weights)}"
            )
        for environment, weight in weights.items():
            if not 0 < weight < math.inf:
                raise ConfigError(
                    f"weight of {environment} must be a finite number above 0, got {weight:g}"
                )
        if seed < 0:
            raise ConfigError(f"seed of a task stream must not be negative, got {seed}")
        self._streams = dict(streams)
        self._seed = seed
        self._num_taken = 0
        self._environments = list(streams)
        self._cumulative_E = np.cumsum([weights[environment] for environment in streams])

    def next(self, num_tasks: int) -> list[Task]:
        """See `TaskStream.next`; how an environment's own tasks may repeat is its stream's affair.

        One call asks each stream once, so that what a stream promises of one call holds.
        """
        if num_tasks < 0:
            raise ValueError(f"num_tasks must not be negative, got {num_tasks}")
        drawn = [self._draw() for _ in range(num_tasks)]
        taken = {
            environment: deque(self._streams[environment].next(number))
            for environment, number in Counter(drawn).items()
        }
        return [taken[environment].popleft() for environment in drawn]

    def record(self, outcomes: Sequence[GroupOutcome]) -> None:
        """Let each stream learn how the groups of its own tasks came out.

        Raises:
            ValueError: If an outcome is of an environment that is not mixed here.
        """
        for outcome in outcomes:
            if outcome.task.environment not in self._streams:
                raise ValueError(f"task {outcome.task} is of no environment of the mixture")
        for environment, stream in self._streams.items():
            stream.record([one for one in outcomes if one.task.environment == environment])

    def state(self) -> MixedState:
        """Where the mixture stands; `from_state` goes on from there exactly."""
        return MixedState(
            order="mixed",
            seed=self._seed,
            num_taken=self._num_taken,
            streams={environment: stream.state() for environment, stream in self._streams.items()},
        )

    @classmethod
    def from_state(
        cls,
        state: MixedState,
        *,
        weights: Mapping[str, float],
        go_on: Callable[[str, Mapping[str, object]], TaskStream],
    ) -> "MixedStream":
        """The mixture that `state` was taken of.

        Args:
            state: What `state` returned.
            weights: By environment, in the order that the mixture was begun with. Their values
                may have changed: they decide later draws alone.
            go_on: Makes an environment's own stream from its state.

        Raises:
            ConfigError: If the environments are others, or in another order.
        """
        if list(state["streams"]) != list(weights):
            raise ConfigError(
                f"the tasks were mixed of {list(state['streams'])}, and of {list(weights)} now; "
                "resume with the environments that the run was begun with, in their order"
            )
        streams = {name: go_on(name, of_stream) for name, of_stream in state["streams"].items()}
        mixed = cls(streams, weights=weights, seed=state["seed"])
        mixed._num_taken = state["num_taken"]
        return mixed

    def _draw(self) -> str:
        raw: int = np.random.PCG64([self._seed, self._num_taken]).random_raw(1).tolist()[0]
        self._num_taken += 1
        uniform = (raw >> 11) * 2.0**-53
        # uniform < 1, and stays below the total after rounding
        place = self._cumulative_E.searchsorted(
            uniform * float(self._cumulative_E[-1]), side="right"
        )
        return self._environments[int(place)]
