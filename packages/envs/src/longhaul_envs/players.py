"""One world after the other, started and acted in, whatever serves it.

A Gymnasium class is played in this thread by one instance, which is reset for each task. Any
other source is played by its protocol: a fresh environment for each start, on one event loop.
For checks, baselines and people; training plays episodes by `longhaul_core.rollout`.
"""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from longhaul_core.environment import Environment, EnvironmentSource, StepResult
from longhaul_core.gym import GymEnvironmentSpec, GymSource
from longhaul_core.types import Observation, Task
from longhaul_envs import play
from longhaul_envs.capabilities import Draws, HasExpert, NamesGoalParts
from longhaul_envs.sources import environment_source

__all__ = ["Player", "opened"]


class Player(Protocol):
    """Plays one episode at a time."""

    def start(self, task: Task) -> Observation:
        """Begin `task`."""
        ...

    def act(self, action: str) -> StepResult:
        """Make a step of the episode begun last."""
        ...

    def expert_action(self) -> str | None:
        """What the environment's own expert would do; None without one."""
        ...

    def goal_parts(self) -> Sequence[str]:
        """The parts of the episode's goal; none where the environment names none."""
        ...

    def mistaken_action(self, part: str) -> str | None:
        """What an expert would do who takes `part` for another."""
        ...

    def render(self) -> NDArray[np.uint8] | None:
        """A picture of the state; None where the environment draws none."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


@contextmanager
def opened(spec: GymEnvironmentSpec) -> Generator[Player]:
    """A player of the environment that `spec` names, closed at the end."""
    source = environment_source(spec)
    player = _GymPlayer(source.spec) if isinstance(source, GymSource) else _SourcePlayer(source)
    with closing(player):
        yield player


class _GymPlayer:
    def __init__(self, spec: GymEnvironmentSpec) -> None:
        self._environment = spec.make()

    def start(self, task: Task) -> Observation:
        return play.start(self._environment, task)

    def act(self, action: str) -> StepResult:
        return play.act(self._environment, action)

    def expert_action(self) -> str | None:
        bare = self._environment.unwrapped
        return bare.expert_action() if isinstance(bare, HasExpert) else None

    def goal_parts(self) -> Sequence[str]:
        bare = self._environment.unwrapped
        return bare.goal_parts() if isinstance(bare, NamesGoalParts) else ()

    def mistaken_action(self, part: str) -> str | None:
        bare = self._environment.unwrapped
        return bare.mistaken_action(part) if isinstance(bare, NamesGoalParts) else None

    def render(self) -> NDArray[np.uint8] | None:
        bare = cast("object", self._environment.unwrapped)
        # every `gymnasium.Env` has a `render`; one that draws says in which mode
        if isinstance(bare, Draws) and bare.render_mode == "rgb_array":
            return bare.render()
        return None

    def close(self) -> None:
        self._environment.close()


class _SourcePlayer:
    def __init__(self, source: EnvironmentSource) -> None:
        self._source = source
        self._runner = asyncio.Runner()
        self._environment: Environment | None = None

    def start(self, task: Task) -> Observation:
        return self._runner.run(self._start(task))

    async def _start(self, task: Task) -> Observation:
        await self._end()
        self._environment = self._source.make(task)
        await self._environment.open()
        return await self._environment.reset(task)

    def act(self, action: str) -> StepResult:
        assert self._environment is not None
        return self._runner.run(self._act(self._environment, action))

    async def _act(self, environment: Environment, action: str) -> StepResult:
        return await environment.step(action)

    def expert_action(self) -> str | None:
        return None

    def goal_parts(self) -> Sequence[str]:
        return ()

    def mistaken_action(self, part: str) -> str | None:
        return None

    def render(self) -> NDArray[np.uint8] | None:
        return None

    def close(self) -> None:
        with self._runner:
            self._runner.run(self._end())

    async def _end(self) -> None:
        environment, self._environment = self._environment, None
        if environment is not None:
            await environment.close()
            await environment.close()  # twice is safe, by the protocol
