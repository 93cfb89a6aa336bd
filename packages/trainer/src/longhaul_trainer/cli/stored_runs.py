"""What `trainer runs` does to a store.

Apart from the commands, because SQLAlchemy takes a while to import, and `trainer check` need
not wait for it.
"""

import json
import re
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from longhaul_core.errors import ConfigError, StoreError
from longhaul_core.run_names import pick_run
from longhaul_core.store.addresses import describe_store, store_errors
from longhaul_core.store.copies import (
    archive_run,
    back_up,
    copy_run,
    opened_archive,
    verify_archive,
)
from longhaul_core.store.maintenance import (
    PruneRule,
    collect_garbage,
    delete_run,
    drop_tokens,
    index_text,
    request_cancel,
    runs_to_prune,
)
from longhaul_core.store.queries import (
    RunSummary,
    get_run,
    is_silent,
    list_runs,
    run_sizes,
    storage_stats,
)
from longhaul_core.store.session import open_store, read_only_engine
from longhaul_trainer.cli.arguments import console_of
from longhaul_trainer.run.directory import RunDirectory

UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
MOST_RUNS = 1_000_000


def show_runs(store: str, *, status: str | None, limit: int, as_json: bool) -> None:
    """Print runs, newest first."""
    engine = read_only_engine(store)
    with store_errors(describe_store(engine.url)), Session(engine) as session:
        found = list_runs(session, status=status, limit=limit)
    engine.dispose()
    console = console_of("stdout")
    if as_json:
        for run in found:
            console.out(json.dumps(asdict(run)))
    elif found:
        console.print(table_of(found, now=time.time(), console=console))
    else:
        console.print("No such run in the store.")


def ask_to_stop(store: str, reference: str) -> None:
    """Ask a running run to stop; it asks for that every few seconds."""
    engine = open_store(store, create=False)
    run_id = find_in_store(engine, reference, store)
    request_cancel(engine, run_id=run_id)
    with store_errors(describe_store(engine.url)), Session(engine) as session:
        kind = get_run(session, run_id=run_id).summary.kind
    engine.dispose()
    resume = "; `trainer resume` goes on from its last checkpoint" if kind == "train" else ""
    console_of("stdout").print(f"{run_id} stops within seconds{resume}.")


def remove_by_rule(
    store: str, rule: PruneRule, *, tokens_only: bool, with_folder: bool, yes: bool
) -> None:
    """Delete the runs that a rule lets go, or only their tokens."""
    engine = open_store(store, create=False)
    going = [run.run_id for run in runs_to_prune(engine, rule=rule)]
    remove(engine, going, tokens_only=tokens_only, with_folder=with_folder, yes=yes)
    engine.dispose()


def remove_one(store: str, reference: str, *, with_folder: bool, yes: bool) -> None:
    """Delete the run that a person names."""
    engine = open_store(store, create=False)
    run_id = find_in_store(engine, reference, store)
    remove(engine, [run_id], tokens_only=False, with_folder=with_folder, yes=yes)
    engine.dispose()


def archive_one(store: str, reference: str, file: Path) -> None:
    """Copy the run that a person names into a file."""
    engine = open_store(store, create=False)
    run_id = find_in_store(engine, reference, store)
    archive_run(engine, run_id=run_id, target=file)
    engine.dispose()
    _print(f"{run_id} is in {file}, {file.stat().st_size / 2**20:,.1f} MiB; it is still in {store}")


def restore_one(store: str, reference: str, file: Path) -> None:
    """Copy the run that a person names from a file into the store."""
    with opened_archive(file) as archive:
        run_id = find_in_store(archive, reference, str(file))
        engine = open_store(store)
        copy_run(archive, engine, run_id=run_id)
        engine.dispose()
    _print(f"{run_id} is in {store}; `trainer runs index` makes its text findable")


