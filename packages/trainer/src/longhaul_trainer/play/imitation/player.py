"""Plays stored episodes again, each by the memory, the prompts and the tokens of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple, Protocol, cast

from sqlalchemy.orm import Session

from longhaul_core.components import is_own
from longhaul_core.errors import EnvironmentFailure, EpisodeError, attributed_to
from longhaul_core.policy import HostedPolicy, Policy, Renderer
from longhaul_core.rollout import (
    EpisodeLimits,
    EpisodeOutcome,
    EpisodeSession,
    EpisodeSpec,
    RecordedEnvironment,
    RecordedReplies,
    Responder,
    replies_of,
    run_episode,
)
from longhaul_core.rollout.agent import Agent
from longhaul_core.store.queries import recorded_episode
from longhaul_core.store.records import Phase
from longhaul_core.store.session import read_only_engine
from longhaul_core.types import Call, Trajectory
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.agent_loops import AgentLoop
from longhaul_trainer.models import prepare_model
from longhaul_trainer.play.environments import descriptions_of
from longhaul_trainer.play.players import EnvironmentPlayer, NoReplies
from longhaul_trainer.rendering.renderer import load_renderer
from longhaul_trainer.run.context import RunContext
from longhaul_trainer.run.demonstrations import Demonstration

__all__ = [
    "DemonstrationPlayer",
    "Repeated",
    "WritesReplies",
    "asks_more",
    "compared",
    "played_again",
    "player_with",
    "unasked_player",
]


class WritesReplies(Protocol):
    """A renderer that knows how its model would have written a reply."""

    def reply_tokens(self, call: Call) -> tuple[int, ...]:
        """See `ChatTemplateRenderer.reply_tokens`."""
        ...


class DemonstrationPlayer:
    """Plays demonstrations where they are trained, and environments elsewhere. A `Player`."""

    def __init__(self, context: RunContext, environments: EnvironmentPlayer) -> None:
        """Read nothing yet.

        Args:
            context: Of a run with demonstrations.
            environments: Plays all other episodes, and has the run's agents.
        """
        self._context = context
        self._run = context.config
        self._environments = environments
        self._engine = read_only_engine(context.config.store)

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
        """See `Player.play`. The spec's place says which demonstration is played.

        It is one of the task's, or of those beside the group.
        """
        demonstration = self._demonstration(spec, phase, training_step)
        if demonstration is None:
            return await self._environments.play(
                spec,
                phase=phase,
                training_step=training_step,
                limits=limits,
                with_final_prompt=with_final_prompt,
                stop=stop,
            )
        try:
            with attributed_to(EnvironmentFailure, f"reading {demonstration.episode_id}"):
                recorded = await asyncio.to_thread(self._read, demonstration)
        except EpisodeError as failure:
            return EpisodeSession(spec, limits=limits).failed(failure)
        outcome = await played_again(
            spec,
            recorded,
            agent=self._environments.agent(spec.task.environment, "train"),
            imported=demonstration.imported,
            asks_more=asks_more(self._run, spec.task.environment),
            policy_version=self._run.policy_version(max(0, training_step - 1)),
            limits=limits,
        )
        if isinstance(outcome, Trajectory):
            return _weighted(outcome, demonstration.weight)
        return outcome

    def _demonstration(
        self, spec: EpisodeSpec, phase: Phase, training_step: int
    ) -> Demonstration | None:
        """What is played again; None where an environment is played."""
        if phase == "demonstration":
            return self._context.demonstration(
                training_step, group_index=spec.group_index, place=spec.sample_index
            )[1]
        demonstrations = self._context.demonstrations
        if demonstrations is None or phase != "train" or not self._run.imitation.imitates:
            return None
        return demonstrations.of_task[spec.task.key][spec.sample_index]

    async def close(self) -> None:
        """See `Player.close`."""
        self._engine.dispose()
        await self._environments.close()

    def _read(self, demonstration: Demonstration) -> Trajectory:
        with Session(self._engine) as session:
            return recorded_episode(session, demonstration.episode_id)


async def played_again(
    spec: EpisodeSpec,
    recorded: Trajectory,
    *,
    agent: Agent,
    imported: bool,
    asks_more: bool,
    policy_version: int,
    limits: EpisodeLimits,
) -> EpisodeOutcome:
    """A recorded episode, as the run's loop plays it with the recorded replies.

    Args:
        spec: Names the episode.
        recorded: What was seen and replied.
        agent: The run's; its renderer is one that `WritesReplies`.
        imported: See `Demonstration`.
        asks_more: See `asks_more`.
        policy_version: Of the weights that imitate it.
        limits: The run's.
    """
    try:
        replies = replies_of(recorded, agent.parser, purposes=asks_more)
    except EpisodeError as failure:
        return EpisodeSession(spec, limits=limits).failed(failure)
    policy = RecordedReplies(
        replies,
        tokens_of=cast("WritesReplies", agent.renderer).reply_tokens,
        policy_version=policy_version,
    )
    return await run_episode(
        spec,
        agent=replace(agent, policy=policy),
        make_environment=lambda task: RecordedEnvironment(recorded, actions_are_replies=imported),
        limits=limits,
    )


class Repeated(NamedTuple):
    """A call of a recorded episode that was played again."""

    step_index: int
    recorded: Call
    """Without messages where nothing was asked, as of a person."""
    again: Call

    @property
    def recomposed(self) -> bool:
        """Whether its messages are others than those that were recorded."""
        return bool(self.recorded.messages) and self.recorded.messages != self.again.messages


def compared(
    recorded: Trajectory, again: Trajectory, *, agent: Agent, asks_more: bool
) -> Iterator[Repeated]:
    """The calls of a recorded episode with those that repeat them, as far as it was played again.

    Args:
        recorded: The episode.
        again: As `played_again` gave it.
        agent: That it was played by.
        asks_more: See `asks_more`.
    """
    asked = replies_of(recorded, agent.parser, purposes=asks_more)
    calls = ((step.index, call) for step in again.steps for call in step.calls)
    for before, (step_index, now) in zip(asked, calls, strict=False):
        yield Repeated(step_index, before, now)


def unasked_player(run: RunConfig) -> EnvironmentPlayer:
    """The run's agents, with its renderers and nobody who replies: they play what was recorded.

    Raises:
        ConfigError: Its model, or an environment as it describes it, cannot be had.
    """
    return player_with(run, lambda _: NoReplies())


def player_with(
    run: RunConfig, policy_of: Callable[[Renderer], Policy | HostedPolicy]
) -> EnvironmentPlayer:
    """The run's agents with its model's renderers, and policies that this process has.

    Args:
        run: The run.
        policy_of: Makes the policy whose replies a renderer reads.

    Raises:
        ConfigError: Its model, or an environment as it describes it, cannot be had.
    """
    model = prepare_model(run.model.path)
    prefixes = {entry.prompt.reply_prefix for entry in run.played_environments}

    def responder(prefix: str) -> Responder:
        renderer = load_renderer(
            model,
            reply_prefix=prefix,
            template=run.model.chat_template,
            variables=run.model.chat_template_kwargs,
        )
        return Responder(
            policy=policy_of(renderer),
            renderer=renderer,
            max_reply_tokens=run.rollout.max_reply_tokens,
        )

    return EnvironmentPlayer(
        run,
        responders={prefix: responder(prefix) for prefix in prefixes},
        descriptions=descriptions_of(run),
        agent_loop=AgentLoop(),
    )


def asks_more(run: RunConfig, environment_id: str) -> bool:
    """Whether the run's agent or memory asks the policy for more than actions."""
    kinds = {entry.id: entry.memory.kind for entry in run.played_environments}
    kind = kinds[environment_id]
    return run.agent.kind != "single_call" or kind == "summary" or is_own(kind)


def _weighted(episode: Trajectory, weight: float) -> Trajectory:
    if weight == 1:
        return episode
    steps = tuple(
        replace(
            step,
            calls=tuple(
                replace(call, credit_share=call.credit_share * weight) for call in step.calls
            ),
        )
        for step in episode.steps
    )
    return replace(episode, steps=steps)
