"""`trainer import` and `trainer export`: rollouts of other programs in, and ours out.

SQLAlchemy takes a while to import, so it is imported by what reads or writes the store.
"""

import secrets
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from longhaul_core.errors import ConfigError
from longhaul_trainer.cli.arguments import RunInStore, Store, console_of

if TYPE_CHECKING:
    from longhaul_core.exchange.agent_lightning import Decode

DEFAULT_STORE = "longhaul.db"

FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help="conversations, messages, atif, verl, verl_agent, agentgym, agentgym_eval or "
        "agent_lightning.",
    ),
]


def import_(
    path: Annotated[
        Path, typer.Argument(help="A file, or a folder: all in it of the format's kind.")
    ],
    *,
    format: FormatOption,
    store: Store = None,
    name: Annotated[
        str | None, typer.Option(help="Of the new run.", show_default="the file's")
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(
            help="Of episodes whose file names none.", show_default="imported/ and the format"
        ),
    ] = None,
    success_at: Annotated[
        float,
        typer.Option(help="Least return that counts as solved where the file does not say."),
    ] = 1.0,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="The model's folder, for triplets that have tokens and no text."),
    ] = None,
) -> None:
    """Read rollouts of another program into a store, as a run that can be replayed."""
    from longhaul_core.exchange import ImportSettings, format_named, import_files
    from longhaul_core.exchange.reading import data_files
    from longhaul_core.store.writer import StoreWriter

    chosen = format_named(format)
    files = data_files(path, parquet=chosen.is_parquet)
    settings = ImportSettings(
        format=chosen,
        run_id=f"{time.strftime('%Y%m%d-%H%M%S')}-{chosen.name}-{secrets.token_hex(2)}",
        name=name or path.stem,
        environment=environment,
        success_at=success_at,
        decode=None if tokenizer is None else _decoder(tokenizer),
    )
    num_bytes = sum(file.stat().st_size for file in files)
    with (
        StoreWriter(store or DEFAULT_STORE) as writer,
        _bar("import", num_bytes, of_bytes=True) as advance,
    ):
        result = import_files(writer, path, settings, report=advance)
    console = console_of("stdout")
    console.print(
        f"{result.run_id}: {result.num_episodes:,} episodes of {result.num_steps:,} steps, "
        f"{result.num_solved:,} solved",
    )
    if result.left_out:
        left_out = ", ".join(
            f"{name} ({count:,})" for name, count in sorted(result.left_out.items())
        )
        console_of("stderr").print(f"Not in the store, by number of episodes: {left_out}")


def export(
    reference: RunInStore,
    *,
    format: FormatOption,
    store: Store = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Only such episodes, e.g. success=true, phase=train, min_return=0.5; repeatable.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The file to write, or `-`.", show_default="standard output"
        ),
    ] = None,
) -> None:
    """Write a run's episodes in another program's format, e.g. for imitation (SFT)."""
    from sqlalchemy.orm import Session

    from longhaul_core.exchange import export_episodes, format_named, parse_where
    from longhaul_core.store.queries import count_episodes
    from longhaul_core.store.session import read_only_engine
    from longhaul_trainer.cli.stored_runs import find_in_store

    chosen = format_named(format)
    conditions = parse_where(where or [])
    store = store or DEFAULT_STORE
    engine = read_only_engine(store)
    reading = partial(Session, engine)
    run_id = find_in_store(engine, reference, store)
    asked = conditions.filter_of(run_id)
    with reading() as session:
        total = count_episodes(session, where=asked)
    with _bar("export", total, of_bytes=False) as advance:
        pieces = export_episodes(reading, run_id=run_id, format=chosen, where=asked, report=advance)
        if output is None or str(output) == "-":
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        else:
            part = output.with_name(f"{output.name}.part")
            try:
                with part.open("wb") as file:
                    file.writelines(pieces)
                part.replace(output)
            except OSError as error:
                raise ConfigError(f"cannot write {output}: {error.strerror}") from error
            finally:
                part.unlink(missing_ok=True)
    engine.dispose()


def _decoder(folder: Path) -> "Decode":
    """The tokenizer of a model's folder.

    Raises:
        ConfigError: There is none in it.
    """
    if not folder.is_dir():
        raise ConfigError(f"--tokenizer names a model's folder, and there is none at {folder}")
    from longhaul_trainer.rendering.renderer import load_renderer  # takes seconds to import

    try:
        return load_renderer(folder).decode
    except (OSError, ValueError) as error:
        raise ConfigError(f"--tokenizer {folder} holds no tokenizer: {error}") from error


@contextmanager
def _bar(what: str, total: int, *, of_bytes: bool) -> Generator[Callable[[int], None]]:
    """A bar on standard error while the block works; nothing where that is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn())
    done = DownloadColumn() if of_bytes else MofNCompleteColumn()
    console = console_of("stderr")
    with Progress(
        *columns, done, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)
