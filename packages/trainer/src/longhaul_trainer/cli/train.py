"""`trainer train` and `trainer resume`: from a checked description to a run that ends."""

import itertools
import logging
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from longhaul_core.errors import ConfigError
from longhaul_core.redaction import redacted_command
from longhaul_core.types import Split
from longhaul_trainer.cli.arguments import (
    DEFAULT_RUN,
    Further,
    RunFile,
    RunReference,
    RunsDirectory,
    SkipDoctor,
    Store,
    console_of,
)
from longhaul_trainer.cli.exit_codes import ExitCode
from longhaul_trainer.cli.run_log import RunLog
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.load import PACKAGED, Description, read_default, read_file
from longhaul_trainer.models import hash_model, prepare_model
from longhaul_trainer.preflight.description_check import require_named
from longhaul_trainer.preflight.resources import needs_here
from longhaul_trainer.preflight.resources.words import needs_in_a_line
from longhaul_trainer.run.directory import PanelScore, RunDirectory, RunOutcome
from longhaul_trainer.run.full_disk import FullDisksExplained
from longhaul_trainer.run.provenance import collect_provenance

if TYPE_CHECKING:
    from longhaul_trainer.verl.serving import Serve

logger = logging.getLogger(__name__)

Work = Callable[[RunConfig, RunDirectory], RunOutcome]
"""What is done in a run's folder."""

EXIT_CODE_OF_STATUS = {
    "finished": ExitCode.DONE,
    "failed": ExitCode.RUN_FAILED,
    "cancelled": ExitCode.CANCELLED,
}


def training(*, resume: bool) -> Work:
    """Train, from the start or from the last checkpoint."""

    def work(config: RunConfig, run: RunDirectory) -> RunOutcome:
        from longhaul_trainer.verl.launch import run_training  # the training stack, only now

        return run_training(config, run, resume=resume)

    return work


def evaluation(split: Split) -> Work:
    """Play the panel of a split."""

    def work(config: RunConfig, run: RunDirectory) -> RunOutcome:
        from longhaul_trainer.verl.launch import run_evaluation  # the training stack, only now

        return run_evaluation(config, run, split=split)

    return work


def serving(serve: "Serve") -> Work:
    """Serve the model for as long as `serve` runs."""

    def work(config: RunConfig, run: RunDirectory) -> RunOutcome:
        from longhaul_trainer.verl.launch import run_served  # the training stack, only now

        return run_served(config, run, serve=serve)

    return work


def read_description(file: str, further: list[str] | None) -> RunConfig:
    """The run that a file, or the word `default`, files over it and overrides describe.

    Args:
        file: TOML file, `@` and the name of a packaged one, or the word.
        further: TOML files, and then overrides.

    Raises:
        ConfigError: Everything that is wrong with it.
    """
    description = describe(file, further)
    config = description.run()
    for remark in description.remarks:
        console_of("stderr").print(f"[yellow]note:[/] {escape(remark)}")
    return config


def describe(file: str, further: list[str] | None) -> Description:
    """As `read_description`, with what is wrong in a list.

    Raises:
        ConfigError: If a file cannot be read, or does not stand in its place.
    """
    words = further or []
    layers = list(itertools.takewhile(_is_file, words))
    overrides = words[len(layers) :]
    late = next((word for word in overrides if _is_file(word)), None)
    if late is not None:
        raise ConfigError(f"{late}: files come before settings, which win over all of them")
    paths = [Path(layer) for layer in layers]
    if file == DEFAULT_RUN and not Path(file).exists():
        return read_default(overrides, layers=paths)
    if "=" in file and not Path(file).exists():
        raise ConfigError(
            f"{file}: settings come after the run's file; the default run's is called "
            f"`{DEFAULT_RUN}`: `{DEFAULT_RUN} {file}`"
        )
    return read_file(Path(file), overrides, layers=paths)


def _is_file(word: str) -> bool:
    named = word.startswith(PACKAGED) or word.endswith(".toml")
    return Path(word).exists() or ("=" not in word and named)


def train(
    file: RunFile,
    further: Further = None,
    *,
    skip_doctor: SkipDoctor = False,
) -> None:
    """Train as files say, a later one winning. Overrides win over them: rollout.horizon=40."""
    config = read_description(file, further)
    if config.imitation.imitates:
        raise ConfigError(
            f"{file} has imitation.sources: `trainer imitate {file}` imitates them; reinforcement "
            "learning begins with imitation.sources=[], or with an imitation.coefficient above 0, "
            "which adds their loss to its own"
        )
    if config.warm_start.demonstrations:
        from longhaul_trainer.cli.warm_start import train_from_experts  # imports this module

        train_from_experts(config, file, further or [], skip_doctor=skip_doctor)
    start_run(config, skip_doctor=skip_doctor)


def resume(
    reference: RunReference,
    *,
    store: Store = None,
    runs_directory: RunsDirectory = Path("runs"),
    skip_doctor: SkipDoctor = False,
) -> None:
    """Go on with a run that was cancelled or killed, from its last checkpoint."""
    if store is None or (Path(reference) / "config.toml").is_file():
        run = RunDirectory.find(reference, runs_directory=runs_directory)
    else:
        from longhaul_trainer.cli.stored_runs import folder_in_store  # imports SQLAlchemy

        run = folder_in_store(store, reference)
    with run.locked():
        config = run.load_config()
        check_machine(config, skip=skip_doctor)
        outcome = carry_out(config, run, training(resume=True), trains=True)
    say_goodbye(outcome, run)


def start_run(config: RunConfig, *, skip_doctor: bool) -> None:
    """Check the machine, make a fresh folder, and train.

    Raises:
        typer.Exit: With the code of how the run ended.
    """
    say_goodbye(*fresh_run(config, skip_doctor=skip_doctor))


