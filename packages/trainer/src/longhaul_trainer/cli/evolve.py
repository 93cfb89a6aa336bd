"""`trainer evolve`: play, keep what went well, imitate it, and again (AgentEvol)."""

import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from longhaul_core.errors import ConfigError
from longhaul_trainer.cli.arguments import Further, RunFile, SkipDoctor, console_of
from longhaul_trainer.cli.exit_codes import ExitCode
from longhaul_trainer.cli.train import read_description
from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.directory import RunDirectory
from longhaul_trainer.run.ending_signals import ending_signals

if TYPE_CHECKING:
    from longhaul_trainer.play.imitation.evolution import Evolution, Part

FOLDER = "evolutions"
"""Of their folders, beside those of runs."""


def evolve(file: RunFile, further: Further = None, *, skip_doctor: SkipDoctor = False) -> None:
    """Have a model imitate what it played well itself, in rounds, as `evolution` says.

    Each round is a run like those of `trainer imitate`. FILE may be the folder of an evolution that
    was ended: what is finished there is not done again.
    """
    from longhaul_trainer.play.imitation.evolution import Evolution  # imports SQLAlchemy

    folder = Path(file)
    if (folder / "config.toml").is_file():
        if further:
            raise ConfigError(
                f"{file} goes on as it began, and {' '.join(further)} would change it; begin "
                f"another one by `trainer evolve {folder / 'config.toml'} {' '.join(further)}`"
            )
        run = RunDirectory(path=folder.absolute())
        config = run.load_config()
        if Path(config.runs_directory).name != FOLDER:
            raise ConfigError(
                f"{file} is the folder of a run, and no evolution; `trainer resume {file}` goes on "
                "with a training"
            )
    else:
        config = described(file, further)
        run = RunDirectory.create(config)
    with run.locked():
        console_of("stdout").print(f"[bold]evolution[/]  [dim]{run.path}[/]")
        evolve_in(Evolution(run, config), skip_doctor=skip_doctor)


def described(file: str, further: Sequence[str] | None) -> RunConfig:
    """The evolution that files describe, with a folder beside those of runs.

    Raises:
        ConfigError: Everything that is wrong, of its rounds too.
    """
    from longhaul_core.exchange.where import parse_where  # imports SQLAlchemy
    from longhaul_trainer.run.demonstrations import conditions_of

    words = [*(further or []), "imitation.coefficient=0"]
    config = read_description(file, words)
    sources = [] if config.imitation.imitates else ['imitation.sources=[{run="start"}]']
    settings = [*config.warm_start.settings, *config.evolution.settings]
    read_description(file, [*words, *settings, *sources])
    try:
        parse_where(conditions_of(config.evolution.where))
    except ConfigError as error:
        raise ConfigError(f"evolution.where: {error}") from error
    parent = str(Path(config.runs_directory) / FOLDER)
    return config.model_copy(update={"runs_directory": parent}).with_absolute_paths(Path.cwd())


def evolve_in(evolution: "Evolution", *, skip_doctor: bool) -> None:
    """Do what is not done yet, and show how the rounds did.

    Raises:
        typer.Exit: A part did not finish; with its code.
    """
    doctor = ["--skip-doctor"] if skip_doctor else []
    if (start := evolution.before()) is not None:
        finish(evolution, start, doctor if start.words[0] == "evaluate" else [])
    rounds = range(1, evolution.config.evolution.rounds + 1)
    for number in rounds:
        finish(evolution, evolution.round(number), doctor)
    tested = sorted({1, rounds[-1]}) if evolution.config.validation.test_num_tasks else []
    for number in tested:
        finish(evolution, evolution.test(number), doctor)
    show(evolution, rounds, tested)


def finish(evolution: "Evolution", part: "Part", further: Sequence[str]) -> None:
    """Do a part, go on with it, or leave it as it is.

    Raises:
        typer.Exit: It did not finish.
    """
    run = evolution.run_of(part)
    if run is not None and evolution.is_finished(run):
        return
    words = part.words
    if run is not None and part.words[0] == "imitate" and any(run.checkpoints.iterdir()):
        words = ("resume", str(run.path))
    command = [sys.executable, sys.argv[0], *words, *further]
    sys.stdout.flush()
    with subprocess.Popen(command) as child, handed_on(child):
        code = child.wait()
    if code not in (ExitCode.DONE, ExitCode.UNPLAYED):
        again = evolution.folder.path
        console_of("stdout").print(f"[dim]go on[/]   trainer evolve {again}")
        raise typer.Exit(code if code > 0 else ExitCode.RUN_FAILED)


@contextmanager
def handed_on(child: subprocess.Popen[bytes]) -> Generator[None]:
    """Hand signals that end a program on to `child`, whose end is then waited for.

    Ctrl-C reaches both from the terminal, so it is left to the child.
    """
    before = {
        each: signal.signal(each, lambda number, _: child.send_signal(number))
        for each in ending_signals()
    }
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def show(evolution: "Evolution", rounds: Sequence[int], tested: Sequence[int]) -> None:
    """Scores by round: of the training tasks that were played, and of held-out ones."""
    table = Table(title="evolution", title_justify="left")
    for name in ("weights of", "training tasks", "held-out tasks"):
        table.add_column(name, justify="left" if name == "weights of" else "right")
    start = evolution.before()
    if start is not None and start.words[0] == "evaluate":
        table.add_row("start", f"{evolution.score('start').success_rate:.1%}", "")
    for number in rounds:
        parts = [f"round-{number}", *([f"test-{number}"] if number in tested else [])]
        rates = [f"{evolution.score(part).success_rate:.1%}" for part in parts]
        table.add_row(f"round {number}", *rates)
    console_of("stdout").print(table)
