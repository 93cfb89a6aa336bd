"""All states of a task that can be reached within a horizon, and where each action leads.

Two equal observations are one state, so an environment must show in its text, its anchor state or
its admissible actions whatever decides what happens next. Walks through the environment check it.

Shapes: S states, E edges: one for each state and each action that can be taken there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

import numpy as np

from longhaul_core.advantages.credit import FloatArray, IntArray
from longhaul_core.environment import StepResult
from longhaul_core.errors import ConfigError
from longhaul_core.text import shortened
from longhaul_core.types import Observation, Task

__all__ = ["ENDED", "INVALID", "StateGraph", "World", "explored"]

INVALID = ""
"""The action of a reply that no admissible action is read from: the environment gets no words."""
ENDED = -1
"""In place of a state: the episode is over."""
_NUM_WALKS = 16
_LONGEST_SHOWN = 200
"""Characters of a state in a message."""


class World(Protocol):
    """An environment that is started again and again; `longhaul_envs.players.Player` is one."""

    def start(self, task: Task) -> Observation:
        """Begin `task`."""
        ...

    def act(self, action: str) -> StepResult:
        """Make a step of the episode begun last."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StateGraph:
    """The states of one task, and the edges between them."""

    task: Task
    horizon: int
    """States are those within so many steps of the start."""
    states: tuple[Observation, ...]
    """The first is the start."""
    depths_S: IntArray
    """Fewest steps from the start, 0 to `horizon`. No edge leaves a state at the horizon."""
    actions: tuple[str, ...]
    """Of each edge; edges of one state lie together, in the order of the states."""
    sources_E: IntArray
    """State that each edge leaves."""
    targets_E: IntArray
    """State that it leads to; `ENDED` where the episode is over."""
    rewards_E: FloatArray
    """In the environment's units."""
    state_numbers: dict[Observation, int]
    edge_numbers: dict[tuple[int, str], int]
    """By state and action."""

    def state(self, observation: Observation) -> int:
        """Number of a state.

        Raises:
            ConfigError: It is none within the horizon.
        """
        if observation not in self.state_numbers:
            raise ConfigError(
                f"{_shown(observation)} is no state of task {self.task.task_id!r} within "
                f"{self.horizon} steps of its start; explore it under the options and with the "
                "horizon that its episodes had"
            )
        return self.state_numbers[observation]

    def edge(self, observation: Observation, action: str) -> int:
        """Number of the edge of an action.

        Raises:
            ConfigError: It is no state, or the action cannot be taken there.
        """
        edge = self.edge_numbers.get((self.state(observation), action))
        if edge is None:
            raise ConfigError(
                f"{action!r} is no action in {_shown(observation)}; name one of its admissible "
                "actions, or INVALID for a reply that has none"
            )
        return edge


def explored(
    world: World,
    task: Task,
    *,
    horizon: int,
    max_states: int = 20_000,
    arrived: Callable[[Observation], object] | None = None,
) -> StateGraph:
    """Walk through all of a task, breadth first.

    Each state is reached by replaying the actions of a shortest way to it, or by a step back to it.
    Then 16 random walks of the whole horizon are compared with the graph, step by step.

    Args:
        world: A deterministic environment that names its admissible actions.
        task: Which.
        horizon: Longest episode, at least 1.
        max_states: Refuse a task with more.
        arrived: Called when the world stands in a state for the first time, e.g. to ask its expert.

    Raises:
        ConfigError: There are too many states, an observation does not name the whole state, the
            environment lists no admissible actions, begins in several states, or cuts an episode
            short by itself.
    """
    if horizon < 1:
        raise ConfigError(f"horizon must be at least 1, got {horizon}")
    walk = _Exploration(world, task, horizon, max_states, arrived)
    walk.everywhere()
    draw = Random(task.task_id)
    for _ in range(_NUM_WALKS):
        walk.compare(draw)
    return walk.graph()


