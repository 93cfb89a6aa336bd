"""`trainer demonstrate`: environments' own experts play, and their episodes are stored."""

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from longhaul_core.types import Split
from longhaul_trainer.cli.arguments import Further, RunFile, console_of
from longhaul_trainer.cli.episode_runs import beside_runs, played_in_folder
from longhaul_trainer.cli.exit_codes import ExitCode
from longhaul_trainer.cli.train import EXIT_CODE_OF_STATUS, read_description
from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.directory import RunDirectory, RunOutcome

if TYPE_CHECKING:
    from longhaul_trainer.play.episode_run import Played


def demonstrate(
    file: RunFile,
    further: Further = None,
    *,
    tasks: Annotated[int, typer.Option(min=1, help="Of each environment; each is played once.")],
    split: Annotated[
        Literal["train", "validation", "test"], typer.Option(help="Which tasks.")
    ] = "train",
    noise: Annotated[
        float,
        typer.Option(min=0, max=1, help="Share of the steps in which chance acts instead."),
    ] = 0.0,
    name: Annotated[
        str | None,
        typer.Option(
            help="Of the new run, by which a run that imitates it may name it.",
            show_default="experts",
        ),
    ] = None,
) -> None:
    """Have environments' own experts play, with the prompts and the action form of a run.

    The episodes go into its store, to be imitated (`trainer imitate`), replayed or exported.
    """
    words = list(further or [])
    if name is not None or not any(word.startswith("name=") for word in words):
        words.append(f"name={name or 'experts'}")
    config = read_description(file, words)
    shown = played_by_experts(config, split=Split(split), num_tasks=tasks, noise=noise)
    console_of("stdout").print(
        f"imitate them by `trainer imitate {file} --from {shown.run.run_id}`"
    )
    if shown.outcome.status == "finished" and shown.num_played < shown.num_planned:
        raise typer.Exit(ExitCode.UNPLAYED)
    raise typer.Exit(EXIT_CODE_OF_STATUS[shown.outcome.status])


class Shown(NamedTuple):
    """What experts played."""

    run: RunDirectory
    outcome: RunOutcome
    num_played: int
    """Episodes that ended."""
    num_planned: int


def played_by_experts(config: RunConfig, *, split: Split, num_tasks: int, noise: float) -> Shown:
    """Have experts play some tasks of each environment, and say how it went.

    Args:
        config: The run whose prompts and action form they get.
        split: Which tasks.
        num_tasks: Of each environment.
        noise: Share of the steps in which chance acts instead, in [0, 1].

    Raises:
        ConfigError: There is an environment without an expert, or one that none could answer.
        LonghaulError: See `run_demonstration`.
    """
    from longhaul_trainer.play.imitation.expert import require_experts, run_demonstration
    from longhaul_trainer.preflight.description_check import require_player

    config = beside_runs(config, folder="demonstrations")
    require_player(config)
    require_experts(config)

    played: list[Played] = []
    num_planned = 0

    def work(config: RunConfig, run: RunDirectory) -> RunOutcome:
        nonlocal num_planned
        outcome, results, num_planned = run_demonstration(
            config,
            run,
            split=split,
            num_tasks=num_tasks,
            noise=noise,
            console=console_of("stderr"),
        )
        played.extend(results)
        return outcome

    run, outcome = played_in_folder(config, work)
    solved = sum(each.success for each in played)
    console_of("stdout").print(f"[dim]solved[/]  {solved:,} of {num_planned:,} episodes")
    return Shown(run, outcome, len(played), num_planned)
