"""Copies of what a store holds: a whole store, or one run as a store of its own.

All are taken while runs go on: they read one state of the database, and hold up no writer.

The one decision to know: an archive is a store. Whatever opens a store opens it, of whichever
database the run came from. One table more has a hash of each run's rows, so that what a disk or a
copy changed is not restored.
"""

import fcntl
import hashlib
import os
import sqlite3
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from sqlalchemy import Connection, Engine, Select, Table, func, inspect, select, text, update

from longhaul_core.errors import StoreError
from longhaul_core.store.addresses import describe_store, store_errors
from longhaul_core.store.maintenance import delete_run, short_transaction
from longhaul_core.store.models import Base
from longhaul_core.store.session import (
    autocommit,
    open_store,
    read_only_engine,
    write_transaction,
)
from longhaul_core.store.writer import CONTENT_TABLE, as_writer
from longhaul_core.store.writing.statements import insert

__all__ = ["archive_run", "back_up", "copy_run", "opened_archive", "verify_archive"]

_EPISODES_PER_BATCH = 50
_NOT_OF_A_RUN = frozenset({"search_progress"})
_SHARED = ("tasks", "tool_lists", "media", "panel_tasks")
"""Tables whose rows several runs may use; one that is there stays as it is."""
_ADDED_LATER = frozenset({"labels", "audits", "audit_findings", "commits", "changes"})
"""Tables that people add to, in an archive too, and those that say so."""
_ROWS_AT_ONCE = 1_000
_UNFINISHED = "its copy was cut short: delete the run here, and copy it again"


def back_up(engine: Engine, target: Path) -> None:
    """Write the whole store into a new file, without the free pages that it has.

    Args:
        engine: Of a SQLite store; the programs of PostgreSQL copy a PostgreSQL store.
        target: A file that is not there yet.

    Raises:
        StoreError: The file is there or cannot be written, or the store is no SQLite file.
    """
    if engine.dialect.name != "sqlite":
        raise StoreError(
            f"{describe_store(engine.url)} is a PostgreSQL database: back it up with pg_dump, "
            "which runs may go on beside"
        )
    with _new_file(target) as partial, autocommit(engine) as connection:
        connection.execute(text("VACUUM INTO :target"), {"target": str(partial)})
        copy = read_only_engine(partial)
        try:
            with _snapshot(copy) as reading:
                run_ids = reading.scalars(select(Base.metadata.tables["runs"].c.id)).all()
                hashes = {run_id: _content_hash(reading, run_id) for run_id in run_ids}
        finally:
            copy.dispose()
        _write_hashes(partial, hashes)


def archive_run(engine: Engine, *, run_id: str, target: Path) -> None:
    """Copy one run into a new SQLite file, which is a store of its own.

    Args:
        engine: Of a store.
        run_id: Which.
        target: A file that is not there yet.

    Raises:
        LookupError: There is no such run.
        StoreError: The file is there or cannot be written, or the store refused.
    """
    with _new_file(target) as partial:
        archive = open_store(partial)
        try:
            content_hash = _copy_run(engine, archive, run_id=run_id, keep_part=True)
        finally:
            archive.dispose()
        _write_hashes(partial, {run_id: content_hash})


@contextmanager
def opened_archive(file: Path) -> Generator[Engine]:
    """An engine that reads an archive or a backup, which stays as it is to the byte.

    Args:
        file: A SQLite store.

    Raises:
        StoreError: It is no store, or of another schema.
    """
    engine = read_only_engine(file)
    try:
        with store_errors(describe_store(engine.url)), engine.connect() as connection:
            _require_tables(connection, file)
        yield engine
    finally:
        engine.dispose()


def _require_tables(connection: Connection, file: Path) -> None:
    """Refuse a file in which a table's name is that of a view, which may have no end.

    Raises:
        StoreError: There is one, or a table that a module makes up.
    """
    found = connection.execute(text("SELECT name, type, sql FROM sqlite_master")).all()
    for name, kind, sql in found:
        if name in Base.metadata.tables and (
            kind != "table" or str(sql).upper().startswith("CREATE VIRTUAL")
        ):
            raise StoreError(
                f"{file} was not written by this program: its {name!r} is a {kind} of another "
                f"kind than a store's table: {sql!s:.80}"
            )