class _Exploration:
    def __init__(
        self,
        world: World,
        task: Task,
        horizon: int,
        max_states: int,
        arrived: Callable[[Observation], object] | None,
    ) -> None:
        self._world, self._task, self._horizon = world, task, horizon
        self._max_states, self._arrived = max_states, arrived
        self._states: list[Observation] = []
        self._ways: list[tuple[str, ...]] = []
        self._numbers: dict[Observation, int] = {}
        self._edges: dict[tuple[int, str], tuple[int, float]] = {}
        self._between: dict[tuple[int, int], str] = {}
        """An action that leads from one state to another."""
        self._walked: list[str] = []
        """Actions since the world was started."""

    def everywhere(self) -> None:
        """Take every action in every state before the horizon."""
        self._number(self._start(), ())
        for state, way in enumerate(self._ways):  # grows as it is walked through
            if len(way) == self._horizon:
                break
            at = ENDED
            for action in _actions_of(self._states[state], self._task):
                self._go_to(state, way, at=at)
                at = self._edge(state, action, way)

    def _go_to(self, state: int, way: tuple[str, ...], *, at: int) -> None:
        """Stand in a state with a step to spare, by one step back where there is one."""
        back = self._between.get((at, state))
        spare = self._horizon - len(self._walked)
        if at == state and spare > 0:
            return
        if back is not None and spare > 1:
            self._play(back)
            return
        self._start()
        for earlier in way:
            self._play(earlier)

    def _start(self) -> Observation:
        self._walked = []
        return self._world.start(self._task)

    def _play(self, action: str) -> StepResult:
        """Make a step, which the environment's own limit must not end."""
        self._walked.append(action)
        result = self._world.act(action)
        if result.truncated:
            raise ConfigError(
                f"{self._task.environment} cuts task {self._task.task_id!r} short by itself after "
                f"{len(self._walked)} steps ({' | '.join(self._walked)}), and how many are left "
                f"is no part of the state; choose a horizon below {len(self._walked)}"
            )
        return result

    def compare(self, draw: Random) -> None:
        """Whether a random walk sees what the graph says."""
        started = self._start()
        if started != self._states[0]:
            raise ConfigError(
                f"task {self._task.task_id!r} began in {_shown(self._states[0])} and later in "
                f"{_shown(started)}; seed the environment by the task, or sample the values"
            )
        state = 0
        while state != ENDED and len(self._walked) < self._horizon:
            action = draw.choice(_actions_of(self._states[state], self._task))
            result = self._play(action)
            expected, reward = self._edges[state, action]
            found = ENDED if result.terminated else self._numbers.get(result.observation)
            if found != expected or result.reward != reward:
                raise ConfigError(
                    f"{action!r} in {_shown(self._states[state])} of task "
                    f"{self._task.task_id!r} has another effect after {' | '.join(self._walked)} "
                    "than on a shorter way: the observation does not name the whole state, so "
                    "values of states are not defined; show the state in anchor_state, or sample "
                    "the values"
                )
            state = expected

    def graph(self) -> StateGraph:
        """What was found."""
        keys = sorted(self._edges, key=lambda key: key[0])  # stable: actions stay in order
        return StateGraph(
            task=self._task,
            horizon=self._horizon,
            states=tuple(self._states),
            depths_S=np.array([len(way) for way in self._ways], dtype=np.int64),
            actions=tuple(action for _, action in keys),
            sources_E=np.array([state for state, _ in keys], dtype=np.int64),
            targets_E=np.array([self._edges[key][0] for key in keys], dtype=np.int64),
            rewards_E=np.array([self._edges[key][1] for key in keys], dtype=np.float64),
            state_numbers=self._numbers,
            edge_numbers={key: edge for edge, key in enumerate(keys)},
        )

    def _edge(self, state: int, action: str, way: tuple[str, ...]) -> int:
        """Take an action for the first time; the state that it leads to."""
        result = self._play(action)
        target = ENDED if result.terminated else self._number(result.observation, (*way, action))
        self._edges[state, action] = target, result.reward
        if target != ENDED:
            self._between[state, target] = action
        return target

    def _number(self, seen: Observation, way: tuple[str, ...]) -> int:
        if seen in self._numbers:
            return self._numbers[seen]
        if len(self._states) == self._max_states:
            raise ConfigError(
                f"task {self._task.task_id!r} has more than {self._max_states} states within "
                f"{self._horizon} steps; choose a smaller task or a shorter horizon, raise "
                "max_states, or sample the values"
            )
        self._numbers[seen] = len(self._states)
        self._states.append(seen)
        self._ways.append(way)
        if self._arrived is not None:
            self._arrived(seen)
        return self._numbers[seen]


def _actions_of(seen: Observation, task: Task) -> tuple[str, ...]:
    if seen.admissible_actions is None:
        raise ConfigError(
            f"{task.environment} lists no admissible actions, so its states cannot be counted; "
            "list them in info['admissible_actions'], or sample the values"
        )
    return *dict.fromkeys(seen.admissible_actions), INVALID


def _shown(seen: Observation) -> str:
    return f"state {shortened(seen.text, _LONGEST_SHOWN)!r}"
