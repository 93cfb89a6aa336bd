"""One episode of an environment, from reset to its record.

The loop never raises for an episode's failure: whatever breaks in the environment,
the policy, the memory or the renderer becomes a `FailedEpisode` with its cause and the
steps finished before it, and so does an episode that is stopped. Cancellation passes,
and so does anything that is a fault of ours. The environment is closed on every way out.
"""

import asyncio
import functools
import logging
import time
from contextlib import AbstractAsyncContextManager

from longhaul_core.environment import Environment, EnvironmentFactory, StepResult
from longhaul_core.errors import (
    EnvironmentFailure,
    EnvironmentTimeout,
    EpisodeError,
    LimitReached,
    MemoryFailure,
    PolicyFailure,
    attributed_to,
)
from longhaul_core.memory import Memory, MemoryContext
from longhaul_core.policy import Shortenable
from longhaul_core.rollout.acting import SingleCall
from longhaul_core.rollout.agent import Agent
from longhaul_core.rollout.deadline import awaited, deadline
from longhaul_core.rollout.limits import EpisodeLimits
from longhaul_core.rollout.session import EpisodeSession
from longhaul_core.rollout.spec import EpisodeSpec
from longhaul_core.rollout.stopping import until_stopped
from longhaul_core.types import Call, FailedEpisode, Observation, StopReason, Trajectory

__all__ = ["EpisodeOutcome", "run_episode"]

logger = logging.getLogger(__name__)

EpisodeOutcome = Trajectory | FailedEpisode


async def run_episode(
    spec: EpisodeSpec,
    *,
    agent: Agent,
    make_environment: EnvironmentFactory,
    limits: EpisodeLimits,
    with_final_prompt: bool = False,
    stop: asyncio.Event | None = None,
) -> EpisodeOutcome:
    """Play one episode and return its record.

    Args:
        spec: The task, the seed and the place in the group.
        agent: Chooses the actions.
        make_environment: Called once; what it makes is closed before this returns.
        limits: Bounds of the episode.
        with_final_prompt: Compose the prompt of a truncated episode's final observation, which a
            critic values. Nobody answers it.
        stop: Once it is set the episode gives up what it waits for, an answer of the policy
            or of the environment, and closes; None for an episode that nobody stops.

    Returns:
        A `Trajectory` if the episode ended or a limit truncated it, a `FailedEpisode`
        if something broke or missed its deadline, or if it was stopped.
    """
    episode = _Episode(spec, agent=agent, limits=limits, with_final_prompt=with_final_prompt)
    try:
        playing = episode.play(make_environment)
        stop_reason = await (playing if stop is None else until_stopped(playing, stop))
    except EpisodeError as failure:
        return episode.session.failed(failure)
    return episode.session.end(stop_reason, success=episode.success)


class _Episode:
    """An environment, a memory and an agent that drive a session."""

    def __init__(
        self, spec: EpisodeSpec, *, agent: Agent, limits: EpisodeLimits, with_final_prompt: bool
    ) -> None:
        self.session = EpisodeSession(spec, limits=limits, responder=agent)
        self.success = False
        self._spec = spec
        self._agent = agent
        self._acting = agent.acting or SingleCall()
        self._limits = limits
        self._with_final_prompt = with_final_prompt

    async def play(self, make_environment: EnvironmentFactory) -> StopReason:
        """Run to the end; `EpisodeError` reports what failed."""
        with attributed_to(MemoryFailure, "making the memory"):
            memory = self._agent.build_memory()
        with attributed_to(EnvironmentFailure, "making the environment"):
            environment = make_environment(self._spec.task)
        try:
            with awaited("environment.open", failure=EnvironmentFailure):
                await environment.open()
            # The clock starts when the episode's turn has come, not in the queue before it.
            self.session.restart_clock()
            self.session.observe(await self._reset(environment))
            stop_reason = await self._steps_to_the_end(environment, memory)
            if self._with_final_prompt and stop_reason.truncated:
                await self.session.compose_final_prompt(self._prompt(memory))
            return stop_reason
        finally:
            await self._close(environment)

    async def _steps_to_the_end(self, environment: Environment, memory: Memory) -> StopReason:
        while True:
            try:
                stop_reason = await self._step(environment, memory)
            except LimitReached as limit:
                if self.session.num_steps:
                    return limit.stop_reason
                raise MemoryFailure(
                    f"{limit}, before the first step; nothing is left to drop"
                ) from limit
            if stop_reason is not None:
                return stop_reason

    async def _reset(self, environment: Environment) -> Observation:
        limit = self._limits.reset_deadline_seconds
        async with _environment_deadline(limit, "environment.reset"):
            observation = await environment.reset(self._spec.task)
            self.session.require_readable(observation)
            return observation

    async def _step(self, environment: Environment, memory: Memory) -> StopReason | None:
        """One exchange; returns why the episode ended, if it did."""
        session = self.session
        observation = session.observation
        with awaited("agent.act", failure=PolicyFailure):
            call = await self._acting.act(session, self._prompt(memory))
            if call.purpose != "act":
                raise ValueError(
                    f"it returned a call for the purpose {call.purpose!r}; return the one that "
                    "chooses the action, made for the purpose 'act'"
                )
        with attributed_to(PolicyFailure, "parsing the reply"):
            action = self._agent.parser.parse(call.reply, observation.admissible_actions)

        began = time.perf_counter()
        limit = self._limits.step_deadline_seconds
        async with _environment_deadline(limit, "environment.step"):
            result = await environment.step(action.text)
            session.require_readable(result.observation)
        session.acted(
            action.text,
            valid=action.valid and result.action_accepted,
            environment_seconds=time.perf_counter() - began,
        )
        session.reward(result.reward)
        self.success = result.success

        stop_reason = _stop_reason(result)
        if stop_reason is None and session.num_steps == self._limits.horizon:
            stop_reason = StopReason.HORIZON_REACHED
        try:
            # Nothing is remembered that no prompt will show.
            if stop_reason is None or (self._with_final_prompt and stop_reason.truncated):
                await self._remember(memory, observation, call, action.text)
        except LimitReached as limit:
            stop_reason = stop_reason or limit.stop_reason
        finally:
            session.observe(result.observation)
        return stop_reason

    async def _remember(
        self, memory: Memory, observation: Observation, call: Call, action: str
    ) -> None:
        context = MemoryContext(
            task=self._spec.task,
            complete=functools.partial(self.session.complete, purpose="remember"),
        )
        with awaited("memory.write", failure=MemoryFailure):
            await memory.write(
                observation=observation, reply=call.reply, action=action, context=context
            )

    def _prompt(self, memory: Memory) -> Shortenable:
        observation = self.session.observation
        return Shortenable(
            compose=lambda drop: memory.compose(observation, drop=drop),
            num_droppable=lambda: memory.num_remembered,
        )

    async def _close(self, environment: Environment) -> None:
        """Close, whatever happened; a failure here is logged and changes no record."""
        limit = self._limits.close_deadline_seconds
        try:
            async with _environment_deadline(limit, "environment.close"):
                await environment.close()
        except EpisodeError as error:
            logger.warning("episode %s: %s", self._spec.episode_id, error)


def _environment_deadline(seconds: float, action: str) -> AbstractAsyncContextManager[None]:
    return deadline(seconds, action, failure=EnvironmentFailure, late=EnvironmentTimeout)


def _stop_reason(result: StepResult) -> StopReason | None:
    if result.terminated:
        return StopReason.TASK_SOLVED if result.success else StopReason.TASK_FAILED
    return StopReason.ENVIRONMENT_LIMIT if result.truncated else None
