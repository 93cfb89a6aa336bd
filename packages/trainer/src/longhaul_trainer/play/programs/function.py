"""A function of the run's own that plays an episode, on the gateway's event loop."""

import asyncio
import inspect
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

from longhaul_core.addresses import go_direct
from longhaul_core.errors import ConfigError, ProgramFailure, ProgramTimeout
from longhaul_core.rollout.deadline import awaited
from longhaul_core.types import Task
from longhaul_trainer.gateway.task_data import task_data
from longhaul_trainer.play.programs.grader import named_function
from longhaul_trainer.play.programs.program import Endpoint, Leavings

__all__ = ["FunctionProgram"]

logger = logging.getLogger(__name__)

_END_SECONDS = 5.0
"""For a function that is cancelled to end; one that goes on is left behind."""


class FunctionProgram:
    """An asynchronous function `module:name`, called with the task's data and an `Endpoint`.

    What it returns is the result. All episodes of an agent loop share one event loop: what blocks
    it blocks them all, so blocking work belongs into `asyncio.to_thread`, or into a command.
    """

    def __init__(
        self, name: str, *, deadline_seconds: float = 3600.0, setting: str = "agent.function"
    ) -> None:
        """Import it.

        Args:
            name: `module:name`.
            deadline_seconds: For one episode, above 0.
            setting: What named it, for messages.

        Raises:
            ConfigError: It cannot be imported, is not asynchronous, does not take two arguments, or
                the deadline is out of range.
        """
        if not (math.isfinite(deadline_seconds) and deadline_seconds > 0):
            raise ConfigError(
                f"deadline_seconds must be finite and greater than 0, got {deadline_seconds}"
            )
        go_direct()  # its clients ask the gateway of this process
        function = named_function(name, setting=setting, takes=["task", "endpoint"])
        if not inspect.iscoroutinefunction(function):
            raise ConfigError(
                f"{setting} = {name!r}: must be asynchronous (`async def`), since a plain function "
                "would stop every other episode and could not be ended; make it so, or name a "
                "command"
            )
        self._function = cast("Callable[[object, Endpoint], Awaitable[object]]", function)
        self._name = name
        self._deadline_seconds = deadline_seconds

    def check(self) -> None:
        """See `Program.check`: all was checked when it was imported."""

    @asynccontextmanager
    async def run(
        self, task: Task, *, endpoint: Endpoint, enough: asyncio.Event | None = None
    ) -> AsyncGenerator[Leavings]:
        """See `Program.run`."""
        playing = asyncio.create_task(self._played(task, endpoint))
        over = asyncio.create_task((enough or asyncio.Event()).wait())
        try:
            await asyncio.wait(
                {playing, over},
                timeout=self._deadline_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            over.cancel()
            ended = playing.done()
            await self._ended(playing)
        if ended and playing.cancelled():
            raise ProgramFailure(f"{self._name} cancelled itself")
        if ended:
            yield Leavings(result=playing.result())
        elif enough is not None and enough.is_set():
            yield Leavings()
        else:
            raise ProgramTimeout(f"{self._name} did not end within {self._deadline_seconds:g} s")

    async def close(self) -> None:
        """See `Program.close`."""

    async def _played(self, task: Task, endpoint: Endpoint) -> object:
        with awaited(self._name, failure=ProgramFailure):
            return await self._function(task_data(task), endpoint)

    async def _ended(self, playing: asyncio.Task[object]) -> None:
        """Cancel it, and wait until it has ended."""
        playing.cancel()
        await asyncio.wait({playing}, timeout=_END_SECONDS)
        if not playing.done():
            logger.warning(
                "%s went on for %g s after it was cancelled, and is left behind",
                self._name,
                _END_SECONDS,
            )
            playing.add_done_callback(_looked_at)
        elif not playing.cancelled():
            playing.exception()


def _looked_at(playing: asyncio.Task[object]) -> None:
    """Take what came of a function that was left behind; nobody waits for it."""
    if not playing.cancelled():
        playing.exception()
