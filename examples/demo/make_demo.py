"""Train the runs of the viewer's demo store, and pack it.

    uv run python examples/demo/make_demo.py FOLDER
    uv run python examples/demo/make_demo.py --schema

Five runs on the CPU, by GiGPO: SmolLM2 in four games; a small random model moves boxes, and one
that plans first; a planner with a worker, and SmolLM2 on errands, programs that call the gateway.
Runs that are in FOLDER already are kept. What names the machine is left out of the copy.
`--schema` trains nothing: the rows of the packed store move into one of the newest schema.
"""

import json
import lzma
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError
from sqlalchemy.orm import Session

from longhaul_core.store.maintenance import collect_garbage, delete_run, drop_tokens
from longhaul_core.store.models import Base
from longhaul_core.store.queries import list_runs
from longhaul_core.store.session import open_store
from longhaul_trainer.config import RunConfig

HERE = Path(__file__).resolve().parent
PACKED = HERE.parents[1] / "apps/viewer/src/longhaul_viewer/demo/store.db.xz"
Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | bool | None"
BOXES = ["checkpoint.every=2", "num_training_steps=2", "validation.every=2"]
ERRANDS = ["checkpoint.every=6", "num_training_steps=6", "validation.every=3"]
RUNS: Sequence[tuple[str, Sequence[str]]] = (
    ("four-games", ["demo/four_games.toml"]),
    ("boxes-gigpo", ["demo/boxes.toml"]),
    # A step that takes 10 ms is too long here: now and then one does, and its episode fails.
    (
        "boxes-planned",
        [
            "demo/boxes.toml",
            "agent.kind=plan_then_act",
            "environment.step_deadline_seconds=0.01",
            *BOXES,
        ],
    ),
    ("team", ["demo/team.toml"]),
    (
        "errands",
        ["agents/errands.toml", "validation.num_tasks=24", "validation.test_num_tasks=8", *ERRANDS],
    ),
)
"""Names and arguments of `trainer train`."""
PRUNED = "boxes-planned"
"""Its tokens are left out, as by `trainer runs prune`: the demo shows that too, and is smaller."""

LACKING = {"credited_by": "'step'"}
"""Columns that the packed store may lack and that are never null: what they are in it, in SQL."""


def main() -> None:
    """Train what is missing, then pack."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    if sys.argv[1] == "--schema":
        with tempfile.TemporaryDirectory() as made:
            in_the_newest_schema(Path(made) / "new.db", Path(made) / "old.db")
        return
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / "demo.db"
    trained = finished(store)
    for name, arguments in RUNS:
        if name not in trained:
            file, *settings = arguments
            settings += [f"name={name}", f"store={store}", f"runs_directory={folder / 'runs'}"]
            subprocess.run(
                ["trainer", "train", str(HERE.parent / file), *settings],
                cwd=HERE.parent / "agents",
                check=True,
            )
    pack(store, folder / "packed.db")


def finished(store: Path) -> set[str]:
    """Names of the runs in a store that are done."""
    if not store.exists():
        return set()
    with closing(sqlite3.connect(store)) as connection:
        # A run that did not get as far as its first row leaves a file without tables.
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs'").fetchone():
            return set()
        rows = connection.execute("SELECT name FROM runs WHERE status = 'finished'")
        return {name for (name,) in rows}


def in_the_newest_schema(new: Path, old: Path) -> None:
    """Pack the packed store anew; columns that it lacks are nullable, or in `LACKING`.

    Settings that no run has any more leave the runs' descriptions, which `trainer branch` reads.
    """
    old.write_bytes(lzma.decompress(PACKED.read_bytes()))
    open_store(new).dispose()
    with closing(sqlite3.connect(new)) as connection:
        connection.execute("ATTACH ? AS old", (str(old),))
        with connection:
            for table in Base.metadata.sorted_tables:
                had = [row[1] for row in connection.execute(f"PRAGMA old.table_info({table.name})")]
                values = {name: f'"{name}"' for name in had if name in table.c}
                lacking = {name: sql for name, sql in LACKING.items() if name in table.c}
                values = lacking | values
                names = ", ".join(f'"{name}"' for name in values)
                connection.execute(
                    f"INSERT INTO main.{table.name} ({names}) SELECT {', '.join(values.values())} "
                    f"FROM old.{table.name}"
                )
            for row, text in connection.execute("SELECT rowid, config_json FROM runs").fetchall():
                left = json.dumps(settings_of_today(json.loads(text)))
                connection.execute("UPDATE runs SET config_json = ? WHERE rowid = ?", (left, row))
    compress(new)


def settings_of_today(config: Json) -> Json:
    """A run's description without the settings that are gone."""
    try:
        RunConfig.model_validate_json(json.dumps(config))
    except ValidationError as error:
        for gone in error.errors():
            if gone["type"] != "extra_forbidden":
                raise
            *sections, name = gone["loc"]
            table: Any = config
            for section in sections:
                table = table[section]
            del table[name]
    return config


def pack(store: Path, copy: Path) -> None:
    """Compress a copy of a store that names no machine."""
    copy.unlink(missing_ok=True)
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    engine = open_store(copy)
    with Session(engine) as session:
        runs = list_runs(session, limit=1000)
    for run in runs:
        if run.status != "finished":
            delete_run(engine, run_id=run.run_id, force=True)
        elif run.name == PRUNED:
            drop_tokens(engine, run_id=run.run_id)
    collect_garbage(engine)
    engine.dispose()
    with closing(sqlite3.connect(copy)) as connection:
        with connection:
            leave_out_the_machine(connection)
    compress(copy)


def compress(store: Path) -> None:
    """Put a store, which nobody uses, into the viewer.

    Raises:
        SystemExit: It has a path or the name of this machine.
    """
    with closing(sqlite3.connect(store)) as connection:
        with connection:
            # The text index is made anew where the demo is opened.
            connection.execute("INSERT INTO step_search(step_search) VALUES ('delete-all')")
            connection.execute("DELETE FROM search_progress")
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("VACUUM")
    content = store.read_bytes()
    for name in (str(store.parent), str(HERE.parents[1]), str(Path.home()), socket.gethostname()):
        if len(name) > 3 and name.encode() in content:
            raise SystemExit(f"the store names {name}")
    PACKED.parent.mkdir(exist_ok=True)
    PACKED.write_bytes(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))
    print(f"{PACKED}: {PACKED.stat().st_size:,} bytes of {len(content):,}")


def leave_out_the_machine(connection: sqlite3.Connection) -> None:
    """Take paths, the host's name and process ids out of runs and attempts."""
    for table, column in (("runs", "config_json"), ("attempts", "provenance_json")):
        for row, text in connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall():
            left = json.dumps(relative(json.loads(text)))
            connection.execute(
                f"UPDATE {table} SET {column} = ?, host = NULL, pid = NULL WHERE rowid = ?",
                (left, row),
            )


def relative(value: Json) -> Json:
    """JSON whose absolute paths are their last names, and without the host's name."""
    match value:
        case dict():
            return {key: relative(inner) for key, inner in value.items()}
        case list():
            return [relative(inner) for inner in value]
        case str() if value.startswith("/"):
            return Path(value).name
        case str():
            before, equals, path = value.partition("=")
            if path.startswith("/"):
                return before + equals + Path(path).name
            return "" if value == socket.gethostname() else value
        case _:
            return value


if __name__ == "__main__":
    main()
