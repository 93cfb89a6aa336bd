"""Opens a store: connections, transactions, schema versions.

A store is a SQLite file (the embedded default, in write-ahead mode, so that readers and
one writer do not wait for each other) or a PostgreSQL database. `open_store` creates it;
`read_only_engine` changes nothing. Both refuse a store of another schema.

The one decision to know: a write transaction in SQLite takes the write lock when it
begins (`write_transaction`). One that began as a reader and then wrote would fail at
once, without waiting, if another process had written in between.
"""

import os
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.exc import NoSuchModuleError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from longhaul_core.errors import StoreError
from longhaul_core.store.addresses import (
    LOCK_WAIT_SECONDS,
    describe_store,
    lost_log,
    store_errors,
    store_url,
)
from longhaul_core.store.models import SCHEMA_VERSION, Base
from longhaul_core.store.schema import VERSION_TABLE, create_schema

__all__ = [
    "autocommit",
    "check_store",
    "checkpoint",
    "connect_read_only",
    "open_store",
    "read_only_address",
    "read_only_engine",
    "write_transaction",
]

_MOST_CONNECTIONS = 15
"""Of an engine, all of them kept: for one that is opened for a request PostgreSQL begins a process,
and SQLite reads its whole schema."""

WITHOUT_LOCKS = "vfs=unix-none"
"""In SQLite's address of a store whose log is read although no index of it can be made beside it:
alone, without locks, a connection keeps the index in its memory."""

_CREATION_LOCK = 0x10D6_4A01  # any number, the same in every process


def open_store(store: str | Path | URL, *, create: bool = True) -> Engine:
    """An engine on a store whose schema is the one this program knows.

    Args:
        store: A path or URL, see `store_url`.
        create: Create the store if there is none.

    Returns:
        An engine that reads and writes. Write through `write_transaction`.

    Raises:
        StoreError: The store cannot be reached or written, is locked, is no store, is of another
            schema, or does not exist and `create` is False.
    """
    url = store if isinstance(store, URL) else store_url(store)
    where = describe_store(url)
    if url.get_backend_name() == "sqlite":
        path = Path(str(url.database))
        if not path.exists() and not create:
            raise StoreError(f"there is no store at {where}: start a run, or name another one")
        _make_folder(path.parent)
        engine = create_engine(url, connect_args={"timeout": LOCK_WAIT_SECONDS})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        engine = _postgresql_engine(url)
    try:
        with store_errors(where):
            with engine.connect() as connection:
                there = _is_store(connection, where)
            if not there:
                if not create:
                    raise StoreError(f"{where} holds no store yet{lost_log(where)}")
                _create(engine, where)
                checkpoint(engine)
    except BaseException:
        engine.dispose()
        raise
    return engine


def read_only_engine(store: str | Path | URL) -> Engine:
    """An engine that cannot write: for the API, the viewer and people's SQL.

    A transaction of it sees one state of the store, whatever is written meanwhile.

    Args:
        store: A path or URL, see `store_url`.

    Raises:
        StoreError: There is no store, or its schema is not the one this program knows.
    """
    url = store if isinstance(store, URL) else store_url(store)
    where = describe_store(url)
    if url.get_backend_name() == "sqlite":
        path = Path(str(url.database))
        if not path.exists():
            raise StoreError(f"there is no store at {where}: start a run, or name another one")
        engine = create_engine(
            url,
            creator=lambda: connect_read_only(path),
            poolclass=QueuePool,
            pool_size=_MOST_CONNECTIONS,
            max_overflow=0,
        )
        event.listen(engine, "begin", _begin_sqlite)
    else:
        # As in SQLite, the statements of a transaction see one state: an answer is of several.
        one_state = r"-c default_transaction_isolation=repeatable\ read"
        engine = _postgresql_engine(url, options=f"-c default_transaction_read_only=on {one_state}")
    try:
        with store_errors(where), engine.connect() as connection:
            there = _is_store(connection, where)
        if not there:
            raise StoreError(
                f"{where} holds no store yet: start a run, or name another one{lost_log(where)}"
            )
    except BaseException:
        engine.dispose()
        raise
    return engine