def verify_file(file: Path) -> None:
    """Print of each run whether its rows are those that were written.

    Raises:
        StoreError: Those of one are not, or the file cannot be read.
    """
    with opened_archive(file) as archive:
        found = verify_archive(archive)
    words = {True: "as it was written", False: "not as it was written", None: "without a hash"}
    for run_id, whole in found.items():
        _print(f"{run_id}: {words[whole]}")
    damaged = [run_id for run_id, whole in found.items() if whole is False]
    if damaged:
        raise StoreError(
            f"{file} is damaged, or somebody wrote into it: of {len(found)} runs {len(damaged)} "
            f"are not what was written: {', '.join(damaged)}; use another copy"
        )


def back_up_store(store: str, file: Path) -> None:
    """Copy a whole store into a file."""
    engine = open_store(store, create=False)
    back_up(engine, file)
    engine.dispose()
    _print(f"{store} is in {file}, {file.stat().st_size / 2**20:,.1f} MiB")


def show_sizes(store: str) -> None:
    """Print what each run takes of the store."""
    engine = read_only_engine(store)
    with store_errors(describe_store(engine.url)), Session(engine) as session:
        sizes, whole = run_sizes(session), storage_stats(session)
    engine.dispose()
    console = console_of("stdout")
    if not sizes:
        console.print("The store holds no runs.")
        return

    def mebibytes(values: Iterable[int]) -> list[str]:
        return [f"{value / 2**20:,.1f}" for value in values]

    columns = {
        "run": [size.run_id for size in sizes],
        "episodes": [f"{size.num_episodes:,}" for size in sizes],
        "steps": [f"{size.num_steps:,}" for size in sizes],
        "MiB,\nabout": mebibytes(size.num_bytes for size in sizes),
        "text": mebibytes(size.text_bytes for size in sizes),
        "tokens": mebibytes(size.token_bytes for size in sizes),
        "pictures": mebibytes(size.picture_bytes for size in sizes),
        "text\nindex": mebibytes(size.index_bytes for size in sizes),
    }
    least = ("text\nindex", "pictures", "tokens", "text", "steps", "episodes")
    table = _fitting(
        columns, least_first=least, console=console, elsewhere="a wider terminal shows them"
    )
    console.print(table)
    _print(
        f"the store: {whole.num_bytes / 2**20:,.1f} MiB, {whole.bytes_per_step:,.0f} bytes a step"
    )


def index_store(store: str) -> None:
    """Make findable what is not yet."""
    engine = open_store(store, create=False)
    num_added = index_text(engine)
    engine.dispose()
    _print(f"indexed {num_added:,} steps")


def _print(line: str) -> None:
    console_of("stdout").print(line)


def remove(
    engine: Engine, run_ids: list[str], *, tokens_only: bool, with_folder: bool, yes: bool
) -> None:
    """Delete runs, or only their tokens; without the person's `yes`, say what would go."""
    console = console_of("stdout")
    what = "the tokens of " if tokens_only else ""
    for run_id in run_ids:
        if yes and tokens_only:
            drop_tokens(engine, run_id=run_id)
        elif yes:
            folder = folder_of(engine, run_id) if with_folder else None
            with nullcontext() if folder is None else folder.locked():
                delete_run(engine, run_id=run_id)
                if folder is not None:
                    shutil.rmtree(folder.path)
        console.print(f"{'deleted' if yes else 'would delete'} {what}{run_id}")
    if not run_ids:
        console.print("Nothing to delete.")
    elif yes:
        collect_garbage(engine)
    else:
        console.print("Nothing was deleted; add --yes.")


def find_in_store(engine: Engine, reference: str, store: str) -> str:
    """Id of the run that a person names.

    Raises:
        ConfigError: If there is no such run, or more than one.
    """
    with store_errors(describe_store(engine.url)), Session(engine) as session:
        newest_first = [run.run_id for run in list_runs(session, limit=MOST_RUNS)]
    return pick_run(reference, newest_first[::-1], place=store)


def folder_in_store(store: str, reference: str) -> RunDirectory:
    """The folder of the run that a person names, by the run's configuration in a store.

    Raises:
        ConfigError: There is no such run, or its folder is not on this machine.
    """
    engine = read_only_engine(store)
    try:
        run_id = find_in_store(engine, reference, store)
        folder = folder_of(engine, run_id)
    finally:
        engine.dispose()
    if folder is None:
        raise ConfigError(
            f"the folder of {run_id}, which {store} names, is not on this machine: a run goes on "
            "where its checkpoints are; name the folder itself if it was moved"
        )
    return folder


