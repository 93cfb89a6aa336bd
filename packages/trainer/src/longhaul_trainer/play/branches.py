"""Continuations of a stored step: what they continue, how they are played, and their value.

The returns are those from the step on, with the run's discount, as a stored return-to-go is; but of
the environment's rewards, while credit reads shaped ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from rich.console import Console
from sqlalchemy.orm import Session

from longhaul_core.actions import build_parser
from longhaul_core.advantages.returns import returns_to_go
from longhaul_core.errors import AllFailedError, ConfigError
from longhaul_core.evaluation import Interval, mean_interval, success_rate_interval
from longhaul_core.rollout import (
    Branch,
    EpisodeOutcome,
    EpisodeResult,
    EpisodeRunner,
    EpisodeSpec,
    episode_seed,
    require_branchable,
)
from longhaul_core.store.addresses import describe_store, store_errors
from longhaul_core.store.queries import get_episode, get_run, recorded_episode
from longhaul_core.store.records import Record, RunKind
from longhaul_core.store.session import read_only_engine
from longhaul_core.types import Trajectory
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.agent_loops import AgentLoop
from longhaul_trainer.gateway.hosted import Endpoint, HostedModel
from longhaul_trainer.play.environments import descriptions_of
from longhaul_trainer.play.episode_run import EpisodeRun, Plan
from longhaul_trainer.play.hosted_evaluation import Spent, hosted_player
from longhaul_trainer.play.imitation.expert import require_experts
from longhaul_trainer.play.players import (
    ChancePlayer,
    EnvironmentPlayer,
    ExpertPlayer,
    Player,
    limits_of,
)
from longhaul_trainer.run.directory import RunDirectory, RunOutcome

if TYPE_CHECKING:
    from longhaul_trainer.play.served_model import ServedModel

__all__ = [
    "Continuations",
    "GoesOn",
    "Heard",
    "StoredStep",
    "continuation",
    "max_retries_of",
    "plan_of",
    "play_by_weights",
    "require_continuable",
    "run_branches",
    "stored_step",
]

GoesOn = Literal["expert", "random", "weights"] | Endpoint
"""Who chooses the actions from the step on; `weights`: the model of the run that goes on."""
Heard = Callable[[EpisodeOutcome], str]
"""Gets each try, and returns what is shown beside the progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStep:
    """A step that is taken up, and what is known of it."""

    branch: Branch
    run_id: str
    run_kind: RunKind
    config_json: str
    """Of its run."""
    return_to_go: float | None
    """What credit read; None where nothing was credited."""
    advantage: float | None


def stored_step(
    store: str, episode_id: str, *, step_index: int, action: str | None = None
) -> StoredStep:
    """Read a step of an episode, and what came before it.

    Args:
        store: Path or URL.
        episode_id: A whole id.
        step_index: From 0.
        action: See `Branch`.

    Raises:
        ConfigError: There is no such episode, or it has no such step.
        StoreError: The episode failed, its texts are gone, or the store cannot be read.
    """
    engine = read_only_engine(store)
    try:
        with store_errors(describe_store(engine.url)), Session(engine) as session:
            recorded = recorded_episode(session, episode_id)
            branch = Branch(
                episode_id=episode_id, recorded=recorded, step_index=step_index, action=action
            )
            episode = get_episode(session, episode_id=episode_id, tokens=False)
            run = get_run(session, run_id=episode.summary.run_id)
    except LookupError as error:
        raise ConfigError(
            f"{error}; an episode's page in the viewer has its id, and `SELECT id FROM episodes` "
            "lists them (`trainer query`)"
        ) from error
    finally:
        engine.dispose()
    step = episode.steps[step_index]
    return StoredStep(
        branch=branch,
        run_id=run.summary.run_id,
        run_kind=cast("RunKind", run.summary.kind),
        config_json=run.config_json,
        return_to_go=step.return_to_go,
        advantage=step.advantage,
    )


