"""An environment in a thread: cheap, for environments that are quick and trusted.

What it costs: a call that hangs cannot be ended. At its deadline the episode fails as it
should, but the thread stays, with the environment it holds, until the call returns
by itself or the program ends; a call that computes for ever also keeps a processor and
Python's lock busy, and a crash of native code takes the program with it. Where any of
this can happen use `ProcessPool`.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import gymnasium

from longhaul_core.environment import EnvironmentFactory, StepResult
from longhaul_core.errors import EnvironmentFailure, EpisodeError, attributed_to
from longhaul_core.gym.convert import expert_action, to_observation, to_step_result
from longhaul_core.gym.spec import GymEnvironmentSpec
from longhaul_core.types import Observation, Task

__all__ = ["ThreadEnvironment", "thread_environments"]

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


def thread_environments(spec: GymEnvironmentSpec) -> EnvironmentFactory:
    """Makes environments that play in a thread each. See the module for what a hang costs."""
    return lambda task: ThreadEnvironment(spec.make)


class ThreadEnvironment:
    """One episode, played by a thread of its own, which is the only one to touch it."""

    def __init__(self, make: Callable[[], gymnasium.Env[str, str]]) -> None:
        """Describe the episode.

        Args:
            make: Makes the Gymnasium environment; called in the thread, at reset.
        """
        self._make = make
        self._environment: gymnasium.Env[str, str] | None = None
        self._thread: _CallThread | None = None

    async def open(self) -> None:
        """Start the thread."""
        self._thread = _CallThread()

    async def reset(self, task: Task) -> Observation:
        """See `Environment.reset`."""
        return await self._call("reset", partial(self._reset, task))

    async def step(self, action: str) -> StepResult:
        """See `Environment.step`."""
        return await self._call("step", partial(self._step, action))

    async def expert_action(self) -> str | None:
        """See `Advised.expert_action`."""
        return await self._call("expert_action", self._expert_action)

    async def close(self) -> None:
        """Close the environment and end the thread, unless a call hangs in it."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            if thread.busy:
                logger.warning("a thread is left behind in an environment that does not return")
            elif self._environment is not None:
                await thread.call("environment.close", self._environment.close)
        finally:
            thread.end()

    async def _call(self, name: str, function: Callable[[], Result]) -> Result:
        if self._thread is None:
            raise RuntimeError("the environment is not open")
        return await self._thread.call(f"environment.{name}", function)

    def _reset(self, task: Task) -> Observation:
        self._environment = self._make()
        text, info = self._environment.reset(seed=task.seed, options={"task_id": task.task_id})
        return to_observation(text, info)

    def _begun(self) -> gymnasium.Env[str, str]:
        if self._environment is None:
            raise RuntimeError("it was not reset before")
        return self._environment

    def _expert_action(self) -> str | None:
        return expert_action(self._begun())

    def _step(self, action: str) -> StepResult:
        text, reward, terminated, truncated, info = self._begun().step(action)
        return to_step_result(text, reward, terminated=terminated, truncated=truncated, info=info)


class _CallThread:
    """A daemon thread that makes one call after the other.

    An executor's threads are joined when the program ends, so that one hung call would
    keep the program from ending; a daemon's are not.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.busy = False
        """Whether a call has not returned."""
        threading.Thread(target=self._run, name="longhaul-environment", daemon=True).start()

    async def call(self, name: str, function: Callable[[], Result]) -> Result:
        """What `function` returns, or `EnvironmentFailure` if it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def settle(outcome: Callable[[], None]) -> None:
            self.busy = False
            if not future.done():  # else the caller has gone
                outcome()

        def run() -> None:
            try:
                with attributed_to(EnvironmentFailure, name, exits=True):
                    outcome = partial(future.set_result, function())
            except EpisodeError as failure:
                outcome = partial(future.set_exception, failure)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, outcome)

        self.busy = True
        self._calls.put(run)
        return await future

    def end(self) -> None:
        """End the thread once its call, if any, has returned."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
