"""`trainer evaluate`: how good are these weights on tasks that no training has seen?"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_trainer.cli.arguments import (
    DEFAULT_RUN,
    Overrides,
    RunsDirectory,
    SkipDoctor,
    console_of,
)
from longhaul_trainer.cli.endpoint import HostedOptions, takes_hosted_model
from longhaul_trainer.cli.episode_runs import beside_runs, played_in_folder
from longhaul_trainer.cli.exit_codes import ExitCode
from longhaul_trainer.cli.train import (
    EXIT_CODE_OF_STATUS,
    check_machine,
    evaluation,
    read_description,
)
from longhaul_trainer.config import HorizonScheduleConfig, RunConfig
from longhaul_trainer.config.load import parse_config
from longhaul_trainer.run.directory import RunDirectory, RunOutcome

if TYPE_CHECKING:
    from longhaul_trainer.gateway.hosted import Endpoint

Weights = Literal["best", "final"]
WeightsOfRun = Annotated[
    Weights | None,
    typer.Option("--weights", help="Of a run; the best if it kept them, else the final."),
]
_NO_MICRO_BATCHES = sys.maxsize


@takes_hosted_model
def evaluate(  # noqa: PLR0913  options of a command
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|FOLDER",
            help="A run, or a model's Hugging Face folder or built-in name. With --endpoint: a run "
            "whose tasks are played, or nothing.",
        ),
    ] = None,
    overrides: Overrides = None,
    *,
    split: Annotated[
        Literal["test", "validation"], typer.Option(help="Which panel of tasks.")
    ] = "test",
    weights: WeightsOfRun = None,
    description: Annotated[
        str, typer.Option("--config", help="For a model folder: the run whose tasks are played.")
    ] = DEFAULT_RUN,
    hosted: HostedOptions,
    max_reply_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Longest reply of a hosted model in an environment; thoughts count.",
            show_default="rollout.max_reply_tokens",
        ),
    ] = None,
    runs_directory: RunsDirectory = Path("runs"),
    skip_doctor: SkipDoctor = False,
) -> None:
    """Play a fixed panel as `validation` says, and store the episodes as a run of their own.

    The model is a run's, a folder's, or one that another server hosts (--endpoint, --model).
    """
    endpoint = hosted.described()
    if endpoint is not None:
        words = [*([target] if target else []), *(overrides or [])]
        if weights is not None:
            raise ConfigError("--weights chooses among a run's weights; --endpoint has none")
        config = described_tasks(words, description=description, runs_directory=runs_directory)
        raise typer.Exit(
            evaluate_hosted(config, endpoint, split=Split(split), max_reply_tokens=max_reply_tokens)
        )
    hosted.refuse("; give its address as --endpoint")
    if max_reply_tokens is not None:
        raise ConfigError(
            "--max-reply-tokens is for a hosted model; give its address as --endpoint"
        )
    if target is None:
        raise ConfigError("what is to be evaluated? Name a run, a model's folder, or --endpoint")
    evaluate_weights(
        target,
        overrides,
        split=Split(split),
        weights=weights,
        description=description,
        runs_directory=runs_directory,
        skip_doctor=skip_doctor,
    )


def evaluate_weights(
    target: str,
    overrides: Sequence[str] | None,
    *,
    split: Split,
    weights: Weights | None,
    description: str,
    runs_directory: Path,
    skip_doctor: bool,
) -> None:
    """Evaluate weights of ours, by the whole training stack.

    Raises:
        typer.Exit: With the code of how it ended.
    """
    config, _ = with_weights(
        target,
        overrides,
        weights=weights,
        description=description,
        runs_directory=runs_directory,
    )
    config = beside_runs(config, folder="evaluations", name=split.value)
    check_machine(config, skip=skip_doctor, trains=False)
    _, outcome = played_in_folder(config, evaluation(split), hosted=False)
    raise typer.Exit(_code_of(outcome))


def with_weights(
    target: str,
    overrides: Sequence[str] | None,
    *,
    weights: Weights | None,
    description: str,
    runs_directory: Path,
) -> tuple[RunConfig, str]:
    """The run as weights of ours play it, and what programs call the model.

    Args:
        target: A run, or a model's Hugging Face folder or built-in name.
        overrides: `dotted.key=value`.
        weights: Which ones of a run; None takes the best if there are any, else the final ones.
        description: For a model: TOML file, or the word `default`.
        runs_directory: Where runs are looked up.

    Raises:
        ConfigError: Everything that is wrong with it.
    """
    path = path_of_weights(target, weights, runs_directory=runs_directory)
    if is_model(target):
        config = to_be_played(read_description(description, None), overrides, source=description)
        return with_model(config, path), Path(target).name
    run = RunDirectory.find(target, runs_directory=runs_directory)
    config = to_be_played(run.load_config(), overrides, source=run.run_id)
    return with_model(config, path), Path(config.model.path).name


def path_of_weights(target: str, weights: Weights | None, *, runs_directory: Path) -> str:
    """Of a run, or of a model's folder or built-in name.

    Raises:
        ConfigError: There are none; see `weights_of`.
    """
    if is_model(target):
        if weights is not None:
            raise ConfigError(f"--weights chooses among a run's weights, and {target} is a model")
        return target
    return str(weights_of(RunDirectory.find(target, runs_directory=runs_directory), weights))


def is_model(target: str) -> bool:
    """Whether it is a model's built-in name or Hugging Face folder, and no run."""
    from longhaul_trainer.models.prepare import BUILT_IN_MODELS

    return target in BUILT_IN_MODELS or (Path(target) / "tokenizer_config.json").is_file()