def verify_archive(engine: Engine) -> dict[str, bool | None]:
    """Whether the rows of each run are those that were written, by the run's id, newest first.

    Args:
        engine: As `opened_archive` gives it.

    Returns:
        None for a run without a hash.

    Raises:
        StoreError: It cannot be read.
    """
    run = Base.metadata.tables["runs"]
    with _snapshot(engine) as reading:
        run_ids = reading.scalars(select(run.c.id).order_by(run.c.started_at.desc())).all()
        written = _written_hashes(reading)
        return {
            each: _content_hash(reading, each) == written[each] if each in written else None
            for each in run_ids
        }


def copy_run(source: Engine, target: Engine, *, run_id: str) -> None:
    """Copy one run, as it is at one moment, from a store into another; on either database.

    What an error leaves of a copy is deleted. What the death of the process leaves says `failed`,
    with a message: delete it by `maintenance.delete_run`, and make the copy again.

    Args:
        source: Read from.
        target: Written to, a few episodes in a transaction; other writers have their turn between
            two.
        run_id: Which.

    Raises:
        LookupError: There is no such run in `source`.
        StoreError: It is in `target` already, a store refused, or `source` is an archive whose rows
            are not those that were written.
    """
    _copy_run(source, target, run_id=run_id, keep_part=False)


def _copy_run(source: Engine, target: Engine, *, run_id: str, keep_part: bool) -> str:
    """Returns the hash of what was copied."""
    content = _Content()
    with _snapshot(source) as reading:
        run = Base.metadata.tables["runs"]
        of_run = select(run.c.status, run.c.message).where(run.c.id == run_id)
        state = reading.execute(of_run).mappings().one_or_none()
        if state is None:
            raise LookupError(f"there is no run {run_id!r} in {describe_store(source.url)}")
        ids = _episode_ids(reading, run_id)
        this = update(run).where(run.c.id == run_id)
        with _writing(target, alone=keep_part) as writing:
            if writing.scalar(select(run.c.id).where(run.c.id == run_id)) is not None:
                raise StoreError(f"run {run_id!r} is in {describe_store(target.url)} already")
            for table in _TABLES_OF_A_RUN:
                _copy(reading, writing, table, _of_run(table, run_id), content)
            writing.execute(this.values(status="failed", message=_UNFINISHED))
        try:
            _copy_episodes(reading, target, ids, content, run_id=run_id, alone=keep_part)
            written = {} if keep_part else _written_hashes(reading)
            if written.get(run_id, content.sha256) != content.sha256:
                raise StoreError(
                    f"run {run_id!r} in {describe_store(source.url)} is not what was written "
                    "there: the file is damaged, or somebody wrote into it; restore another copy"
                )
            with _writing(target, alone=keep_part) as writing:
                writing.execute(this.values(**state))
        except BaseException:
            if not keep_part:
                with suppress(LookupError, StoreError):
                    delete_run(target, run_id=run_id, force=True)
            raise
    return content.sha256


def _copy_episodes(
    reading: Connection,
    target: Engine,
    ids: Sequence[str],
    content: "_Content",
    *,
    run_id: str,
    alone: bool,
) -> None:
    for some in _batches(ids):
        with _writing(target, alone=alone) as writing:
            for table in _TABLES_OF_EPISODES:
                _copy(reading, writing, table, _of_episodes(table, some), content)
    num_copied = _count(target, run_id)
    if num_copied != len(ids):
        raise StoreError(
            f"of {len(ids)} episodes of run {run_id!r} {num_copied} are in "
            f"{describe_store(target.url)}"
        )


@contextmanager
def _writing(target: Engine, *, alone: bool) -> Generator[Connection]:
    """A transaction of a copy; `alone` where nobody else writes into the target."""
    with (write_transaction if alone else short_transaction)(target) as connection:
        as_writer(connection)
        yield connection


