"""`trainer evaluate`: how good are these weights on tasks that no training has seen?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_trainer.cli.arguments import (
    DEFAULT_RUN,
    Overrides,
    RunsDirectory,
    SkipDoctor,
)
from longhaul_trainer.cli.train import (
    EXIT_CODE_OF_STATUS,
    carry_out,
    check_machine,
    evaluation,
    read_description,
)
from longhaul_trainer.config import HorizonScheduleConfig, RunConfig
from longhaul_trainer.config.load import parse_config
from longhaul_trainer.run_directory import RunDirectory

Weights = Literal["best", "final"]


def evaluate(
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN|FOLDER", help="A run, or a model's Hugging Face folder or built-in name."
        ),
    ],
    overrides: Overrides = None,
    *,
    split: Annotated[
        Literal["test", "validation"], typer.Option(help="Which panel of tasks.")
    ] = "test",
    weights: Annotated[
        Weights | None, typer.Option(help="Of a run; the best if it kept them, else the final.")
    ] = None,
    description: Annotated[
        str, typer.Option("--config", help="For a model folder: the run whose tasks are played.")
    ] = DEFAULT_RUN,
    runs_directory: RunsDirectory = Path("runs"),
    skip_doctor: SkipDoctor = False,
) -> None:
    """Play a fixed panel as [validation] says, and store the episodes as a run of their own."""
    from longhaul_trainer.models.prepare import BUILT_IN_MODELS

    if target in BUILT_IN_MODELS or (Path(target) / "tokenizer_config.json").is_file():
        if weights is not None:
            raise ConfigError(f"--weights chooses among a run's weights, and {target} is a model")
        config = to_be_played(read_description(description, None), overrides, source=description)
        config = with_model(config, target)
    else:
        run = RunDirectory.find(target, runs_directory=runs_directory)
        config = to_be_played(run.load_config(), overrides, source=run.run_id)
        config = with_model(config, str(weights_of(run, weights)))
    # Its one score is in the store; trackers show curves.
    # In a folder beside the runs': an evaluation is no run that `resume` could go on with.
    folder = Path(config.runs_directory) / "evaluations"
    config = config.model_copy(
        update={"name": split, "runs_directory": str(folder), "trackers": ()}
    )
    config = config.with_absolute_paths(Path.cwd())
    check_machine(config, skip=skip_doctor, trains=False)
    run = RunDirectory.create(config)
    with run.locked():
        outcome = carry_out(config, run, evaluation(Split(split)))
    raise typer.Exit(EXIT_CODE_OF_STATUS[outcome.status])


def to_be_played(trained: RunConfig, overrides: Sequence[str] | None, *, source: str) -> RunConfig:
    """How a run's tasks are played: as in training, at `rollout.horizon` from the start.

    Args:
        trained: The run. How its horizon grew is of no account here, so that an override of
            `rollout.horizon` contradicts nothing.
        overrides: `dotted.key=value`.
        source: Where the run is described, for messages.

    Raises:
        ConfigError: Everything that is wrong with the overrides.
    """
    fixed = trained.model_copy(update={"horizon_schedule": HorizonScheduleConfig()})
    return parse_config(fixed.to_toml(), overrides or (), source=source)


def with_model(config: RunConfig, path: str) -> RunConfig:
    """The same run with another model."""
    return config.model_copy(update={"model": config.model.model_copy(update={"path": path})})


def weights_of(run: RunDirectory, wanted: Weights | None) -> Path:
    """Hugging Face folder of a run's weights.

    Args:
        run: A run that has ended, or at least kept a checkpoint.
        wanted: None takes the best if there are any, else the final ones.

    Raises:
        ConfigError: If the run has not kept them.
    """
    folders = {"best": run.best_model, "final": run.model}
    candidates = ["best", "final"] if wanted is None else [wanted]
    for name in candidates:
        if folders[name].is_dir():
            return folders[name]
    raise ConfigError(
        f"run {run.run_id} holds no {' or '.join(candidates)} weights; it keeps them when it ends"
    )
