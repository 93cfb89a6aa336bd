"""`trainer verify-env`: an environment is held to the contract, or to its authors' code."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from longhaul_core.errors import ConfigError
from longhaul_trainer.cli.arguments import (
    EnvironmentId,
    EnvironmentOptions,
    ImportModules,
    console_of,
)
from longhaul_trainer.cli.exit_codes import ExitCode
from longhaul_trainer.cli.play import options_of

_VALUES = 1000
"""That are compared unless somebody says how many."""


def verify_env(
    environment: EnvironmentId,
    *,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="A checkout of the authors' code, which is run and compared with ours.",
        ),
    ] = None,
    values: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --against: how many values are compared.",
            show_default=str(_VALUES),
        ),
    ] = None,
    option: EnvironmentOptions = None,
    import_module: ImportModules = None,
) -> None:
    """Hold an environment to the contract, or, with --against, compare it with the authors' code.

    The authors' code runs as you do, with all that you may do: name a folder that you trust.
    """
    from longhaul_envs.against.comparison import compared_with
    from longhaul_envs.check import check_environment

    console = console_of("stdout")
    if against is not None:
        if option or import_module:
            raise ConfigError(
                "--against compares what the authors' code has, by settings of its own; leave out "
                "--option and --import-module"
            )
        table = Table("compared", "values", "different", "first difference")
        found = compared_with(environment, against, num_pairs=values or _VALUES)
        for one in found:
            numbers = f"{one.num_compared:,}", f"{one.num_different:,}"
            table.add_row(one.what, *numbers, one.example)
        console.print(table)
        if any(one.num_different for one in found):
            raise typer.Exit(ExitCode.FINDINGS)
        return
    if values is not None:
        raise ConfigError("--values is of --against FOLDER; name the folder of the authors' code")
    problems = check_environment(
        environment,
        options=options_of(option or []),
        import_modules=import_module or (),
        tell=lambda words: console.print(words, markup=False),
    )
    for problem in problems:
        console.print(problem, style="red", markup=False)
    if problems:
        raise typer.Exit(ExitCode.FINDINGS)
    console.print(f"{environment} keeps the contract")
