"""Who plays the episodes of a run: our loop over environments, or programs.

Both give the record of an episode, and never raise for its failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from longhaul_core.actions import ActionFormat, build_parser
from longhaul_core.environment import EnvironmentDescription, EnvironmentFactory
from longhaul_core.policy import HostedReply, NoTokens, Sampling
from longhaul_core.rollout import (
    Agent,
    ChanceActing,
    EpisodeLimits,
    EpisodeOutcome,
    EpisodeSpec,
    ExpertActing,
    NoisyExpert,
    Responder,
    build_acting,
    run_episode,
)
from longhaul_core.store.records import Phase
from longhaul_core.types import Message, Tool
from longhaul_trainer.config import MixedEnvironmentConfig, RunConfig
from longhaul_trainer.config.agent_loops import AgentLoop
from longhaul_trainer.play.environments import RunEnvironments, memory_builder, prompt_template

PHASES: tuple[Phase, ...] = ("train", "baseline", "validation", "test", "branch")


class Player(Protocol):
    """Plays episodes of a run. Shared by all of one event loop."""

    async def play(
        self,
        spec: EpisodeSpec,
        *,
        phase: Phase,
        training_step: int,
        limits: EpisodeLimits,
        with_final_prompt: bool,
        stop: asyncio.Event,
    ) -> EpisodeOutcome:
        """Play one try.

        Args:
            spec: The task, the seed and the place in the group.
            phase: Decides how replies are drawn.
            training_step: That plays it; 0 before training.
            limits: Bounds of the episode.
            with_final_prompt: Keep the prompt that a truncated episode's next step would have, for
                a critic.
            stop: Once it is set the episode is given up.
        """
        ...

    async def close(self) -> None:
        """End every process and server that episodes needed."""
        ...


@runtime_checkable
class BeginsThought(Protocol):
    """A renderer that knows whether its model's template begins a thought for each reply."""

    @property
    def begun_thought(self) -> str:
        """The tag that begins it; empty without one."""
        ...


def temperature_of(run: RunConfig, phase: Phase) -> float:
    """How replies of a phase are drawn: greedily beside a group, and in validation as it says.

    A branch estimates the value of the policy that plays training's episodes.
    """
    sampled = run.rollout.temperature
    by_phase = {"train": sampled, "branch": sampled, "baseline": 0.0}
    return by_phase.get(phase, run.validation.temperature)


def top_p_of(run: RunConfig, phase: Phase) -> float:
    """Nucleus sampling is for training and its branches alone."""
    return run.rollout.top_p if phase in ("train", "branch") else 1.0


def limits_of(
    run: RunConfig, environment: MixedEnvironmentConfig, *, horizon: int
) -> EpisodeLimits:
    """Limits of an episode of one of the run's environments with this horizon."""
    rollout = run.rollout
    return EpisodeLimits(
        horizon=horizon,
        max_prompt_tokens=rollout.max_prompt_tokens,
        max_memory_tokens=environment.memory.max_tokens,
        max_episode_tokens=rollout.max_episode_tokens,
        max_observation_characters=environment.max_observation_characters,
        reset_deadline_seconds=environment.reset_deadline_seconds,
        step_deadline_seconds=environment.step_deadline_seconds,
        policy_deadline_seconds=rollout.policy_deadline_seconds,
    )


