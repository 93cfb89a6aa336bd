"""Before reinforcement learning: experts play, and the model imitates them, each in its own run."""

import os
import shlex
import sys
from collections.abc import Sequence

import typer

from longhaul_core.types import Split
from longhaul_trainer.cli.arguments import console_of
from longhaul_trainer.cli.demonstrate import played_by_experts
from longhaul_trainer.cli.train import EXIT_CODE_OF_STATUS, fresh_run, read_description
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.imitation import ImitationSource

__all__ = ["train_from_experts"]

NAME_LENGTH = 29
"""Characters of the run's name that go into those of the two before it."""


def train_from_experts(
    config: RunConfig, file: str, further: Sequence[str], *, skip_doctor: bool
) -> None:
    """Demonstrate, imitate, and go on as `trainer train` of the imitation's weights.

    The training takes this process's place, as if its command had been given: Ray and the engine
    of the imitation are gone by then, and its provenance names the command that repeats it alone.

    Args:
        config: The reinforcement learning, with a warm start.
        file: That describes it.
        further: Files over it, and overrides.
        skip_doctor: Start although the machine looks too small.

    Raises:
        ConfigError: Everything that is wrong with the demonstration or the imitation.
        typer.Exit: One of the two did not finish.
    """
    variables = dict(os.environ)  # those of the training; the imitation sets some for itself
    name = config.name[:NAME_LENGTH]
    imitation = read_description(
        file,
        [
            *further,
            *config.warm_start.settings,
            f"name={name}-imitation",
            'imitation.sources=[{run="experts"}]',
        ],
    )
    shown = played_by_experts(
        config.model_copy(update={"name": f"{name}-experts"}),
        split=Split.TRAIN,
        num_tasks=config.warm_start.demonstrations,
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
            highlight=False,
        )
        raise typer.Exit(EXIT_CODE_OF_STATUS[outcome.status])
    if skip_doctor:
        go_on.append("--skip-doctor")
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", "longhaul_trainer", *go_on], variables)
