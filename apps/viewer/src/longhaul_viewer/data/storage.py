"""Sizes of the store, and what is done to whole runs: archive, restore, back up, prune, delete."""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import streamlit as st
from sqlalchemy import Engine, func, select

from longhaul_core.errors import StoreError
from longhaul_core.store import copies, maintenance, queries
from longhaul_core.store.addresses import describe_store, store_errors
from longhaul_core.store.maintenance import PruneRule
from longhaul_core.store.models import SCHEMA_VERSION, EpisodeRow, RunRow
from longhaul_core.store.queries import RunSize, RunSummary, StorageStats
from longhaul_core.store.session import read_only_engine
from longhaul_viewer.data import work
from longhaul_viewer.data.store import reader, reading, writer
from longhaul_viewer.settings import archives_folder, store_url

__all__ = [
    "Archive",
    "HeldRun",
    "Sizes",
    "archive",
    "archives",
    "back_up",
    "cut_short",
    "delete",
    "index",
    "prunable",
    "remove_cut_short",
    "restore",
    "runs_in",
    "schema_of",
    "sizes",
]

MOST_RUNS = 1_000_000
ENDING = ".db"
PARTIAL = ".partial"
FRESH_SECONDS = 20.0
"""What was read of the whole store is shown for so long, or until a piece of work ends."""


class Sizes(NamedTuple):
    """How large the store is."""

    whole: StorageStats
    runs: Sequence[RunSize]
    """The largest first."""
    summaries: dict[str, RunSummary]
    """By run id, the newest first: all runs."""
    is_file: bool
    """Whether the store is a SQLite file, which can be backed up here."""


class Archive(NamedTuple):
    """A file that holds runs."""

    name: str
    num_bytes: int
    written_at: float
    """Unix time."""


class HeldRun(NamedTuple):
    """What a store or an archive holds of a run: rows of all attempts, failed ones included."""

    run_id: str
    num_episodes: int
    num_steps: int


def sizes() -> Sizes:
    """The store's size, by run and by kind."""
    return _sizes(store_url(), work.ended())


@st.cache_data(ttl=FRESH_SECONDS, max_entries=4, show_spinner=False)
def _sizes(store: str, ended: tuple[float, ...]) -> Sizes:
    with reading() as session:
        summaries = {run.run_id: run for run in queries.list_runs(session, limit=MOST_RUNS)}
        return Sizes(
            whole=queries.storage_stats(session),
            runs=queries.run_sizes(session),
            summaries=summaries,
            is_file=session.get_bind().dialect.name == "sqlite",
        )


def archives() -> list[Archive]:
    """The files in the folder of archives, the newest first."""
    folder = archives_folder()
    found = [each for each in folder.glob(f"*{ENDING}") if each.is_file()]
    known = [
        Archive(each.name, stat.st_size, stat.st_mtime)
        for each, stat in ((each, each.stat()) for each in found)
    ]
    return sorted(known, key=lambda each: -each.written_at)


def schema_of(file: Archive) -> str:
    """The version of an archive's schema, or why this program does not read the file."""
    return _schema(archives_folder() / file.name, file.written_at, file.num_bytes)


@st.cache_data(max_entries=1000, show_spinner=False)
def _schema(path: Path, written_at: float, num_bytes: int) -> str:
    try:
        read_only_engine(path).dispose()
    except StoreError as error:
        return str(error)
    return SCHEMA_VERSION


def runs_in(name: str) -> list[HeldRun]:
    """The runs that an archive holds, the newest first.

    Raises:
        StoreError: It is no store, or not in the folder of archives.
    """
    engine = read_only_engine(_listed(name))
    try:
        return _held(engine)
    finally:
        engine.dispose()


def _held(engine: Engine) -> list[HeldRun]:
    asked = (
        select(
            RunRow.id,
            func.count(EpisodeRow.id),
            func.coalesce(func.sum(EpisodeRow.num_steps), 0),
        )
        .outerjoin(EpisodeRow, EpisodeRow.run_id == RunRow.id)
        .group_by(RunRow.id, RunRow.started_at)
        .order_by(RunRow.started_at.desc(), RunRow.id)
    )
    with store_errors(describe_store(engine.url)), engine.connect() as connection:
        return [HeldRun(*row) for row in connection.execute(asked)]