def _of_episode(table: Table) -> bool:
    return "episode_id" in table.c and "run_id" not in table.c


_TABLES_OF_EPISODES = [
    each
    for each in Base.metadata.sorted_tables
    if each.name in {"episodes", "media", "tool_lists"} or _of_episode(each)
]
_TABLES_OF_A_RUN = [
    each
    for each in Base.metadata.sorted_tables
    if each not in _TABLES_OF_EPISODES and each.name not in _NOT_OF_A_RUN
]


def _of_run(table: Table, run_id: str) -> Select[*tuple[object, ...]]:
    """The rows of a table that a run has, but for those of its episodes."""
    named = Base.metadata.tables
    if table.name == "runs":
        return select(table).where(table.c.id == run_id)
    if table.name == "panel_tasks":
        panels = named["panels"]
        used = select(panels.c.content_hash).where(panels.c.run_id == run_id)
        return select(table).where(table.c.content_hash.in_(used))
    if table.name == "tasks":
        groups, panels, listed = named["groups"], named["panels"], named["panel_tasks"]
        of_panels = (
            select(listed.c.task_hash)
            .join(panels, panels.c.content_hash == listed.c.content_hash)
            .where(panels.c.run_id == run_id)
        )
        of_groups = select(groups.c.task_hash).where(groups.c.run_id == run_id)
        return select(table).where(table.c.hash.in_(of_groups) | table.c.hash.in_(of_panels))
    return select(table).where(table.c.run_id == run_id)


def _of_episodes(table: Table, episode_ids: Sequence[str]) -> Select[*tuple[object, ...]]:
    """The rows of a table that some episodes have, in the order in which they were written."""
    named = Base.metadata.tables
    if table.name == "episodes":
        return select(table).where(table.c.id.in_(episode_ids))
    if table.name in {"media", "tool_lists"}:
        users = named["episode_media" if table.name == "media" else "episode_tools"]
        used = select(users.c.content_hash).where(users.c.episode_id.in_(episode_ids))
        return select(table).where(table.c.content_hash.in_(used))
    return (
        select(table)
        .where(table.c.episode_id.in_(episode_ids))
        .order_by(*(table.c[name] for name in ("id",) if name in table.c))
    )


def _copy(
    reading: Connection,
    writing: Connection,
    table: Table,
    rows: Select[*tuple[object, ...]],
    content: "_Content",
) -> None:
    statement = insert(writing, table)
    if table.name in _SHARED:
        statement = statement.on_conflict_do_nothing()
    for some in _read(reading, table, rows):
        content.add(table, some)
        writing.execute(statement, some)


def _read(
    reading: Connection, table: Table, rows: Select[*tuple[object, ...]]
) -> Generator[list[dict[str, object]]]:
    """Rows of a table, some at a time, without the numbers that each store gives them itself."""
    numbered = table.name in {"observations", "calls"}
    result = reading.execute(rows, execution_options={"yield_per": _ROWS_AT_ONCE})
    for some in result.mappings().partitions():
        yield [
            {name: value for name, value in row.items() if not (numbered and name == "id")}
            for row in some
        ]


class _Content:
    """A hash of rows, whatever their order."""

    def __init__(self) -> None:
        self._sum = 0
        self._shared: set[bytes] = set()
        """Of rows that several batches of episodes may use."""

    def add(self, table: Table, rows: Sequence[Mapping[str, object]]) -> None:
        """Count some rows of a table in."""
        if table.name in _ADDED_LATER:
            return
        for row in rows:
            values = [
                (name, hashlib.sha256(value).digest() if isinstance(value, bytes) else value)
                for name, value in sorted(row.items())
            ]
            digest = hashlib.sha256(repr((table.name, values)).encode()).digest()
            if table.name in _SHARED:
                if digest in self._shared:
                    continue
                self._shared.add(digest)
            self._sum += int.from_bytes(digest, "big")

    @property
    def sha256(self) -> str:
        """The sum of the rows' own hashes, 64 hexadecimal digits."""
        return f"{self._sum % 2**256:064x}"


