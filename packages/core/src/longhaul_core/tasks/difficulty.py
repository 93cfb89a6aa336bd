"""Training tasks by how hard they are for the policy now: the difficulty pool.

A task that is always solved, or never, gives a group whose returns are all equal, and such
a group teaches nothing. How much a task can teach is taken to be the variance of its
success, which is largest where the policy solves it every other time.

Only additions, multiplications, divisions and comparisons of numbers in a fixed order decide
a draw, and its random number is a raw draw of PCG64, so it is the same on every machine.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypedDict, cast

import numpy as np
import numpy.typing as npt

from longhaul_core.errors import ConfigError
from longhaul_core.tasks.stream import check_task_list, refuse_other_tasks, task_list_hash
from longhaul_core.types import GroupOutcome, Task, TaskKey

__all__ = ["DifficultyState", "DifficultyStream"]

FloatArray = npt.NDArray[np.float64]

UNKNOWN = 0.5
"""Success rate that a task is begun with: one that was never met is worth a try."""


class DifficultyState(TypedDict):
    """Where a difficulty pool stands, as plain JSON."""

    order: Literal["difficulty"]
    seed: int
    num_taken: int
    """Tasks given out so far."""
    fingerprint: str
    """See `task_list_hash`."""
    success_rates: list[tuple[str, str, float]]
    """Environment, task id and recent success rate of each task that was met."""


class DifficultyStream:
    r"""Training tasks, those most often that the policy solves about every other time.

    The recent success rate of a task begins at 1/2 and moves with each of its groups,

        p <- (1 - smoothing) p + smoothing * successes / episodes

    and the next task is task i of N with probability

        P_i = uniform_share / N + (1 - uniform_share) * p_i (1 - p_i) / sum_j p_j (1 - p_j)

    so none falls below uniform_share / N; where the sum is 0, every task has 1 / N.

    Source:
        Foster et al. 2025, Learning to Reason at the Frontier of Learnability,
        arXiv:2502.12272, for the variance of success as what a task is chosen by. Its
        running estimate and the uniform share are ours.
    """

    def __init__(
        self, tasks: Sequence[Task], *, seed: int, uniform_share: float, smoothing: float
    ) -> None:
        """Begin a pool.

        Args:
            tasks: At least one, no key twice; their order is part of the pool's identity.
            seed: Not negative; decides every draw, together with the draw's number.
            uniform_share: Share of the draws that no success rate touches, in (0, 1].
            smoothing: Weight of a task's newest group in its success rate, in (0, 1].

        Raises:
            ConfigError: If an argument is out of its range, or two tasks share a key.
        """
        check_task_list(tasks, seed=seed)
        for name, value in (("uniform_share", uniform_share), ("smoothing", smoothing)):
            if not 0 < value <= 1:
                raise ConfigError(f"{name} of a difficulty pool must lie in (0, 1], got {value:g}")
        self._tasks = tuple(tasks)
        self._places = {task.key: place for place, task in enumerate(tasks)}
        if len(self._places) < len(tasks):
            ((key, count),) = Counter(task.key for task in tasks).most_common(1)
            raise ConfigError(
                f"task id {key.task_id!r} of {key.environment} stands {count} times in the "
                "training tasks; a difficulty pool tells tasks apart by environment and task id"
            )
        self._fingerprint = task_list_hash(self._tasks)
        self._seed = seed
        self._uniform_share = uniform_share
        self._smoothing = smoothing
        self._num_taken = 0
        self._success_rates: dict[TaskKey, float] = {}

    def next(self, num_tasks: int) -> list[Task]:
        """See `TaskStream.next`; none comes twice in one call before all have come once.

        Each is drawn among the tasks that the call has not taken yet, in proportion to
        `probabilities`, which takes time in proportion to the number of tasks.
        """
        if num_tasks < 0:
            raise ValueError(f"num_tasks must not be negative, got {num_tasks}")
        left_N = probabilities_N = self.probabilities()
        taken: list[Task] = []
        for number in range(num_tasks):
            if number % len(self._tasks) == 0:
                left_N = probabilities_N.copy()
            place = self._draw(left_N)
            left_N[place] = 0.0
            taken.append(self._tasks[place])
        return taken

    def record(self, outcomes: Sequence[GroupOutcome]) -> None:
        """Move the success rates of the tasks that were met, in the order given.

        Raises:
            ValueError: If an outcome is of a task that is not in the pool.
        """
        for outcome in outcomes:
            if outcome.task not in self._places:
                raise ValueError(f"task {outcome.task} is not in the difficulty pool")
            before = self._success_rates.get(outcome.task, UNKNOWN)
            rate = outcome.num_successes / outcome.num_episodes
            self._success_rates[outcome.task] = (
                1.0 - self._smoothing
            ) * before + self._smoothing * rate

    def probabilities(self) -> FloatArray:
        """P_i of every task in the order of the list, shape (N,); they add up to 1."""
        rates_N = np.full(len(self._tasks), UNKNOWN)
        for key, rate in self._success_rates.items():
            rates_N[self._places[key]] = rate
        variances_N = rates_N * (1.0 - rates_N)
        total = np.cumsum(variances_N)[-1]
        if total == 0.0:
            return np.full(len(self._tasks), 1.0 / len(self._tasks))
        floor = self._uniform_share / len(self._tasks)
        return floor + (1.0 - self._uniform_share) * variances_N / total

    def state(self) -> DifficultyState:
        """Where the pool stands; `from_state` goes on from there exactly."""
        return DifficultyState(
            order="difficulty",
            seed=self._seed,
            num_taken=self._num_taken,
            fingerprint=self._fingerprint,
            success_rates=[
                (key.environment, key.task_id, rate) for key, rate in self._success_rates.items()
            ],
        )

    @classmethod
    def from_state(
        cls,
        tasks: Sequence[Task],
        state: DifficultyState,
        *,
        uniform_share: float,
        smoothing: float,
    ) -> "DifficultyStream":
        """The pool that `state` was taken of.

        A state of before tasks were keyed by their environment has a table of rates by task id;
        it is read as of the tasks' one environment.

        Raises:
            ConfigError: If `tasks` are not the tasks that the pool was begun with.
        """
        stream = cls(tasks, seed=state["seed"], uniform_share=uniform_share, smoothing=smoothing)
        refuse_other_tasks(len(tasks), stream._fingerprint, begun_with=state["fingerprint"])
        stream._num_taken = state["num_taken"]
        rates: object = state["success_rates"]
        if isinstance(rates, dict):
            environment = stream._tasks[0].environment
            stream._success_rates = {
                TaskKey(environment, task_id): rate
                for task_id, rate in cast("dict[str, float]", rates).items()
            }
        else:
            stream._success_rates = {
                TaskKey(environment, task_id): rate
                for environment, task_id, rate in state["success_rates"]
            }
        return stream

    def _draw(self, weights_N: FloatArray) -> int:
        """A place, in proportion to the weights; one of weight 0 never."""
        raw: int = np.random.PCG64([self._seed, self._num_taken]).random_raw(1).tolist()[0]
        self._num_taken += 1
        uniform = (raw >> 11) * 2.0**-53
        cumulative_N: FloatArray = np.cumsum(weights_N)
        # uniform < 1, and stays below the total after rounding; the right side skips zeros.
        return int(cumulative_N.searchsorted(uniform * float(cumulative_N[-1]), side="right"))
