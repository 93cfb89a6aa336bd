"""`trainer branch`: how good is a stored step, or another action in its place?"""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from longhaul_core.errors import ConfigError
from longhaul_trainer.cli.arguments import (
    Checkpoint,
    Overrides,
    RunsDirectory,
    SkipDoctor,
    Store,
    console_of,
)
from longhaul_trainer.cli.endpoint import HostedOptions, takes_hosted_model
from longhaul_trainer.cli.episode_runs import beside_runs, played_in_folder
from longhaul_trainer.cli.evaluate import (
    WeightsOfRun,
    for_hosted_model,
    path_of_weights,
    to_be_played,
    with_model,
)
from longhaul_trainer.cli.exit_codes import ExitCode
from longhaul_trainer.cli.runs import DEFAULT_STORE
from longhaul_trainer.cli.train import EXIT_CODE_OF_STATUS, check_machine, read_description
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.load import stored_config
from longhaul_trainer.run.directory import RunDirectory, RunOutcome

if TYPE_CHECKING:
    from longhaul_core.store.records import RunKind
    from longhaul_trainer.play.branches import Continuations, GoesOn, Heard, StoredStep
    from longhaul_trainer.play.episode_run import Plan
    from longhaul_trainer.play.served_model import ServedModel

PolicyOption = Annotated[
    Literal["expert", "random"] | None,
    typer.Option(
        "--policy",
        help="Who goes on: the environment's expert, or admissible actions by chance.",
    ),
]
Description = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The run whose environment, prompts and memory go on.",
        show_default="the episode's own",
    ),
]


@takes_hosted_model
def branch(  # noqa: PLR0913  options of a command
    episode: Annotated[str, typer.Argument(metavar="EPISODE", help="Id of a stored episode.")],
    overrides: Overrides = None,
    *,
    step: Annotated[int, typer.Option(min=0, help="At which it is taken up, from 0.")],
    continuations: Annotated[
        int,
        typer.Option(
            min=1,
            help="How often it goes on, each time with a seed of its own. The same command draws "
            "the same ones again; seed=1 draws others.",
        ),
    ] = 16,
    action: Annotated[
        str | None,
        typer.Option(
            help="What is done at the step, in the environment's words.",
            show_default="whoever goes on chooses",
        ),
    ] = None,
    policy: PolicyOption = None,
    checkpoint: Checkpoint = None,
    weights: WeightsOfRun = None,
    store: Store = None,
    description: Description = None,
    hosted: HostedOptions,
    runs_directory: RunsDirectory = Path("runs"),
    skip_doctor: SkipDoctor = False,
) -> None:
    """Take up a stored episode at a step, play on from there, and show what it was worth.

    The stored actions before the step are played again, and what comes back must equal what was
    stored. The continuations are a run of their own in the store, in no score and no loss.
    """
    goes_on = who_goes_on(policy, checkpoint, weights, hosted)
    from longhaul_trainer.play.branches import stored_step  # imports SQLAlchemy

    store = store or DEFAULT_STORE
    stored = stored_step(store, episode, step_index=step, action=action)
    config = continuing_config(
        stored.config_json,
        overrides,
        run_id=stored.run_id,
        run_kind=stored.run_kind,
        store=store,
        description=description,
        name="branch",
    )
    if checkpoint is not None:
        path = path_of_weights(checkpoint, weights, runs_directory=runs_directory)
        config = with_model(config, path)
        check_machine(config, skip=skip_doctor, trains=False)
    raise typer.Exit(continue_stored(stored, config, goes_on, num_continuations=continuations))


def who_goes_on(
    policy: Literal["expert", "random"] | None,
    checkpoint: str | None,
    weights: str | None,
    hosted: HostedOptions,
) -> "GoesOn":
    """Who chooses the actions, by the options of a command.

    Raises:
        ConfigError: None is named, or more than one.
    """
    if [policy, checkpoint, hosted.endpoint].count(None) != 2:
        raise ConfigError(
            "who goes on? Give one of --policy expert, --policy random, --checkpoint and --endpoint"
        )
    if weights is not None and checkpoint is None:
        raise ConfigError("--weights chooses among a run's weights; name it by --checkpoint")
    by_name = policy or ("weights" if checkpoint is not None else None)
    goes_on: GoesOn | None = by_name or hosted.described()
    assert goes_on is not None
    return goes_on


def continue_stored(
    stored: "StoredStep", config: RunConfig, goes_on: "GoesOn", *, num_continuations: int
) -> ExitCode:
    """Play continuations of a stored step, and show their value beside what is stored.

    Raises:
        ConfigError: The step cannot be taken up.
        LonghaulError: See `run_branches`.
    """
    from longhaul_trainer.play.branches import Continuations, plan_of, require_continuable

    config = to_go_on(config, goes_on)
    require_continuable(config, stored.branch, goes_on)
    plan = plan_of(config, stored.branch, num_continuations=num_continuations, goes_on=goes_on)
    found = Continuations(stored.branch.step_index, config.algorithm.discount)
    outcome = played_continuations(config, plan, goes_on, heard=found.heard)
    _show(stored, found, num_planned=num_continuations)
    if not isinstance(goes_on, str):
        _print("cost", found.spent.in_words())
    if outcome.status == "finished" and len(found.returns) < num_continuations:
        return ExitCode.UNPLAYED
    return EXIT_CODE_OF_STATUS[outcome.status]


