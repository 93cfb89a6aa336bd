"""One episode of an environment, from reset to its record.

The loop never raises for an episode's failure: whatever breaks in the environment,
the policy, the memory or the renderer becomes a `FailedEpisode` with its cause and the
steps finished before it, and so does an episode that is stopped. Cancellation passes,
and so does anything that is a fault of ours. The environment is closed on every way out.
"""

import asyncio
from dataclasses import replace

from longhaul_core.actions import called, with_answer
from longhaul_core.environment import EnvironmentFactory
from longhaul_core.errors import (
    EpisodeError,
    LimitReached,
    MemoryFailure,
    PolicyFailure,
    attributed_to,
)
from longhaul_core.rollout.acting import SingleCall
from longhaul_core.rollout.agent import Agent
from longhaul_core.rollout.branch import take_up
from longhaul_core.rollout.deadline import awaited
from longhaul_core.rollout.driver import EnvironmentDriver, driven
from longhaul_core.rollout.limits import EpisodeLimits
from longhaul_core.rollout.session import EpisodeSession
from longhaul_core.rollout.spec import EpisodeSpec
from longhaul_core.rollout.stopping import until_stopped
from longhaul_core.types import FailedEpisode, StopReason, Trajectory

__all__ = ["EpisodeOutcome", "run_episode"]

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
        spec: The task, the seed and the place in the group; of a branch, what it continues, whose
            horizon it keeps.
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
    if spec.branch is not None:
        limits = replace(limits, horizon=spec.branch.recorded.horizon)
    episode = _Episode(spec, agent=agent, limits=limits, with_final_prompt=with_final_prompt)
    try:
        playing = episode.play(make_environment)
        stop_reason = await (playing if stop is None else until_stopped(playing, stop))
    except EpisodeError as failure:
        return episode.session.failed(failure)
    return episode.session.end(stop_reason, success=episode.success)


class _Episode:
    """An agent that chooses what a driver plays."""

    def __init__(
        self, spec: EpisodeSpec, *, agent: Agent, limits: EpisodeLimits, with_final_prompt: bool
    ) -> None:
        self.session = EpisodeSession(spec, limits=limits, responder=agent)
        self.success = False
        self._branch = spec.branch
        self._agent = agent
        self._acting = agent.acting or SingleCall()
        self._limits = limits
        self._with_final_prompt = with_final_prompt

    async def play(self, make_environment: EnvironmentFactory) -> StopReason:
        """Run to the end; `EpisodeError` reports what failed."""
        async with driven(
            self.session,
            build_memory=self._agent.build_memory,
            make_environment=make_environment,
            limits=self._limits,
            with_final_prompt=self._with_final_prompt,
        ) as driver:
            stop_reason = None
            if self._branch is not None:
                stop_reason = await take_up(self._branch, driver, parser=self._agent.parser)
            stop_reason = stop_reason or await self._steps_to_the_end(driver)
            self.success = driver.success
            if self._with_final_prompt and stop_reason.truncated:
                await self.session.compose_final_prompt(driver.prompt)
            return stop_reason

    async def _steps_to_the_end(self, driver: EnvironmentDriver) -> StopReason:
        while True:
            try:
                stop_reason = await self._step(driver)
            except LimitReached as limit:
                if self.session.num_steps:
                    return limit.stop_reason
                raise MemoryFailure(
                    f"{limit}, before the first step; nothing is left to drop"
                ) from limit
            if stop_reason is not None:
                return stop_reason

    async def _step(self, driver: EnvironmentDriver) -> StopReason | None:
        """One exchange; returns why the episode ended, if it did."""
        observation = self.session.observation
        with awaited("agent.act", failure=PolicyFailure):
            call = await self._acting.act(self.session, driver.prompt)
            if call.purpose != "act":
                raise ValueError(
                    f"it returned a call for the purpose {call.purpose!r}; return the one that "
                    "chooses the action, made for the purpose 'act'"
                )
        with attributed_to(PolicyFailure, "parsing the reply"):
            says = call.reply
            if self._agent.tools and call.tool_calls:
                first = call.tool_calls[0]
                says = with_answer(says, called(first.name, first.arguments))
            action = self._agent.parser.parse(says, observation.admissible_actions)
        return await driver.play(action.text, reply=call.reply, valid=action.valid)