def fresh_run(config: RunConfig, *, skip_doctor: bool) -> tuple[RunOutcome, RunDirectory]:
    """As `start_run`, and how it ended."""
    config = config.with_absolute_paths(Path.cwd())
    if config.imitation.imitates and config.imitation.new_model_layers:
        from longhaul_trainer.play.imitation.new_model import make_model_where_there_is_none

        made = make_model_where_there_is_none(config)
        done = "made[/]    " if made else "there[/]   "
        console_of("stdout").print(f"[dim]{done}{config.model.path}")
    check_machine(config, skip=skip_doctor)
    imitable = None
    if config.imitation.sources:
        from longhaul_trainer.play.imitation.check import require_imitable  # imports SQLAlchemy

        imitable = require_imitable(config, console=console_of("stderr"))
        console_of("stdout").print(f"[dim]imitates[/] {imitable.in_words()}")
    run = RunDirectory.create(config)
    with run.locked():
        if imitable is not None:
            imitable.demonstrations.write(run.path)
        return carry_out(config, run, training(resume=False), trains=True), run


def say_goodbye(outcome: RunOutcome, run: RunDirectory) -> None:
    """Say how a training that has not finished goes on, and exit with its code.

    Raises:
        typer.Exit: Always.
    """
    if outcome.status != "finished" and run.load_config().checkpoint.optimizer:
        console_of("stdout").print(f"[dim]go on[/]   trainer resume {run.path}")
    raise typer.Exit(EXIT_CODE_OF_STATUS[outcome.status])


def check_machine(config: RunConfig, *, skip: bool, trains: bool = True) -> None:
    """Show what a training takes, and the doctor's warnings; names are looked up in any case.

    Args:
        config: The run.
        skip: Ask no doctor.
        trains: Whether it is trained, and not its model evaluated alone.

    Raises:
        LonghaulError: If the machine cannot carry the run, unless that is to be skipped.
    """
    from longhaul_trainer.preflight.doctor import require_ready

    require_named(config, trains=trains)
    if trains:
        line = needs_in_a_line(needs_here(config))
        console_of("stdout").print(f"[dim]takes[/]   {line}")
    if skip:
        return
    for warning in require_ready(config, trains=trains):
        console_of("stderr").print(
            f"[yellow]{warning.name}:[/] {escape(warning.found)}; {escape(warning.advice)}",
        )


def carry_out(
    config: RunConfig,
    run: RunDirectory,
    work: Work,
    *,
    trains: bool = False,
    hosted: bool = False,
) -> RunOutcome:
    """Do the work in a folder that this process holds, and show how it ended.

    Args:
        config: The run.
        run: Its folder.
        work: What is done.
        trains: It is a training, whose training steps are counted.
        hosted: The model is another server's, and has no weights here.
    """
    console = console_of("stdout")
    console.print(f"[bold]{run.run_id}[/]  [dim]{run.path}[/]")
    with RunLog(run), FullDisksExplained(run, config):
        logger.info("%s: %s", run.run_id, shlex.join(redacted_command(sys.argv)))
        provenance = collect_provenance(
            model_sha256=None if hosted else hash_model(prepare_model(config.model.path)),
            command=sys.argv,
        )
        run.write_provenance(provenance.to_json())
        outcome = work(config, run)
        logger.info("%s", outcome.status)
    show_outcome(outcome, run, config, console, trains=trains)
    return outcome


def show_outcome(
    outcome: RunOutcome,
    run: RunDirectory,
    config: RunConfig,
    console: Console,
    *,
    trains: bool,
) -> None:
    """The small table that a run ends with: scores before and after, what is stored, where."""
    scores = {"before": outcome.before, "after": outcome.after}
    shown = {when: score for when, score in scores.items() if score is not None}
    table = Table(title=f"{outcome.run_id}: {outcome.status}", title_justify="left")
    table.add_column("fixed panel")
    for when in shown:
        table.add_column(when, justify="right")
    table.add_row("mean return", *(f"{score.mean_return:.3f}" for score in shown.values()))
    plays = "tasks" if config.validation.samples_per_task == 1 else "episodes"
    table.add_row("success", *(_success(score, plays) for score in shown.values()))
    if any(score.num_unplayed for score in shown.values()):
        table.add_row(
            "if the rest were lost or won",
            *(
                f"{score.success_if_lost:.1%} to {score.success_if_won:.1%}"
                for score in shown.values()
            ),
        )
    table.add_row(
        "95 % of its tasks",
        *(f"{score.success_low:.1%} to {score.success_high:.1%}" for score in shown.values()),
    )
    table.add_row("episodes", *(f"{score.num_episodes}" for score in shown.values()))
    if shown:
        console.print(table)
    if outcome.message:
        console.print(outcome.message, markup=False)
    minutes, seconds = divmod(round(outcome.duration_seconds), 60)
    done = f"{_counted(outcome.num_training_steps, 'training step')} in " if trains else ""
    num_failed = outcome.num_failed_episodes
    failed = f", and {_counted(num_failed, 'episode')} that failed" if num_failed else ""
    console.print(
        f"{done}{minutes} min {seconds} s; {_counted(outcome.num_episodes, 'episode')} and "
        f"{_counted(outcome.num_steps, 'step')} stored{failed}",
    )
    console.print(f"[dim]folder[/]  {run.path}")
    console.print(f"[dim]store[/]   {config.store}")
    console.print(f"[dim]look[/]    uv run viewer --store {config.store}")


def _success(score: PanelScore, plays: str) -> str:
    rate = f"{score.success_rate:.1%}"
    if not score.num_unplayed:
        return rate
    return f"{rate} of {score.num_episodes:,} of {score.num_planned:,} {plays}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
