"""`trainer data`: the data that environments can use beside what they carry."""

from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn
from rich.table import Table

from longhaul_core.errors import ConfigError
from longhaul_trainer.cli.arguments import console_of
from longhaul_trainer.cli.exit_codes import EXIT_CODE_HELP

data_app = typer.Typer(help="Data that environments can use beside what they carry.")


@data_app.callback(invoke_without_command=True)
def data(context: typer.Context) -> None:
    """Data that environments can use beside what they carry. Without a command: the list."""
    if context.invoked_subcommand is None:
        list_data()


@data_app.command("list", epilog=EXIT_CODE_HELP)
def list_data() -> None:
    """List the data sets, which of them are here, and where they lie or belong."""
    from longhaul_envs.data import fetched_hashes, folder
    from longhaul_envs.data_sets import DATA_SETS

    table = Table(box=None, pad_edge=False)
    for column in ("name", "for", "state", "folder", "licence", "what"):
        table.add_column(column, overflow="fold")
    for name, listed in DATA_SETS.items():
        if fetched_hashes(name) is not None:
            state = "[green]fetched[/]"
        elif folder(name).exists():
            state = "[green]put there[/]"
        else:
            state = "missing" if listed.files else "missing, by hand"
        words = (listed.environment, state, str(folder(name)), listed.licence, listed.summary)
        table.add_row(name, *words)
    console_of("stdout").print(table)


@data_app.command("fetch", epilog=EXIT_CODE_HELP)
def fetch_data(
    name: Annotated[str, typer.Argument(help="A data set of `trainer data list`.")],
) -> None:
    """Fetch a data set from its publisher, or say how a person gets it."""
    from longhaul_envs.data import fetch, fetched_hashes, folder
    from longhaul_envs.data_sets import DATA_SETS

    wanted = DATA_SETS.get(name)
    if wanted is None:
        raise ConfigError(f"no data set is called {name!r}; there are {', '.join(DATA_SETS)}")
    console = console_of("stdout")
    if not wanted.files:
        raise ConfigError(
            f"{name} ({wanted.summary}; {wanted.licence}) cannot be fetched by this program.\n"
            f"{wanted.manual_way()}"
        )
    if fetched_hashes(name) is not None:
        console.print(f"{name} is in {folder(name)}")
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console_of("stderr")) as progress:
        bars: dict[str, TaskID] = {}

        def report(file: str, num_bytes: int, expected: int | None) -> None:
            if file not in bars:
                bars[file] = progress.add_task(file, total=expected)
            progress.update(bars[file], completed=num_bytes)

        hashes = fetch(wanted, report=report)
    named = {file.url: file.sha256 for file in wanted.files}
    for url, digest in hashes.items():
        note = "as its publisher names it" if named[url] else "its publisher names none"
        console.print(f"{url}\n  SHA-256 {digest} ({note})")
    console.print(f"{name} ({wanted.licence}) is in {folder(name)}")