def cut_short() -> list[Archive]:
    """What was left of files whose writing was cut short, the newest first."""
    written = {f"{each.writes}{PARTIAL}" for each in work.pieces() if not each.future.done()}
    found: list[Archive] = []
    for each in archives_folder().glob(f"*{ENDING}{PARTIAL}"):
        if each.name in written:
            continue
        stats = [part.stat() for part in _parts(each) if part.is_file()]
        if stats:
            num_bytes = sum(stat.st_size for stat in stats)
            found.append(Archive(each.name, num_bytes, max(stat.st_mtime for stat in stats)))
    return sorted(found, key=lambda each: -each.written_at)


def remove_cut_short(name: str) -> None:
    """Remove what was left of a file.

    Raises:
        StoreError: `cut_short` does not list it, or the viewer is read-only.
    """
    writer()
    if name not in {each.name for each in cut_short()}:
        raise StoreError(f"there is no file {name!r} that was cut short in {archives_folder()}")
    for part in _parts(archives_folder() / name):
        part.unlink(missing_ok=True)


def _parts(partial: Path) -> list[Path]:
    """The file and what SQLite writes beside it."""
    return [partial.with_name(f"{partial.name}{end}") for end in ("", "-wal", "-shm")]


def archive(run_id: str) -> None:
    """Copy a run into a new file."""
    engine, target = writer(), _new_file(run_id)

    def copy() -> str:
        copies.archive_run(engine, run_id=run_id, target=target)
        return f"{run_id} is in {target}; it is still in the store too"

    work.begin(f"archive {run_id}", copy, writes=target.name)


def back_up() -> None:
    """Copy the whole store into a new file."""
    engine, target = writer(), _new_file("backup")

    def copy() -> str:
        copies.back_up(engine, target)
        return f"the whole store is in {target}"

    work.begin("back up the store", copy, writes=target.name)


def restore(name: str, run_id: str) -> None:
    """Copy a run from an archive into the store, and make its text findable."""
    engine, file = writer(), _listed(name)

    def copy() -> str:
        with copies.opened_archive(file) as source:
            copies.copy_run(source, engine, run_id=run_id)
        maintenance.index_text(engine)
        return f"{run_id} is in the store again"

    work.begin(f"restore {run_id} from {name}", copy)


def delete(run_ids: Sequence[str], *, tokens_only: bool) -> None:
    """Delete runs, or only their tokens and logprobs, and give the space back."""
    engine, named = writer(), tuple(run_ids)
    what = "the tokens of " if tokens_only else ""
    many = named[0] if len(named) == 1 else f"{len(named)} runs"

    def remove() -> str:
        gone, said = list[str](), list[str]()
        for run_id in named:
            try:
                if tokens_only:
                    maintenance.drop_tokens(engine, run_id=run_id)
                else:
                    maintenance.delete_run(engine, run_id=run_id)
            except (LookupError, StoreError) as error:
                said.append(str(error.args[0]))
            else:
                gone.append(run_id)
        if gone:
            maintenance.collect_garbage(engine)
            said.append(f"{what}{', '.join(gone)} deleted; the space is given back")
        if len(gone) < len(named):
            raise StoreError("; ".join(said))
        return said[0]

    work.begin(f"delete {what}{many}", remove)


def index() -> None:
    """Make findable what is not yet."""
    engine = writer()

    def add() -> str:
        return f"{maintenance.index_text(engine):,} steps were added to the text index"

    work.begin("index the text", add)


def prunable(*, older_than_days: float | None, keep_best: int | None) -> list[RunSummary]:
    """Runs that a rule lets go, the newest first; none that goes on.

    Args:
        older_than_days: Ended, or last heard of, longer ago than this.
        keep_best: So many with the highest return in an evaluation stay.
    """
    return _prunable(store_url(), work.ended(), older_than_days, keep_best)


@st.cache_data(ttl=FRESH_SECONDS, max_entries=16, show_spinner=False)
def _prunable(
    store: str, ended: tuple[float, ...], older_than_days: float | None, keep_best: int | None
) -> list[RunSummary]:
    seconds = None if older_than_days is None else older_than_days * 86_400
    rule = PruneRule(older_than_seconds=seconds, keep_best=keep_best)
    return maintenance.runs_to_prune(reader(), rule=rule)


def _new_file(name: str) -> Path:
    """A file that is not there yet, in the folder of archives, which then is."""
    folder = archives_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make the folder {folder} ({error.strerror})") from error
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    moment = time.strftime("%Y%m%d-%H%M%S")
    return folder / f"{safe}.{moment}{ENDING}"


def _listed(name: str) -> Path:
    """A file of the folder of archives; only those that `archives` lists are opened."""
    if name not in {each.name for each in archives()}:
        raise StoreError(f"there is no archive {name!r} in {archives_folder()}")
    return archives_folder() / name