def require_continuable(config: RunConfig, branch: Branch, goes_on: GoesOn) -> None:
    """Refuse a step that could not be taken up, before anything is played.

    Raises:
        ConfigError: The run plays programs, or not this environment; its expert or chance cannot go
            on; see `require_branchable`.
    """
    task = branch.recorded.task
    entry = next((one for one in config.played_environments if one.id == task.environment), None)
    if config.agent.is_program or entry is None:
        plays = ", ".join(sorted(one.id for one in config.played_environments))
        raise ConfigError(
            f"{branch.episode_id} is an episode of {task.environment}, and the run that is to go "
            f"on with it plays {'a program on ' if config.agent.is_program else ''}{plays}: name a "
            "file that describes this environment by --config"
        )
    parser = build_parser(
        entry.actions.format,
        require_thinking=entry.actions.require_thinking,
        reply_prefix=entry.prompt.reply_prefix,
    )
    description = descriptions_of(config)[task.environment]
    require_branchable(branch, description=description, parser=parser)
    if goes_on == "expert":
        require_experts(config, only=entry.id)
    if goes_on == "random" and entry.memory.kind == "summary":
        raise ConfigError(
            f'memory.kind = "summary" of {entry.id} asks the policy for summaries, and chance '
            "chooses nothing but actions; go on by a model (--checkpoint, --endpoint)"
        )


@dataclass(slots=True)
class Continuations:
    """What continuations came to, from the step on."""

    step_index: int
    discount: float
    """Per step."""
    returns: list[float] = field(default_factory=list[float])
    """Discounted, from the step on."""
    successes: list[bool] = field(default_factory=list[bool])
    played: set[tuple[str, ...]] = field(default_factory=set[tuple[str, ...]])
    """Their actions: a deterministic policy plays one episode again and again."""
    spent: Spent = field(default_factory=Spent)

    def heard(self, outcome: EpisodeOutcome) -> str:
        """Count one that ended; one that failed has no return. Returns what calls cost so far."""
        if isinstance(outcome, Trajectory):
            rewards = np.array([step.reward for step in outcome.steps[self.step_index :]])
            (returns,) = returns_to_go([rewards], discount=self.discount)
            self.returns.append(float(returns[0]))
            self.successes.append(outcome.success)
            self.played.add(tuple(step.action for step in outcome.steps))
        return self.spent.heard(outcome)

    @property
    def mean_return(self) -> Interval | None:
        """With the t interval; None where all are the same episode."""
        return mean_interval(np.array(self.returns)) if len(self.played) > 1 else None

    @property
    def success_rate(self) -> Interval:
        """With Wilson's interval.

        Raises:
            ValueError: None ended.
        """
        return success_rate_interval(sum(self.successes), len(self.successes))


def run_branches(
    config: RunConfig,
    run: RunDirectory,
    plan: Plan,
    *,
    goes_on: GoesOn,
    heard: Heard,
    console: Console,
) -> RunOutcome:
    """Play continuations side by side, and store them.

    Weights play here that `small_policy.is_small` says so of; `play_by_weights` is for others.

    Args:
        config: With absolute paths; `require_continuable` has nothing against it.
        run: The run's folder, locked by the caller.
        plan: Which; see `plan_of`.
        goes_on: Who chooses the actions.
        heard: Gets each try, and returns what is shown beside the progress.
        console: For the progress.

    Raises:
        AllFailedError: Every one failed, with the newest reason, such as an environment that
            differs from the stored episode.
        StoreError: The store refused.
    """
    played = EpisodeRun(config, run, plan, heard=heard)

    before: list[Record] = []
    if goes_on == "weights":
        from longhaul_trainer.play.small_policy import token_texts  # imports torch

        before.append(token_texts(config, run_id=run.run_id))

    async def play() -> RunOutcome:
        model = HostedModel(goes_on) if isinstance(goes_on, Endpoint) else None
        try:
            return await played.play(
                lambda: _player(config, goes_on, model), console, before=before
            )
        finally:
            if model is not None:
                await model.close()

    return asyncio.run(play())