class EnvironmentPlayer:
    """Plays environments by our loop. A `Player`."""

    def __init__(
        self,
        run: RunConfig,
        *,
        responders: Mapping[str, Responder],
        descriptions: Mapping[str, EnvironmentDescription],
        agent_loop: AgentLoop,
    ) -> None:
        """Build the agents; no environment is started yet.

        Args:
            run: The run.
            responders: By the prefix of their replies; their renderers write it.
            descriptions: By environment.
            agent_loop: Which of the run's agent loops this process is.
        """
        self._run = run
        self._environments = RunEnvironments(run, agent_loop=agent_loop)
        self._acting = build_acting(run.agent.kind)
        self._agents = {
            (entry.id, phase): agent
            for entry in run.played_environments
            for phase, agent in self._agents_for(
                entry, responders[entry.prompt.reply_prefix], descriptions[entry.id]
            )
        }

    def agent(self, environment_id: str, phase: Phase) -> Agent:
        """Who acts in an environment of the run."""
        return self._agents[environment_id, phase]

    def _parts(
        self, spec: EpisodeSpec, phase: Phase, limits: EpisodeLimits
    ) -> tuple[Agent, EnvironmentFactory]:
        """Who acts in an episode, and what makes its environment."""
        return self.agent(spec.task.environment, phase), self._environments

    async def play(
        self,
        spec: EpisodeSpec,
        *,
        phase: Phase,
        training_step: int,
        limits: EpisodeLimits,
        with_final_prompt: bool,
        stop: asyncio.Event,
    ) -> EpisodeOutcome:
        """See `Player.play`."""
        agent, make_environment = self._parts(spec, phase, limits)
        return await run_episode(
            spec,
            agent=agent,
            make_environment=make_environment,
            limits=limits,
            with_final_prompt=with_final_prompt,
            stop=stop,
        )

    async def close(self) -> None:
        """See `Player.close`."""
        await self._environments.close()

    def _agents_for(
        self,
        entry: MixedEnvironmentConfig,
        responder: Responder,
        description: EnvironmentDescription,
    ) -> Generator[tuple[Phase, Agent]]:
        """The agent of an environment in each phase: one policy, with its parser and memory."""
        renderer = responder.renderer
        begun = renderer.begun_thought if isinstance(renderer, BeginsThought) else ""
        parser = build_parser(
            entry.actions.format,
            require_thinking=entry.actions.require_thinking,
            reply_prefix=begun + entry.prompt.reply_prefix,
        )
        template = prompt_template(entry, description)
        calls_tools = entry.actions.format == ActionFormat.TOOL_CALL
        for phase in PHASES:
            yield (
                phase,
                Agent(
                    policy=responder.policy,
                    renderer=renderer,
                    parser=parser,
                    build_memory=memory_builder(entry, template=template),
                    acting=self._acting,
                    temperature=temperature_of(self._run, phase),
                    top_p=top_p_of(self._run, phase),
                    max_reply_tokens=responder.max_reply_tokens,
                    tools=description.tools if calls_tools else (),
                ),
            )


class _Unasked(EnvironmentPlayer):
    """Plays environments by something else than a policy, with the run's prompts. A `Player`."""

    def __init__(
        self, run: RunConfig, *, descriptions: Mapping[str, EnvironmentDescription]
    ) -> None:
        """See `EnvironmentPlayer`."""
        responder = Responder(policy=NoReplies(), renderer=NoTokens())
        prefixes = {entry.prompt.reply_prefix for entry in run.played_environments}
        super().__init__(
            run,
            responders=dict.fromkeys(prefixes, responder),
            descriptions=descriptions,
            agent_loop=AgentLoop(),
        )


class ExpertPlayer(_Unasked):
    """Plays environments as their own experts would. A `Player`."""

    def __init__(
        self,
        run: RunConfig,
        *,
        descriptions: Mapping[str, EnvironmentDescription],
        noise: float = 0.0,
    ) -> None:
        """See `EnvironmentPlayer`; `noise` is the share of steps in which chance acts instead."""
        super().__init__(run, descriptions=descriptions)
        self._noise = noise

    def _parts(
        self, spec: EpisodeSpec, phase: Phase, limits: EpisodeLimits
    ) -> tuple[Agent, EnvironmentFactory]:
        """The agent, with the expert of the episode's environment in the place of its policy."""
        agent, make_environment = super()._parts(spec, phase, limits)
        expert = ExpertActing(
            make_environment=make_environment,
            parser=agent.parser,
            seconds=limits.step_deadline_seconds,
        )
        noisy = NoisyExpert(
            expert=expert,
            chance=ChanceActing(parser=agent.parser, seed=spec.seed),
            noise=self._noise,
            seed=spec.seed,
        )
        return replace(agent, acting=noisy), expert.make_environment


class ChancePlayer(_Unasked):
    """Plays admissible actions by chance. A `Player`."""

    def _parts(
        self, spec: EpisodeSpec, phase: Phase, limits: EpisodeLimits
    ) -> tuple[Agent, EnvironmentFactory]:
        """The agent, with chance in the place of its policy."""
        agent, make_environment = super()._parts(spec, phase, limits)
        return replace(
            agent, acting=ChanceActing(parser=agent.parser, seed=spec.seed)
        ), make_environment


class NoReplies:
    """Stands where a responder has its policy, and nobody asks it. A `HostedPolicy`."""

    async def reply(
        self, messages: Sequence[Message], sampling: Sampling, *, tools: Sequence[Tool] = ()
    ) -> HostedReply:
        """Nothing.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "an expert or chance replies for the policy, with nothing but actions: a memory that "
            "asks the policy, such as one of summaries, has nobody to ask"
        )