def _content_hash(reading: Connection, run_id: str) -> str:
    """The hash of a run's rows, as `_copy_run` returns it."""
    content = _Content()
    for table in _TABLES_OF_A_RUN:
        for some in _read(reading, table, _of_run(table, run_id)):
            content.add(table, some)
    for ids in _batches(_episode_ids(reading, run_id)):
        for table in _TABLES_OF_EPISODES:
            for some in _read(reading, table, _of_episodes(table, ids)):
                content.add(table, some)
    return content.sha256


def _episode_ids(reading: Connection, run_id: str) -> Sequence[str]:
    episodes = Base.metadata.tables["episodes"]
    of_run = select(episodes.c.id).where(episodes.c.run_id == run_id)
    return reading.scalars(of_run.order_by(episodes.c.training_step, episodes.c.id)).all()


def _batches(ids: Sequence[str]) -> Generator[Sequence[str]]:
    for start in range(0, len(ids), _EPISODES_PER_BATCH):
        yield ids[start : start + _EPISODES_PER_BATCH]


def _write_hashes(file: Path, hashes: Mapping[str, str]) -> None:
    """Put the hashes of the runs into a copy, and all of it into the file alone."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {CONTENT_TABLE}")
        connection.execute(f"CREATE TABLE {CONTENT_TABLE} (run_id TEXT PRIMARY KEY, sha256 TEXT)")
        connection.executemany(f"INSERT INTO {CONTENT_TABLE} VALUES (?, ?)", [*hashes.items()])
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")


def _written_hashes(reading: Connection) -> dict[str, str]:
    """What `_write_hashes` wrote; nothing in a store that is no copy."""
    if not inspect(reading).has_table(CONTENT_TABLE):
        return {}
    rows = reading.execute(text(f"SELECT run_id, sha256 FROM {CONTENT_TABLE}")).all()
    return {str(run_id): str(sha256) for run_id, sha256 in rows}


def _count(engine: Engine, run_id: str) -> int:
    episodes = Base.metadata.tables["episodes"]
    of_run = select(func.count()).select_from(episodes).where(episodes.c.run_id == run_id)
    with store_errors(describe_store(engine.url)), engine.connect() as connection:
        return connection.execute(of_run).scalar_one()


@contextmanager
def _snapshot(engine: Engine) -> Generator[Connection]:
    """A connection that sees one state of the database, whatever is written meanwhile."""
    level = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with (
        store_errors(describe_store(engine.url)),
        engine.connect().execution_options(**level) as connection,
    ):
        yield connection


@contextmanager
def _new_file(target: Path) -> Generator[Path]:
    """A file beside `target`, which becomes it at the end of the block.

    Raises:
        StoreError: There is a `target`, no folder for it, or another program that writes it.
    """
    if not target.parent.is_dir():
        raise StoreError(f"there is no folder {target.parent}")
    partial = target.with_name(f"{target.name}.partial")
    with _held(partial, target) as held:
        names = [partial, *(partial.with_name(partial.name + end) for end in ("-wal", "-shm"))]
        for name in names[1:]:
            name.unlink(missing_ok=True)  # of a copy that was cut short
        os.ftruncate(held, 0)
        try:
            yield partial
            partial.replace(target)
        finally:
            for name in names:
                name.unlink(missing_ok=True)


@contextmanager
def _held(partial: Path, target: Path) -> Generator[int]:
    """An open file that no other copy holds, until the process ends; SQLite has locks of its own.

    Raises:
        StoreError: Another program holds it, or there is a `target`, maybe since a moment ago.
    """
    there = StoreError(f"{target} is there already: name another file")
    if target.exists():
        raise there
    try:
        held = os.open(partial, os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise StoreError(f"{partial} cannot be written: {error.strerror}") from error
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(f"another program writes {target} now: name another file") from error
        if target.exists():
            raise there
        if not _is_at(held, partial):
            raise StoreError(f"another program wrote {target} a moment ago: try again")
        yield held
    finally:
        os.close(held)


def _is_at(held: int, path: Path) -> bool:
    """Whether the open file is the one of that name: it was removed or renamed otherwise."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(held), path.stat())
    return False
