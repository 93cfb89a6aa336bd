"""What a store is called, and what a database's errors about it mean.

An address may hold a password. `describe_store` gives the form that may be shown; nothing
else of an address reaches a message.
"""

import shutil
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, StatementError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from longhaul_core.errors import StoreError
from longhaul_core.redaction import redacted

__all__ = [
    "LOCK_WAIT_SECONDS",
    "describe_store",
    "is_temporary",
    "lost_log",
    "store_errors",
    "store_url",
]

LOCK_WAIT_SECONDS = 30
"""How long a transaction waits for another program's before it gives up."""

_TEMPORARY_STATES = {
    "08",  # the connection
    "40001",  # two transactions in each other's way
    "40P01",  # two transactions that wait for each other
    "53300",  # too many connections
    "55P03",  # a lock that did not come in time
    "57P01",  # the server is stopped,
    "57P02",  # has crashed,
    "57P03",  # or is starting
}
"""PostgreSQL's codes, or their first two letters, of what passes."""

_SERVER_ADVICE = "check the address, that the server runs, and the user's rights"


def store_url(store: str | Path) -> URL:
    """The database URL that `store` names.

    Args:
        store: A path (`"longhaul.db"`), `sqlite:///path`, or
            `postgresql://user:password@host/database`.

    Raises:
        StoreError: It names no database that a store can be kept in.
    """
    if isinstance(store, Path) or "://" not in store:
        if not str(store) or str(store) == ":memory:":
            raise StoreError(f"a store is a file or a PostgreSQL URL, got {str(store)!r}")
        return URL.create("sqlite", database=str(Path(store).expanduser().absolute()))
    try:
        url = make_url(store)
    except (ArgumentError, ValueError):
        # The cause would show the password.
        raise StoreError(f"not a database URL: {redacted(store)!r}") from None
    match url.get_backend_name():
        case "sqlite":
            if url.database is None or url.database in {"", ":memory:"}:
                raise StoreError(f"a SQLite store needs a file: 'sqlite:///path', got {store!r}")
            return store_url(Path(url.database))
        case "postgresql" | "postgres":
            return url.set(drivername="postgresql+psycopg")
        case other:
            raise StoreError(f"a store is kept in SQLite or PostgreSQL, not in {other!r}")


def describe_store(url: URL) -> str:
    """The store's address for people: no password, no URL parameters."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return url.set(query={}).render_as_string(hide_password=True)


@contextmanager
def store_errors(where: str) -> Generator[None]:
    """Turn the database's errors into a `StoreError` with what to do.

    Args:
        where: The store's address for people, see `describe_store`.
    """
    try:
        yield
    except DBAPIError as error:
        reason = redacted(str(error.orig).strip())
        raise StoreError(f"{where}: {reason}: {_advice(reason, where)}") from error
    except (StatementError, UnicodeDecodeError) as error:  # a value that is none of its column's
        raise StoreError(
            f"{where}: {redacted(str(error).strip())}: a value is not of its column's kind; the "
            f"file is damaged{lost_log(where)}, or was not written by this program: restore a copy"
        ) from error
    except NoConnectionFree as error:  # SQLAlchemy's own, before a database was asked
        raise StoreError(
            f"{where}: all connections of this program were busy for as long as one waits for "
            "them: try again, or ask fewer questions at once"
        ) from error


def is_temporary(error: StoreError) -> bool:
    """Whether the same may work in a while: the store is held, a server away, no connection free.

    Args:
        error: As `store_errors` raises it.
    """
    cause = error.__cause__
    if isinstance(cause, NoConnectionFree):
        return True
    if not isinstance(cause, DBAPIError):
        return False
    if isinstance(cause.orig, sqlite3.Error):
        code = getattr(cause.orig, "sqlite_errorcode", 0)  # a mistake in its use has none
        return code & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
    state: str | None = getattr(cause.orig, "sqlstate", None)
    if state is None:  # a connection that broke, or was never made
        return isinstance(cause, OperationalError)
    return not _TEMPORARY_STATES.isdisjoint({state, state[:2]})


def _advice(reason: str, where: str) -> str:
    """What to do about an error of a database, by its text: the drivers have no codes in common."""
    lowered = reason.lower()
    known = {
        "locked": f"another program held it for {LOCK_WAIT_SECONDS} s; end that program, "
        "or use PostgreSQL for many writers",
        "readonly": "no right to write; change the file's owner or rights, or name another store",
        "unable to open": "check that the folder exists and may be written",
        "disk is full": f"{_free_space(where)}free space there, or name a store on another one",
        "no space left": "free space on the disk, or name a store on another one",
        "disk i/o": "check the disk; SQLite's write-ahead mode does not work on network disks",
        "not a database": "it is some other file; name another path",
        "malformed": f"the file is damaged{lost_log(where)}; else restore a copy, or try SQLite's "
        "`.recover`",
        "not decode": "the file is damaged: a text in it is none; restore a copy",
        "connection": _SERVER_ADVICE,
        "authentication": _SERVER_ADVICE,
        "does not exist": _SERVER_ADVICE,
        "permission denied": _SERVER_ADVICE,
    }
    return next(
        (advice for sign, advice in known.items() if sign in lowered),
        "the store refused; nothing of this transaction was written",
    )


def lost_log(where: str) -> str:
    """What to ask whoever copied a SQLite file alone, in words that go on from a reason.

    Args:
        where: The store's address, see `describe_store`.

    Returns:
        Nothing where the log holds something, or there is no such file.
    """
    log = Path(f"{where}-wal")  # opening a copy makes an empty one
    if not Path(where).is_file() or (log.exists() and log.stat().st_size > 0):
        return ""
    return (
        f", or was copied without {where}-wal, which holds what was written last: copy both, or "
        "copy the store by `trainer runs backup`"
    )


def _free_space(where: str) -> str:
    """What is left on the disk of a SQLite file; nothing is known of a server's."""
    folder = Path(where).parent
    if not folder.is_dir():
        return ""
    usage = shutil.disk_usage(folder)
    return f"its disk has {usage.free / 2**20:,.1f} MiB free of {usage.total / 2**20:,.0f}; "
