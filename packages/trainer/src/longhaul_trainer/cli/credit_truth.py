"""`trainer credit-truth`: how near do estimators come to what a stored run's steps were worth?"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longhaul_core.errors import ConfigError
from longhaul_trainer.cli.arguments import (
    Checkpoint,
    Overrides,
    RunInStore,
    RunsDirectory,
    SkipDoctor,
    Store,
)
from longhaul_trainer.cli.branch import Description, PolicyOption, who_goes_on
from longhaul_trainer.cli.endpoint import HostedOptions, takes_hosted_model
from longhaul_trainer.cli.evaluate import WeightsOfRun
from longhaul_trainer.cli.runs import DEFAULT_STORE

if TYPE_CHECKING:
    from longhaul_trainer.play.branches import GoesOn

TrainingSteps = Annotated[
    str | None,
    typer.Option(
        "--training-steps", metavar="A..B", help="First and last, or one.", show_default="all"
    ),
]
MeasuredGroups = Annotated[
    int, typer.Option("--groups", min=2, help="Drawn from those of training.")
]
MeasuredSteps = Annotated[
    int, typer.Option("--steps", min=1, help="Drawn from all steps of these groups' episodes.")
]
SeedOfDraws = Annotated[int, typer.Option("--seed", min=0, help="Of both draws.")]


@takes_hosted_model
def credit_truth(  # noqa: PLR0913  options of a command
    run: RunInStore,
    overrides: Overrides = None,
    *,
    training_steps: TrainingSteps = None,
    groups: MeasuredGroups = 8,
    steps: MeasuredSteps = 100,
    seed: SeedOfDraws = 0,
    half_width: Annotated[
        float,
        typer.Option(help="Of the intervals of V and Q: continuations are added until it is met."),
    ] = 0.1,
    most: Annotated[
        int,
        typer.Option(
            "--continuations", min=2, help="Of each step at most so many for V, and for Q."
        ),
    ] = 128,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="By all states of each task, where the policy reads the state alone: nothing is "
            "played. For weights of at most 10 million parameters, and --policy random.",
        ),
    ] = False,
    policy: PolicyOption = None,
    checkpoint: Checkpoint = None,
    weights: WeightsOfRun = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A .md file gets the table; a .json file all figures."),
    ] = None,
    store: Store = None,
    description: Description = None,
    hosted: HostedOptions,
    runs_directory: RunsDirectory = Path("runs"),
    skip_doctor: SkipDoctor = False,
) -> None:
    """Measure what steps of a stored run were worth, and judge every estimator by it.

    V and Q of a step are means over two disjoint sets of continuations, which are runs of their own
    in the store; a second call plays none of them again. Without --policy, --checkpoint or
    --endpoint the run's own weights go on. Small weights are sampled in this process, and with
    --exact nothing is sampled.
    """
    if not half_width > 0.0:
        raise ConfigError(f"--half-width must be above 0, got {half_width:g}")
    if output is not None and output.suffix not in (".md", ".json"):
        raise ConfigError(f"--output must end in .md or .json, got {output}")
    if output is not None and not output.parent.is_dir():
        raise ConfigError(f"--output {output}: there is no folder {output.parent}; make it first")
    span = training_span(training_steps)
    goes_on: GoesOn = "weights"  # the run's own, unless somebody else is named
    if (policy, checkpoint, hosted.endpoint) != (None, None, None):
        goes_on = who_goes_on(policy, checkpoint, weights, hosted)
    if exact and goes_on not in ("weights", "random"):
        raise ConfigError(
            "--exact needs the probability of every action: of the run's weights, of --checkpoint "
            f"or of --policy random; {policy or 'an endpoint'} has none"
        )
    from longhaul_trainer.cli.measured_credit import Measuring, measured_credit

    code = measured_credit(
        Measuring(
            store=store or DEFAULT_STORE,
            run=run,
            training_steps=span,
            num_groups=groups,
            num_steps=steps,
            seed=seed,
            half_width=half_width,
            most=most,
            exact=exact,
            goes_on=goes_on,
            checkpoint=checkpoint,
            weights=weights,
            overrides=overrides,
            description=description,
            runs_directory=runs_directory,
            skip_doctor=skip_doctor,
            output=output,
        )
    )
    raise typer.Exit(code)


def training_span(words: str | None) -> tuple[int, int] | None:
    """The first and the last training step that `--training-steps` names.

    Raises:
        ConfigError: They are none.
    """
    if words is None:
        return None
    found = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", words.strip())
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if first > last:
        raise ConfigError(
            f"--training-steps must be a training step or two such as 3..8, got {words!r}"
        )
    return first, last
