"""What `trainer runs` does to a store.

Apart from the commands, because SQLAlchemy takes a while to import, and `trainer check` need
not wait for it.
"""

import json
import re
import shutil
import time
from contextlib import nullcontext
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from rich import box
from rich.table import Table
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from longhaul_core.errors import ConfigError
from longhaul_core.store.maintenance import (
    PruneRule,
    collect_garbage,
    delete_run,
    drop_tokens,
    request_cancel,
    runs_to_prune,
)
from longhaul_core.store.queries import RunSummary, get_run, is_silent, list_runs
from longhaul_core.store.session import open_store, read_only_engine
from longhaul_trainer.cli.arguments import console_of
from longhaul_trainer.run_directory import RunDirectory, pick_run

UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
MOST_RUNS = 1_000_000


def show_runs(store: str, *, status: str | None, limit: int, as_json: bool) -> None:
    """Print runs, newest first."""
    engine = read_only_engine(store)
    with Session(engine) as session:
        found = list_runs(session, status=status, limit=limit)
    engine.dispose()
    console = console_of("stdout")
    if as_json:
        for run in found:
            console.out(json.dumps(asdict(run)), highlight=False)
    elif found:
        console.print(table_of(found, now=time.time()))
    else:
        console.print("No such run in the store.")


def ask_to_stop(store: str, reference: str) -> None:
    """Ask a running run to stop; it asks for that every few seconds."""
    engine = open_store(store, create=False)
    run_id = find_in_store(engine, reference, store)
    request_cancel(engine, run_id=run_id)
    engine.dispose()
    console_of("stdout").print(
        f"{run_id} stops within seconds; `trainer resume` goes on from its last checkpoint.",
        highlight=False,
    )


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
        console.print(f"{'deleted' if yes else 'would delete'} {what}{run_id}", highlight=False)
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
    with Session(engine) as session:
        newest_first = [run.run_id for run in list_runs(session, limit=MOST_RUNS)]
    return pick_run(reference, newest_first[::-1], place=store)


def folder_of(engine: Engine, run_id: str) -> RunDirectory | None:
    """The run's folder, by its configuration in the store; None if it is not on this machine."""
    with Session(engine) as session:
        config = json.loads(get_run(session, run_id=run_id).config_json)
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


def table_of(found: list[RunSummary], *, now: float) -> Table:
    """Runs as a table for a terminal.

    Args:
        found: In the order to show.
        now: Unix time, to tell runs that have fallen silent.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("run", no_wrap=True)
    table.add_column("status")
    table.add_column("started")
    for heading in ("training steps", "episodes", "failed", "steps", "return", "success"):
        table.add_column(heading, justify="right")
    for run in found:
        planned = "" if run.num_training_steps is None else f"/{run.num_training_steps}"
        table.add_row(
            run.run_id,
            status_of(run, now=now),
            f"{datetime.fromtimestamp(run.started_at).astimezone():%Y-%m-%d %H:%M}",
            f"{run.num_training_steps_done}{planned}",
            f"{run.num_episodes:,}",
            f"{run.num_failed_episodes:,}",
            f"{run.num_steps:,}",
            "" if run.last_mean_return is None else f"{run.last_mean_return:.3f}",
            "" if run.last_success_rate is None else f"{run.last_success_rate:.0%}",
        )
    return table


def status_of(run: RunSummary, *, now: float) -> str:
    """The run's status, and what one should know beside it."""
    if is_silent(run.status, run.heartbeat_at, now=now):
        return f"running, but silent for {(now - run.heartbeat_at) / 60:,.0f} min"
    if run.status == "running" and run.cancel_requested:
        return "running, asked to stop"
    return run.status
