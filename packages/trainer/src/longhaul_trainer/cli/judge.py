"""`trainer judge`: a hosted model's opinion of stored steps, kept as labels."""

import asyncio
from typing import Annotated

import typer

from longhaul_core.errors import AllFailedError, ConfigError
from longhaul_trainer.cli.arguments import RunInStore, Store, console_of
from longhaul_trainer.cli.credit_truth import (
    MeasuredGroups,
    MeasuredSteps,
    SeedOfDraws,
    TrainingSteps,
    training_span,
)
from longhaul_trainer.cli.endpoint import HostedOptions, takes_hosted_model
from longhaul_trainer.cli.exit_codes import ExitCode
from longhaul_trainer.cli.runs import DEFAULT_STORE

_LONGEST_NAME = 255


@takes_hosted_model
def judge(  # noqa: PLR0913  options of a command
    run: RunInStore,
    *,
    training_steps: TrainingSteps = None,
    groups: MeasuredGroups = 8,
    steps: MeasuredSteps = 100,
    seed: SeedOfDraws = 0,
    label: Annotated[str, typer.Option(help="Name of the labels.")] = "credit",
    store: Store = None,
    hosted: HostedOptions,
) -> None:
    """Ask a hosted model how much actions of a stored run changed, a number from -1 to 1.

    The steps are those that `credit-truth` draws by the same options, which then judges the judge.
    Its numbers are labels of these steps, by the model's name; a second call asks for none again.
    """
    endpoint = hosted.described()
    if endpoint is None:
        raise ConfigError("name the judge: --endpoint URL --model NAME")
    for option, name in (("--label", label), ("--model", endpoint.model)):
        if not name.strip() or len(name) > _LONGEST_NAME:
            raise ConfigError(
                f"{option} must have 1 to {_LONGEST_NAME} characters, as names of the store have, "
                f"got {len(name):,}"
            )
    span = training_span(training_steps)
    from rich.progress import Progress
    from sqlalchemy.orm import Session

    from longhaul_core.store.addresses import describe_store, store_errors
    from longhaul_core.store.session import open_store
    from longhaul_trainer.cli.stored_runs import find_in_store
    from longhaul_trainer.play.judge import Judging, Verdict, ask_judge
    from longhaul_trainer.play.truth.selection import select_steps

    address = store or DEFAULT_STORE
    engine = open_store(address, create=False)
    try:
        run_id = find_in_store(engine, run, address)
        with store_errors(describe_store(engine.url)), Session(engine) as session:
            selection = select_steps(
                session,
                run_id,
                training_steps=span,
                num_groups=groups,
                num_steps=steps,
                seed=seed,
            )
        judging = Judging(engine=engine, endpoint=endpoint, label=label, steps=selection.steps)
        episodes = judging.missing()
        with Progress(console=console_of("stderr"), transient=True) as progress:
            bar = progress.add_task("episodes", total=len(episodes))

            def heard(verdict: Verdict) -> None:
                judging.heard(verdict)
                progress.advance(bar)

            asyncio.run(ask_judge(endpoint, episodes, heard=heard))
    finally:
        engine.dispose()
    console = console_of("stdout")
    price = f", ${sum(judging.costs):,.4f}" if judging.costs else ""
    console.print(
        f"{run_id}: {judging.num_scored:,} of {judging.num_asked:,} steps of {len(episodes):,} "
        f"episodes got a number by {endpoint.model}{price}; {judging.num_known:,} had one before",
        markup=False,
    )
    for failure, times in judging.failures.items():
        console.print(f"{times:,} requests failed: {failure}", markup=False)
    if judging.num_asked and not judging.num_scored:
        reason = "no reply has a JSON object with a number for a step"
        raise AllFailedError(f"nothing was judged: {next(iter(judging.failures), reason)}")
    whole = judging.num_scored == judging.num_asked
    raise typer.Exit(ExitCode.DONE if whole else ExitCode.UNPLAYED)