async def play_by_weights(
    served: ServedModel, config: RunConfig, plan: Plan, *, heard: Heard
) -> None:
    """As `run_branches`, by the engine of the run.

    Raises:
        AllFailedError: Every one failed.
    """
    entries = {entry.id: entry for entry in config.played_environments}
    prefixes = {one.prompt.reply_prefix for one in config.played_environments}
    player = EnvironmentPlayer(
        config,
        responders={prefix: served.responder_after(prefix) for prefix in prefixes},
        descriptions=descriptions_of(config),
        agent_loop=AgentLoop(),
    )
    runner = EpisodeRunner(
        concurrency=config.rollout.concurrent_episodes, max_retries=plan.max_retries
    )
    num_ended = 0

    async def once(spec: EpisodeSpec) -> EpisodeOutcome:
        entry = entries[spec.task.environment]
        return await player.play(
            spec,
            phase=plan.phase,
            training_step=0,
            limits=limits_of(config, entry, horizon=config.rollout.horizon),
            with_final_prompt=False,
            stop=asyncio.Event(),
        )

    async def stored(result: EpisodeResult) -> None:
        nonlocal num_ended
        num_ended += isinstance(result.outcome, Trajectory)
        heard(result.outcome)
        await served.store(plan.record_of(result, run_id=served.run_id))

    try:
        for specs in plan.rounds():
            await asyncio.gather(*(runner.play(spec, once, on_try=stored) for spec in specs))
    finally:
        await player.close()
    if not num_ended:
        raise AllFailedError("every continuation failed")


def plan_of(config: RunConfig, branch: Branch, *, num_continuations: int, goes_on: GoesOn) -> Plan:
    """Continuations of one step with seeds of their own.

    Their seeds follow from the run's, the episode and the step.

    Args:
        config: Of the run that goes on.
        branch: What they continue.
        num_continuations: At least 1.
        goes_on: Who chooses the actions.
    """
    return Plan(
        kind="branch",
        phase="branch",
        specs=[
            continuation(config, branch, sample_index=sample, group_index=0, seeds="branch")
            for sample in range(num_continuations)
        ],
        group_size=num_continuations,
        max_retries=max_retries_of(config, goes_on),
    )


def continuation(
    config: RunConfig, branch: Branch, *, sample_index: int, group_index: int, seeds: str
) -> EpisodeSpec:
    """One continuation of a step.

    Args:
        config: Of the run that goes on.
        branch: What it continues.
        sample_index: Its place among those of the branch.
        group_index: Of the branch in its run.
        seeds: Those of other words are disjoint.
    """
    return EpisodeSpec(
        task=branch.recorded.task,
        seed=episode_seed(
            config.seed,
            training_step=0,
            group_index=0,
            sample_index=sample_index,
            phase=f"{seeds}/{branch.episode_id}/{branch.step_index}",
        ),
        group_index=group_index,
        sample_index=sample_index,
        branch=branch,
    )


def max_retries_of(config: RunConfig, goes_on: GoesOn) -> int:
    """Of a continuation that failed: a model's try is made again, as in training."""
    asks_model = goes_on == "weights" or isinstance(goes_on, Endpoint)
    retries = asks_model and config.rollout.on_failure == "retry"
    return config.rollout.max_retries if retries else 0


def _player(config: RunConfig, goes_on: GoesOn, model: HostedModel | None) -> Player:
    if isinstance(goes_on, Endpoint):
        assert model is not None
        return hosted_player(config, model, goes_on, max_reply_tokens=None)
    if goes_on == "weights":
        from longhaul_trainer.play.small_policy import small_player  # imports torch

        return small_player(config)
    made = ExpertPlayer if goes_on == "expert" else ChancePlayer
    return made(config, descriptions=descriptions_of(config))
