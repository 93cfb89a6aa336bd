"""What `trainer import` and `trainer export` do; apart, because SQLAlchemy is slow to import."""

import secrets
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from sqlalchemy.orm import Session

from longhaul_core.errors import ConfigError
from longhaul_core.exchange import (
    Imported,
    ImportSettings,
    export_episodes,
    format_named,
    import_files,
    parse_where,
)
from longhaul_core.exchange.agent_lightning import Decode
from longhaul_core.exchange.reading import data_files
from longhaul_core.store.queries import count_episodes
from longhaul_core.store.session import read_only_engine
from longhaul_core.store.writer import StoreWriter
from longhaul_trainer.cli.arguments import console_of
from longhaul_trainer.cli.stored_runs import find_in_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a person says of the files to import."""

    path: Path
    format: str
    name: str | None = None
    environment: str | None = None
    success_at: float = 1.0
    tokenizer: Path | None = None


def import_rollouts(store: str, source: Source) -> Imported:
    """Read files into a run of their own, and say what became of them.

    Raises:
        FormatError: A file is not of the format.
        ConfigError: There is no such format, or no tokenizer in that folder.
        StoreError: The store refused.
    """
    format = format_named(source.format)
    files = data_files(source.path)
    settings = ImportSettings(
        format=format,
        run_id=f"{time.strftime('%Y%m%d-%H%M%S')}-{format.name}-{secrets.token_hex(2)}",
        name=source.name or source.path.stem,
        environment=source.environment,
        success_at=source.success_at,
        decode=None if source.tokenizer is None else _decoder(source.tokenizer),
    )
    num_bytes = sum(file.stat().st_size for file in files)
    with StoreWriter(store) as writer, _bar("import", num_bytes, of_bytes=True) as advance:
        result = import_files(writer, source.path, settings, report=advance)
    console = console_of("stdout")
    console.print(
        f"{result.run_id}: {result.num_episodes:,} episodes of {result.num_steps:,} steps, "
        f"{result.num_solved:,} solved",
        highlight=False,
        soft_wrap=True,
    )
    if result.left_out:
        left_out = ", ".join(
            f"{name} ({count:,})" for name, count in sorted(result.left_out.items())
        )
        console_of("stderr").print(
            f"Not in the store, by number of episodes: {left_out}", highlight=False, soft_wrap=True
        )
    return result


def _decoder(folder: Path) -> Decode:
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


def export_run(
    store: str, reference: str, *, format: str, where: Sequence[str], output: Path | None
) -> None:
    """Write episodes of a run to a file, or to standard output. A file appears when it is whole.

    Raises:
        ConfigError: There is no such run, format or condition, or the file cannot be written.
        StoreError: The store cannot be read.
    """
    chosen = format_named(format)
    conditions = parse_where(where)
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
