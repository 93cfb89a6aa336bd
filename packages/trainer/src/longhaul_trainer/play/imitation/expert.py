"""Episodes that environments' own experts play with a run's prompts, to be imitated."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from rich.console import Console

from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymSource
from longhaul_core.rollout import EpisodeSpec, episode_seed
from longhaul_core.store.records import Phase
from longhaul_core.tasks import ShuffledStream
from longhaul_core.types import Split, Task
from longhaul_trainer.config import MixedEnvironmentConfig, RunConfig
from longhaul_trainer.play.environments import descriptions_of, source_of
from longhaul_trainer.play.episode_run import EpisodeRun, Plan, Played
from longhaul_trainer.play.players import ExpertPlayer
from longhaul_trainer.run.directory import RunDirectory, RunOutcome

__all__ = ["require_experts", "run_demonstration"]

PHASES: Mapping[Split, Phase] = {
    Split.TRAIN: "train",
    Split.VALIDATION: "validation",
    Split.TEST: "test",
}


def require_experts(config: RunConfig, *, only: str | None = None) -> None:
    """Refuse a run whose environments have no expert, or whose prompts none could answer.

    Args:
        config: The run.
        only: The environment that is asked; None asks all of them.

    Raises:
        ConfigError: Everything that is in the way.
    """
    problems = [
        problem
        for entry in config.played_environments
        if only in (None, entry.id)
        for problem in _problems(entry)
    ]
    if config.agent.kind != "single_call":
        problems.append(
            f'agent.kind = "{config.agent.kind}": an expert chooses actions, and plays by '
            'agent.kind = "single_call" alone'
        )
    if problems:
        raise ConfigError("\n".join(problems))


def _problems(entry: MixedEnvironmentConfig) -> list[str]:
    problems: list[str] = []
    source = source_of(entry)
    made_by = source.spec.load() if isinstance(source, GymSource) else None
    # What a function makes is asked when it plays.
    if made_by is None or (isinstance(made_by, type) and not hasattr(made_by, "expert_action")):
        where = "it defines no expert_action" if made_by else "it is played by its own protocol"
        problems.append(
            f"{entry.id} has no expert that could be asked: {where}; a hosted model may "
            "demonstrate (`trainer evaluate --endpoint`), or a person (the viewer's Play page)"
        )
    if entry.memory.kind == "summary":
        problems.append(
            f'memory.kind = "summary" of {entry.id} asks the policy for summaries, and an expert '
            'says nothing but actions; demonstrate with memory.kind = "window", and imitate the '
            'episodes with imitation.prompts = "recomposed" under another memory that asks nothing'
        )
    if entry.actions.require_thinking:
        problems.append(
            f"actions.require_thinking = true of {entry.id}: an expert has no thoughts to write; "
            "set it to false"
        )
    return problems


def run_demonstration(
    config: RunConfig,
    run: RunDirectory,
    *,
    split: Split,
    num_tasks: int,
    noise: float = 0.0,
    console: Console,
) -> tuple[RunOutcome, list[Played], int]:
    """Have experts play some tasks of a split once each, and store the episodes.

    Args:
        config: With absolute paths; `require_experts` has nothing against it.
        run: The run's folder, locked by the caller.
        split: Which tasks.
        num_tasks: Of each environment; in the order in which a training with the same seed meets
            them. All, where there are fewer.
        noise: Share of the steps in which chance acts instead, in [0, 1].
        console: For the progress.

    Returns:
        How it ended, the episodes that did, and how many were to be played.

    Raises:
        ConfigError: An environment cannot be had as the run describes it.
        AllFailedError: Every episode failed.
        StoreError: The store refused.
    """
    tasks = [
        task
        for entry in config.played_environments
        for task in _some(source_of(entry).tasks(split), num_tasks, seed=config.seed)
    ]
    plan = Plan(
        kind="demonstrate",
        phase=PHASES[split],
        specs=[
            EpisodeSpec(
                task=task,
                seed=episode_seed(
                    config.seed, training_step=0, group_index=place, sample_index=0, phase="expert"
                ),
                group_index=place,
            )
            for place, task in enumerate(tasks)
        ],
        group_size=1,
        max_retries=0,  # an expert that gives up would give up again
    )
    played = EpisodeRun(config, run, plan)
    outcome = asyncio.run(
        played.play(
            lambda: ExpertPlayer(config, descriptions=descriptions_of(config), noise=noise), console
        )
    )
    return outcome, played.results, len(tasks)


def _some(tasks: Sequence[Task], num_tasks: int, *, seed: int) -> list[Task]:
    return ShuffledStream(tasks, seed=seed).next(min(num_tasks, len(tasks)))