def described_tasks(words: Sequence[str], *, description: str, runs_directory: Path) -> RunConfig:
    """The run whose tasks a hosted model plays.

    Args:
        words: A run that was trained, or none for `description`; and overrides.
        description: TOML file, or the word `default`.
        runs_directory: Where runs are looked up.

    Raises:
        ConfigError: Everything that is wrong with it.
    """
    trained = [word for word in words[:1] if "=" not in word]
    overrides = words[len(trained) :]
    if trained:
        run = RunDirectory.find(trained[0], runs_directory=runs_directory)
        return to_be_played(run.load_config(), overrides, source=run.run_id)
    return to_be_played(read_description(description, None), overrides, source=description)


def evaluate_hosted(
    config: RunConfig, endpoint: "Endpoint", *, split: Split, max_reply_tokens: int | None
) -> ExitCode:
    """Play the panel with a hosted model, and show its score and what it cost.

    Raises:
        ConfigError: The endpoint does not answer, or what is to be played is not there.
    """
    from longhaul_trainer.play.hosted_evaluation import (
        Spent,
        require_answer,
        run_hosted_evaluation,
    )
    from longhaul_trainer.preflight.description_check import (
        require_player,
        require_tools_to_be_called,
    )

    console = console_of("stdout")
    config = beside_runs(config, folder="evaluations", name=split.value)
    config = for_hosted_model(config, endpoint)
    require_player(config, with_runners=False)
    require_tools_to_be_called(config)
    asyncio.run(require_answer(endpoint, temperature=config.validation.temperature))
    spent = Spent()

    def work(config: RunConfig, run: RunDirectory) -> RunOutcome:
        return run_hosted_evaluation(
            config,
            run,
            split=split,
            endpoint=endpoint,
            max_reply_tokens=max_reply_tokens,
            spent=spent,
            console=console_of("stderr"),
        )

    _, outcome = played_in_folder(config, work)
    console.print(f"[dim]cost[/]    {spent.in_words()}")
    return _code_of(outcome)


def for_hosted_model(config: RunConfig, endpoint: "Endpoint") -> RunConfig:
    """The run as a hosted model plays it; says what is left out of its prompts."""
    from longhaul_trainer.play.hosted_evaluation import for_hosted

    config, had_prefix = for_hosted(config, name=endpoint.model)
    if had_prefix:
        console_of("stderr").print(
            "[yellow]prompt.reply_prefix[/] is left out: a hosted model begins its reply itself, "
            "and is asked for the form of an action in words",
        )
    return config


def _code_of(outcome: RunOutcome) -> ExitCode:
    if outcome.status == "finished" and outcome.after is not None and outcome.after.num_unplayed:
        return ExitCode.UNPLAYED
    return EXIT_CODE_OF_STATUS[outcome.status]


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
    # No learner cuts rows into micro-batches, so the calls may be longer than the run's rows.
    uncut = trained.optimizer.model_copy(update={"micro_batch_tokens": _NO_MICRO_BATCHES})
    fixed = trained.model_copy(
        update={"horizon_schedule": HorizonScheduleConfig(), "optimizer": uncut}
    )
    played = parse_config(fixed.to_toml(), overrides or (), source=source)
    if played.optimizer.micro_batch_tokens != _NO_MICRO_BATCHES:
        return played
    longest_call = played.rollout.max_prompt_tokens + played.rollout.max_reply_tokens
    tokens = max(longest_call, trained.optimizer.micro_batch_tokens)
    optimizer = played.optimizer.model_copy(update={"micro_batch_tokens": tokens})
    return played.model_copy(update={"optimizer": optimizer})


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