def check_store(store: str | Path) -> str:
    """One line on a store's state, for people; creates nothing and changes nothing.

    Raises:
        StoreError: It could not be created, written, or read by this program.
    """
    url = store_url(store)
    where = describe_store(url)
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        folder = next(p for p in Path(str(url.database)).parents if p.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise StoreError(f"{where} cannot be created: no right to write in {folder}")
        return f"{where}: will be created"
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": 2})
        event.listen(engine, "begin", _begin_sqlite)
    else:
        engine = _postgresql_engine(url)
    try:
        with store_errors(where):
            with engine.connect() as connection:
                there = _is_store(connection, where)
            with _immediate(engine) as connection:
                _probe_write(connection)
                connection.rollback()
    finally:
        engine.dispose()
    if not there:
        return f"{where}: empty, the store will be created in it"
    return f"{where}: writable, schema {SCHEMA_VERSION}"


@contextmanager
def write_transaction(engine: Engine) -> Generator[Connection]:
    """A connection in a write transaction that commits at the end of the block.

    Raises:
        StoreError: The database refused; nothing of the block was written.
    """
    with store_errors(describe_store(engine.url)), _immediate(engine) as connection:
        yield connection
        connection.commit()


@contextmanager
def autocommit(engine: Engine) -> Generator[Connection]:
    """A connection without a transaction, for statements that cannot run in one.

    Raises:
        StoreError: The database refused.
    """
    with (
        store_errors(describe_store(engine.url)),
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
    ):
        yield connection


def checkpoint(engine: Engine, *, empty: bool = False) -> bool:
    """Bring what was committed from SQLite's write-ahead log into the file, and wait for nobody.

    A reader that sees an older state keeps the newer part in the log. The file alone is then of no
    one state: who copies it needs the log too.

    Args:
        engine: Of a store that may be written.
        empty: Also empty the log, if nobody reads from it now.

    Returns:
        Whether the file alone held everything; always on PostgreSQL.

    Raises:
        StoreError: The database refused.
    """
    if engine.dialect.name != "sqlite":
        return True
    with autocommit(engine) as connection:
        waited = connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()
        connection.exec_driver_sql("PRAGMA busy_timeout = 0")
        try:
            mode = "TRUNCATE" if empty else "PASSIVE"
            row = connection.exec_driver_sql(f"PRAGMA wal_checkpoint({mode})").one()
        finally:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {waited}")
    _held, num_pages, num_brought = row
    return num_pages == num_brought


@contextmanager
def _immediate(engine: Engine) -> Generator[Connection]:
    with engine.connect().execution_options(longhaul_write=True) as connection, connection.begin():
        yield connection


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot create the store's folder {folder}: {error.strerror}") from error


def _postgresql_engine(url: URL, *, options: str = "") -> Engine:
    try:
        return create_engine(
            url,
            connect_args={"connect_timeout": 10, "options": f"{options} -c lock_timeout=30s"},
            pool_pre_ping=True,
            pool_size=_MOST_CONNECTIONS,
            max_overflow=0,
        )
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise StoreError(
            "a PostgreSQL store needs its driver: install longhaul-core[postgresql]"
        ) from error


def _prepare_sqlite(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA page_size = 8192")  # a call mostly fits; new files only
    _write_ahead(cursor)
    # A commit survives the death of the process; the last ones may be lost with the power.
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute("PRAGMA cache_size = -65536")  # KiB
    cursor.execute("PRAGMA wal_autocheckpoint = 4000")
    cursor.close()


def _write_ahead(cursor: DBAPICursor) -> None:
    """Put the file into write-ahead mode.

    A new file needs a lock for it, the one lock that SQLite itself does not wait for: of
    several programs that create a store at once all but one would fail.
    """
    give_up = time.monotonic() + LOCK_WAIT_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: Connection) -> None:
    # Python's sqlite3 begins transactions by itself, deferred and not before DDL; with
    # isolation_level None it leaves that to us.
    raw = connection.connection.dbapi_connection
    assert isinstance(raw, sqlite3.Connection)
    raw.isolation_level = None
    options = connection.get_execution_options()
    if options.get("isolation_level") != "AUTOCOMMIT":
        connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("longhaul_write") else "BEGIN")


def read_only_address(path: Path) -> str:
    """SQLite's address of a file that is to be read and not written.

    One with `WITHOUT_LOCKS` in it is read after `PRAGMA locking_mode = EXCLUSIVE`.
    """
    address = f"file:{quote(str(path))}?mode=ro"
    if os.access(path.parent, os.W_OK):
        return address
    if not Path(f"{path}-wal").exists():
        return f"{address}&immutable=1"  # a log cannot be made beside it, nor is one needed
    if not Path(f"{path}-shm").exists():  # nor can the log's index, which every writer has made
        return f"{address}&{WITHOUT_LOCKS}"
    return address


def connect_read_only(path: Path) -> sqlite3.Connection:
    """A connection that reads a SQLite store, and writes nothing, not beside it either.

    Raises:
        sqlite3.Error: It cannot be opened.
    """
    address = read_only_address(path)
    connection = sqlite3.connect(
        address, uri=True, timeout=LOCK_WAIT_SECONDS, check_same_thread=False
    )
    if WITHOUT_LOCKS in address:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    return connection


def _probe_write(connection: Connection) -> None:
    """Write something in a transaction that the caller rolls back."""
    connection.execute(text("CREATE TABLE longhaul_probe (x INTEGER)"))


def _is_store(connection: Connection, where: str) -> bool:
    """Whether the database holds a store; False if it holds nothing of ours and none in our way.

    Raises:
        StoreError: The store is of another schema, or there is a table that ours would be.
    """
    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE in tables:
        version = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
        if version not in (None, SCHEMA_VERSION):
            _refuse(str(version), where)
        return version is not None
    strangers = tables & set(Base.metadata.tables)
    if strangers:
        raise StoreError(
            f"{where} is not a Longhaul store but holds tables that a store would use "
            f"({', '.join(sorted(strangers))}): name another database"
        )
    return False


def _refuse(version: str, where: str) -> NoReturn:
    read = f"schema {version}; this program reads {SCHEMA_VERSION}"
    numbered = version.isdecimal() and not version.startswith("0")
    if numbered and int(version) > int(SCHEMA_VERSION):
        raise StoreError(
            f"{where} was written by a newer version of Longhaul ({read}): upgrade the program, "
            "or name another store"
        )
    raise StoreError(
        f"{where} was written by a development version of Longhaul ({read}), which no release "
        "ever wrote and none reads: name another store, or move this one away; its runs can be "
        "read and resumed only by the program that wrote it"
    )


def _create(engine: Engine, where: str) -> None:
    with _immediate(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _CREATION_LOCK})
        if not _is_store(connection, where):  # again: another process may have been first
            create_schema(connection)
        connection.commit()
