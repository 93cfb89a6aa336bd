"""Before reinforcement learning: experts play, and the model imitates them, each in its own run."""

import os
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

import typer

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_trainer.cli.arguments import console_of
from longhaul_trainer.cli.demonstrate import played_by_experts
from longhaul_trainer.cli.train import EXIT_CODE_OF_STATUS, describe, fresh_run
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.imitation import ImitationSource
from longhaul_trainer.config.load import Description, problem_list
from longhaul_trainer.preflight.description_check import problems_of

__all__ = ["describe_imitation", "train_from_experts"]

NAME_LENGTH = 29
"""Characters kept of the run's name, so that `-imitation` fits into 40."""


def train_from_experts(
    config: RunConfig, file: str, further: Sequence[str], *, skip_doctor: bool
) -> NoReturn:
    """Demonstrate, imitate, and go on as `trainer train` of the imitation's weights.

    The training takes this process's place, as if its command had been given: Ray and the engine
    of the imitation are gone by then, and its provenance names the command that repeats it alone.

    Args:
        config: The reinforcement learning, with a warm start.
        file: That describes it.
        further: Files over it, and overrides.
        skip_doctor: Start although the machine looks too small.

    Raises:
        ConfigError: Everything that is wrong with any of the three, before experts play.
        typer.Exit: One of the two did not finish.
    """
    variables = dict(os.environ)  # those of the training; the imitation sets some for itself
    name = config.name[:NAME_LENGTH]
    imitation = describe_imitation(file, further, config).run()
    require_described(config, imitation)
    shown = played_by_experts(
        config.model_copy(update={"name": f"{name}-experts"}),
        split=Split.TRAIN,
        num_tasks=config.warm_start.demonstrations,
        noise=config.warm_start.noise,
    )
    if shown.outcome.status != "finished":
        raise typer.Exit(EXIT_CODE_OF_STATUS[shown.outcome.status])
    sources = (ImitationSource(run=shown.run.run_id),)
    imitation = imitation.model_copy(
        update={"imitation": imitation.imitation.model_copy(update={"sources": sources})}
    )
    outcome, run = fresh_run(imitation, skip_doctor=skip_doctor)
    go_on = ["train", file, *further, "warm_start.demonstrations=0", f"model.path={run.model}"]
    if outcome.status != "finished":
        console_of("stdout").print(
            f"[dim]go on[/]   trainer resume {run.path}, and then trainer {shlex.join(go_on)}",
        )
        raise typer.Exit(EXIT_CODE_OF_STATUS[outcome.status])
    if skip_doctor:
        go_on.append("--skip-doctor")
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, sys.argv[0], *go_on], variables)


def describe_imitation(file: str, further: Sequence[str], config: RunConfig) -> Description:
    """What imitates the experts of a run with a warm start; which episodes is known later."""
    words = [*further, *config.warm_start.settings, f"name={config.name[:NAME_LENGTH]}-imitation"]
    words += ["imitation.coefficient=0", 'imitation.sources=[{run="experts"}]']
    return describe(file, words)


def require_described(*runs: RunConfig) -> None:
    """Refuse runs that name something that is not there, but for what is made before them.

    Raises:
        ConfigError: Everything that is wrong.
    """
    problems = [
        problem
        for run in runs  # experts have yet to play what is imitated
        for problem in problems_of(run, deeply=not run.imitation.imitates, here=False)
    ]
    if problems:
        raise ConfigError(problem_list("the warm start", [*dict.fromkeys(problems)]))