def folder_of(engine: Engine, run_id: str) -> RunDirectory | None:
    """The run's folder, by its configuration in the store; None if it is not on this machine.

    Runs that were imported, that a person played or that a gateway served have none.
    """
    with store_errors(describe_store(engine.url)), Session(engine) as session:
        config = json.loads(get_run(session, run_id=run_id).config_json)
    if "runs_directory" not in config:
        return None
    folder = RunDirectory(path=Path(config["runs_directory"]) / run_id)
    return folder if folder.config_file.is_file() else None


def age_seconds(text: str) -> float:
    """Seconds of an age such as `12h`.

    Raises:
        ConfigError: If it is none.
    """
    parts = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip())
    if parts is None:
        raise ConfigError(f"an age is a number and one of m, h, d, w, such as 12h; got {text!r}")
    return int(parts[1]) * UNIT_SECONDS[parts[2]]


def table_of(found: list[RunSummary], *, now: float, console: Console) -> Table:
    """Runs as a table for a terminal; what has no room is left out, and named below it.

    Args:
        found: In the order to show.
        now: Unix time, to tell runs that have fallen silent.
        console: Whose width is filled.
    """
    columns: dict[str, list[str]] = {
        "run": [run.run_id for run in found],
        "status": [status_of(run, now=now) for run in found],
        "started": [_minute(run.started_at) for run in found],
        "training\nsteps": [_progress(run) for run in found],
        "episodes": [f"{run.num_episodes:,}" for run in found],
        "failed": [f"{run.num_failed_episodes:,}" for run in found],
        "steps": [f"{run.num_steps:,}" for run in found],
        "return": [_or_empty(run.last_mean_return, ".3f") for run in found],
        "success": [_or_empty(run.last_success_rate, ".0%") for run in found],
    }
    # A run's id begins with its start.
    least = ("started", "steps", "failed", "episodes", "success")
    return _fitting(columns, least_first=least, console=console, elsewhere="--json has them")


def _fitting(
    columns: dict[str, list[str]],
    *,
    least_first: Sequence[str],
    console: Console,
    elsewhere: str,
) -> Table:
    """A table as wide as a terminal at most, without the columns that have no room.

    Args:
        columns: Cells by heading.
        least_first: Headings in the order in which they are left out.
        console: Whose width is filled.
        elsewhere: Where what was left out can be seen, for the line below the table.
    """
    anywhere = console.options.update(max_width=1000)
    left_out: list[str] = []
    table = _table(columns, left_out=left_out, elsewhere=elsewhere)
    for heading in least_first:
        if console.measure(table, options=anywhere).maximum <= console.width:
            break
        left_out.append(heading)
        table = _table(columns, left_out=left_out, elsewhere=elsewhere)
    return table


def _table(columns: dict[str, list[str]], *, left_out: list[str], elsewhere: str) -> Table:
    shown = [heading for heading in columns if heading not in left_out]
    caption = f"no room for {', '.join(left_out)}; {elsewhere}" if left_out else None
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        caption=caption,
        caption_justify="left",
    )
    for heading in shown:
        if heading in {"run", "status", "started"}:
            most = 14 if heading == "status" else None  # a sentence is folded between its words
            table.add_column(heading, overflow="fold", max_width=most)
        else:
            table.add_column(heading, justify="right")
    for cells in zip(*(columns[heading] for heading in shown), strict=True):
        table.add_row(*cells)
    return table


def _minute(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M}"


def _progress(run: RunSummary) -> str:
    planned = "" if run.num_training_steps is None else f"/{run.num_training_steps}"
    return f"{run.num_training_steps_done}{planned}"


def _or_empty(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"


def status_of(run: RunSummary, *, now: float) -> str:
    """The run's status, and what one should know beside it."""
    if is_silent(run.status, run.heartbeat_at, now=now):
        return f"running, but silent for {(now - run.heartbeat_at) / 60:,.0f} min"
    if run.status == "running" and run.cancel_requested:
        return "running, asked to stop"
    return run.status