def to_go_on(config: RunConfig, goes_on: "GoesOn") -> RunConfig:
    """The run as who goes on plays it.

    Raises:
        ConfigError: What plays it is not installed.
    """
    from longhaul_trainer.preflight.description_check import require_player

    if not isinstance(goes_on, str):
        config = for_hosted_model(config, goes_on)
    require_player(config)
    return config


def played_continuations(
    config: RunConfig, plan: "Plan", goes_on: "GoesOn", *, heard: "Heard"
) -> RunOutcome:
    """Play continuations as a run of their own.

    Raises:
        ConfigError: A hosted model does not answer.
        LonghaulError: See `run_branches`.
    """
    from longhaul_trainer.play.branches import play_by_weights, run_branches
    from longhaul_trainer.play.hosted_evaluation import require_answer

    if not isinstance(goes_on, str):
        asyncio.run(require_answer(goes_on, temperature=config.rollout.temperature))

    def by_weights(config: RunConfig, run: RunDirectory) -> RunOutcome:
        from longhaul_trainer.verl.launch import run_served  # the training stack, only now

        def serve(served: "ServedModel") -> Coroutine[None, None, None]:
            return play_by_weights(served, config, plan, heard=heard)

        return run_served(config, run, serve=serve, kind="branch")

    def work(config: RunConfig, run: RunDirectory) -> RunOutcome:
        return run_branches(
            config, run, plan, goes_on=goes_on, heard=heard, console=console_of("stderr")
        )

    asks_weights = goes_on == "weights"
    in_engine = asks_weights and not are_small(config)
    _, outcome = played_in_folder(
        config, by_weights if in_engine else work, hosted=not asks_weights
    )
    return outcome


def are_small(config: RunConfig) -> bool:
    """Whether the weights that go on are sampled in this process, without an engine."""
    from longhaul_trainer.models.prepare import prepare_model
    from longhaul_trainer.play.small_policy import is_small  # imports torch

    return is_small(prepare_model(config.model.path))


def continuing_config(
    config_json: str,
    overrides: list[str] | None,
    *,
    run_id: str,
    run_kind: "RunKind",
    store: str,
    description: str | None,
    name: str,
) -> RunConfig:
    """The run that goes on: the episode's own, or the one that a file describes.

    Args:
        config_json: Of the episode's run.
        overrides: `dotted.key=value`.
        run_id: The episode's run.
        run_kind: Its kind.
        store: Where both are.
        description: TOML file, or None for the episode's own.
        name: Of the run that goes on.

    Raises:
        ConfigError: The episode's run has no description; or everything that is wrong with it.
    """
    if description is not None:
        config = read_description(description, None)
    else:
        config = stored_config(config_json, run_id=run_id)
        if run_kind != "train":  # its folder lies in one beside those of trainings
            runs = str(Path(config.runs_directory).parent)
            config = config.model_copy(update={"runs_directory": runs})
    config = config.model_copy(update={"store": store})
    config = to_be_played(config, overrides, source=description or run_id)
    return beside_runs(config, folder="branches", name=name)


def _show(stored: "StoredStep", found: "Continuations", *, num_planned: int) -> None:
    """What was stored of the step, and what the continuations came to."""
    branch = stored.branch
    known = {"return-to-go": stored.return_to_go, "advantage": stored.advantage}
    credited = ", ".join(
        f"{name} {value:.3f}" for name, value in known.items() if value is not None
    )
    _print("stored", f"{branch.stored.action!r}: {credited or 'nothing was credited'}")
    if not found.returns:
        return
    first = "the choice of who goes on" if branch.action is None else repr(branch.action)
    _print("branch", f"{first}: {len(found.returns):,} of {num_planned:,} continuations")
    mean, rate = found.mean_return, found.success_rate
    from_here = f"(from the step on, discount {found.discount:g})"
    if mean is None:
        solved = "solved" if found.successes[0] else "not solved"
        same = "all are the same episode, so there is no interval"
        if len(found.returns) == 1:
            same = "two continuations and more have an interval"
        _print("return", f"{found.returns[0]:.3f} {from_here}, {solved}; {same}")
        return
    _print("return", f"{mean.estimate:.3f}, 95 % {mean.low:.3f} to {mean.high:.3f} {from_here}")
    _print("success", f"{rate.estimate:.1%}, 95 % {rate.low:.1%} to {rate.high:.1%}")


def _print(name: str, words: str) -> None:
    console = console_of("stdout")
    console.print(f"[dim]{name:<8}[/]", end="")
    console.print(words, markup=False)
