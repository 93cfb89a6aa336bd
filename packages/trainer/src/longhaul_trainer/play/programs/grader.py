"""The run's own function for rewards, in place of what programs say of themselves."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from longhaul_core.components import find_component, import_module, is_own
from longhaul_core.errors import ConfigError, GraderFailure
from longhaul_core.rollout.deadline import deadline
from longhaul_core.types import Task, Trajectory
from longhaul_trainer.gateway.episode import Reported
from longhaul_trainer.play.programs.program import Leavings
from longhaul_trainer.play.programs.result import Result, result_of

__all__ = ["Graded", "Grader", "named_function"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """What a grader is called with."""

    task: Task
    data: Mapping[str, object]
    """What the program was given."""
    trajectory: Trajectory
    """Every step and call, with the rewards that the program reported of its steps. How it ended
    and whether it succeeded are what the grader is asked: `stop_reason` is of a failed task, or the
    limit that was reached."""
    posted: Reported
    """What it posted of the episode; that counts for nothing where there is a grader."""
    leavings: Leavings
    """What the program left: its folder, its output, its exit code, what it returned."""


class Grader:
    """A function `module:name` that is called with a `Graded`, once the program has ended.

    It returns a number or `{"reward": …, "success": …, "step_rewards": […]}`. It may be
    asynchronous; a plain one is called in a thread, which goes on where it misses its deadline.
    """

    def __init__(
        self, name: str, *, deadline_seconds: float = 600.0, setting: str = "agent.grader"
    ) -> None:
        """Import it.

        Args:
            name: `module:name`.
            deadline_seconds: For one episode.
            setting: What named it, for messages.

        Raises:
            ConfigError: It cannot be imported, or does not take one argument.
        """
        self._function = named_function(name, setting=setting, takes=["graded"])
        self._name = name
        self._deadline_seconds = deadline_seconds

    async def __call__(self, graded: Graded) -> Result:
        """What the episode was worth.

        Raises:
            GraderFailure: The function raised, returned no reward, or missed its deadline.
        """
        async with deadline(
            self._deadline_seconds,
            f"grader {self._name}",
            failure=GraderFailure,
            late=GraderFailure,
        ):
            if inspect.iscoroutinefunction(self._function):
                value: object = await self._function(graded)
            else:
                value = await asyncio.to_thread(self._function, graded)
                if inspect.isawaitable(value):  # of an object whose `__call__` is asynchronous
                    value = await value
            result = result_of(value)
            if result is None or (result.reward is None and not result.step_rewards):
                raise ValueError(f"it returned {value!r}, which is no reward")
            return result


def named_function(name: str, *, setting: str, takes: list[str]) -> Callable[..., object]:
    """The function `module:name`, plain or asynchronous.

    Args:
        name: As the run has it.
        setting: What named it, for messages.
        takes: What it is called with, in order.

    Raises:
        ConfigError: It cannot be imported, or does not take these arguments.
    """
    if is_own(name):
        module, _, attribute = name.partition(":")
        found: object = getattr(
            import_module(module, setting=f"{setting} = {name!r}"), attribute, None
        )
        if inspect.iscoroutinefunction(found):
            try:
                inspect.signature(found).bind(*takes)
            except TypeError as error:
                raise ConfigError(
                    f"{setting} = {name!r}: is called as {attribute}({', '.join(takes)}), and "
                    f"takes {inspect.signature(found)}: {error}"
                ) from error
            return found
    built_in: dict[str, Callable[..., object]] = {}
    return find_component(name, built_in, setting=setting, takes=takes)
