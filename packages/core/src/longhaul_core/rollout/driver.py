"""One environment and one memory that drive a session, exchange by exchange.

Who chooses the actions stands outside: the agent in `loop`, a stored episode in `branch`.
"""

import functools
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from longhaul_core.environment import Environment, EnvironmentFactory, StepResult
from longhaul_core.errors import (
    EnvironmentFailure,
    EnvironmentTimeout,
    EpisodeError,
    LimitReached,
    MemoryFailure,
    attributed_to,
)
from longhaul_core.memory import Memory, MemoryContext
from longhaul_core.memory.base import Complete, RecallingMemory
from longhaul_core.policy import Shortenable, offers
from longhaul_core.rollout.deadline import awaited, deadline
from longhaul_core.rollout.limits import EpisodeLimits
from longhaul_core.rollout.session import EpisodeSession
from longhaul_core.types import Call, CreditedBy, Message, Observation, StopReason

__all__ = ["EnvironmentDriver", "driven"]

logger = logging.getLogger(__name__)


@asynccontextmanager
async def driven(
    session: EpisodeSession,
    *,
    build_memory: Callable[[], Memory],
    make_environment: EnvironmentFactory,
    limits: EpisodeLimits,
    with_final_prompt: bool = False,
) -> AsyncGenerator["EnvironmentDriver"]:
    """A driver whose session has observed the beginning; its environment is closed in any case.

    Args:
        session: In which nothing has been observed.
        build_memory: Makes a memory of nothing.
        make_environment: Called once.
        limits: Bounds of the episode.
        with_final_prompt: See `run_episode`.

    Raises:
        EpisodeError: The memory or the environment could not be had.
    """
    with attributed_to(MemoryFailure, "making the memory"):
        memory = build_memory()
    with attributed_to(EnvironmentFailure, "making the environment"):
        environment = make_environment(session.task)
    driver = EnvironmentDriver(
        session,
        environment=environment,
        memory=memory,
        limits=limits,
        with_final_prompt=with_final_prompt,
    )
    try:
        await driver.begin()
        yield driver
    finally:
        await driver.close()


class EnvironmentDriver:
    """Plays actions in an environment, reports to the session, and has the memory take them in."""

    def __init__(
        self,
        session: EpisodeSession,
        *,
        environment: Environment,
        memory: Memory,
        limits: EpisodeLimits,
        with_final_prompt: bool,
    ) -> None:
        """See `driven`."""
        self.session = session
        self.success = False
        """Whether the newest exchange solved the task."""
        self._environment = environment
        self._memory = memory
        self._limits = limits
        self._with_final_prompt = with_final_prompt

    @property
    def prompt(self) -> Shortenable:
        """The memory's, for the newest observation."""
        memory, observation = self._memory, self.session.observation
        return Shortenable(
            compose=lambda drop: memory.compose(observation, drop=drop),
            num_droppable=lambda: memory.num_remembered,
            max_tokens=self._limits.max_memory_tokens,
            recalled=lambda drop: _recalled(memory, observation, drop=drop),
        )

    async def begin(self) -> None:
        """Open and reset the environment, and report what it shows."""
        with awaited("environment.open", failure=EnvironmentFailure):
            await self._environment.open()
        # The clock starts when the episode's turn has come, not in the queue before it.
        self.session.restart_clock()
        limit = self._limits.reset_deadline_seconds
        async with _environment_deadline(limit, "environment.reset"):
            observation = await self._environment.reset(self.session.task)
            self.session.require_readable(observation)
        self.session.observe(observation)

    async def play(
        self,
        action: str,
        *,
        reply: str,
        valid: bool,
        expect: Callable[[StepResult], None] | None = None,
        complete: Complete | None = None,
    ) -> StopReason | None:
        """One exchange; returns why the episode ended, if it did.

        Args:
            action: What the environment is given.
            reply: From which the action was read, for the memory.
            valid: Whether it had the asked-for form and an admissible action.
            expect: Called with what the environment answers; what it raises passes.
            complete: Answers the memory; None asks the session's responder.

        Raises:
            EpisodeError: The environment or the memory failed.
        """
        session, observation = self.session, self.session.observation
        began = time.perf_counter()
        limit = self._limits.step_deadline_seconds
        async with _environment_deadline(limit, "environment.step"):
            result = await self._environment.step(action)
            session.require_readable(result.observation)
        seconds = time.perf_counter() - began
        if expect is not None:
            expect(result)
        session.acted(action, valid=valid and result.action_accepted, environment_seconds=seconds)
        session.reward(result.reward)
        self.success = result.success

        stop_reason = _stop_reason(result)
        if stop_reason is None and session.num_steps == self._limits.horizon:
            stop_reason = StopReason.HORIZON_REACHED
        try:
            # Nothing is remembered that no prompt will show.
            if stop_reason is None or (self._with_final_prompt and stop_reason.truncated):
                await self._remember(observation, reply, action, complete=complete)
        except LimitReached as limit_reached:
            stop_reason = stop_reason or limit_reached.stop_reason
        finally:
            session.observe(result.observation)
        return stop_reason

    async def close(self) -> None:
        """Close, whatever happened; a failure here is logged and changes no record."""
        limit = self._limits.close_deadline_seconds
        try:
            async with _environment_deadline(limit, "environment.close"):
                await self._environment.close()
        except EpisodeError as error:
            logger.warning("episode %s: %s", self.session.episode_id, error)

    async def _remember(
        self, observation: Observation, reply: str, action: str, *, complete: Complete | None
    ) -> None:
        context = MemoryContext(
            task=self.session.task,
            complete=complete or functools.partial(_asked_by_memory, self.session),
        )
        with awaited("memory.write", failure=MemoryFailure):
            await self._memory.write(
                observation=observation, reply=reply, action=action, context=context
            )


def _recalled(memory: object, observation: Observation, *, drop: int) -> tuple[int, ...]:
    return memory.recalled(observation, drop=drop) if offers(memory, RecallingMemory) else ()


async def _asked_by_memory(
    session: EpisodeSession,
    prompt: Sequence[Message] | Shortenable,
    *,
    purpose: str = "remember",
    trained: bool = True,
    credit_share: float = 1.0,
    credited_by: CreditedBy = CreditedBy.NEXT_STEP,
    max_reply_tokens: int | None = None,
) -> Call:
    """See `Complete`."""
    if purpose == "act":
        raise ValueError("the purpose 'act' is the agent's; name another for a memory's call")
    return await session.complete(
        prompt,
        purpose=purpose,
        trained=trained,
        credit_share=credit_share,
        credited_by=credited_by,
        max_reply_tokens=max_reply_tokens,
    )


def _environment_deadline(seconds: float, action: str) -> AbstractAsyncContextManager[None]:
    return deadline(seconds, action, failure=EnvironmentFailure, late=EnvironmentTimeout)


def _stop_reason(result: StepResult) -> StopReason | None:
    if result.terminated:
        return StopReason.TASK_SOLVED if result.success else StopReason.TASK_FAILED
    return StopReason.ENVIRONMENT_LIMIT if result.truncated else None
