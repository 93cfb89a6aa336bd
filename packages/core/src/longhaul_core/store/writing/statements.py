"""Many rows at once, in SQLite and in PostgreSQL.

Rows are sorted by key before they are inserted: two writers on one PostgreSQL database
that insert the same message would wait for each other in a circle otherwise.

The one decision to know: SQLite runs in this process, and is given a statement for each row. To
PostgreSQL a batch goes as one COPY, or as one statement over arrays of its columns: a statement
for each row costs either side more than the row does.
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Connection,
    Double,
    Integer,
    LargeBinary,
    String,
    Table,
    bindparam,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from longhaul_core.store.models import Base
from longhaul_core.store.rows import Row
from longhaul_core.store.writing.limits import require_storable

__all__ = ["insert", "insert_all", "insert_new", "sent_together", "update_all"]

_POSTGRESQL_TYPES: tuple[tuple[type[TypeEngine[Any]], str], ...] = (
    (BigInteger, "int8"),  # before Integer, which it is one of
    (Integer, "int4"),
    (Double, "float8"),
    (Boolean, "bool"),
    (LargeBinary, "bytea"),
    (String, "text"),
)
"""What PostgreSQL calls the types that columns of `models` have."""


def insert(connection: Connection, model: type[Base] | Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT of the connection's dialect, which has `on_conflict_do_nothing`."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(model)
    return sqlite.insert(model)


def insert_new(connection: Connection, model: type[Base], new: Sequence[Row]) -> None:
    """Insert the rows whose primary key is neither in the table nor earlier in `new`.

    Raises:
        StoreError: See `require_storable`.
    """
    if not new:
        return
    require_storable(model, new)
    key = [column.name for column in Base.metadata.tables[model.__tablename__].primary_key]
    unique: dict[tuple[object, ...], Row] = {}
    for row in new:
        unique.setdefault(tuple(row[column] for column in key), row)
    connection.execute(
        insert(connection, model).on_conflict_do_nothing(),
        [unique[values] for values in sorted(unique, key=str)],
    )


def insert_all(connection: Connection, model: type[Base], new: Sequence[Row]) -> None:
    """Insert rows that no other transaction can have inserted: what hangs on a row of this one.

    Args:
        connection: In a transaction.
        model: The table.
        new: Rows with equal keys.

    Raises:
        StoreError: See `require_storable`.
    """
    if not new:
        return
    require_storable(model, new)
    if connection.dialect.name == "postgresql":
        _copy(connection, Base.metadata.tables[model.__tablename__], new)
    else:
        connection.execute(insert(connection, model), list(new))


def _copy(connection: Connection, table: Table, new: Sequence[Row]) -> None:
    """COPY the rows into a table of PostgreSQL."""
    names = list(new[0])
    with _psycopg(connection) as psycopg, psycopg.cursor() as cursor:
        statement = f"COPY {table.name} ({', '.join(names)}) FROM STDIN (FORMAT BINARY)"
        with cursor.copy(statement.encode()) as copy:
            copy.set_types([_postgresql_type(table, name) for name in names])
            for row in new:
                copy.write_row([row[name] for name in names])


def update_all(
    connection: Connection, model: type[Base], new: Sequence[Row], *, where: dict[str, str]
) -> None:
    """Update one row per entry of `new`: its keys `new_x` set column x.

    Args:
        connection: In a transaction.
        model: The table.
        new: Entries with equal keys, each for another row.
        where: Column to the key of the entry that it must equal.

    Raises:
        StoreError: See `require_storable`.
    """
    if not new:
        return
    require_storable(model, new, prefix="new_")
    table = Base.metadata.tables[model.__tablename__]
    if connection.dialect.name == "postgresql":
        _update_from_arrays(connection, table, new, where=where)
        return
    statement = (
        update(table)
        .where(*(table.c[column] == bindparam(key) for column, key in where.items()))
        .values(
            {
                table.c[key.removeprefix("new_")]: bindparam(key)
                for key in new[0]
                if key.startswith("new_")
            }
        )
    )
    connection.execute(statement, list(new))


def _update_from_arrays(
    connection: Connection, table: Table, new: Sequence[Row], *, where: dict[str, str]
) -> None:
    """`update_all` in one statement of PostgreSQL, whose parameters are columns of `new`."""
    columns = {key: column for column, key in where.items()}
    columns |= {key: key.removeprefix("new_") for key in new[0] if key.startswith("new_")}
    arrays = ", ".join(f"%s::{_postgresql_type(table, column)}[]" for column in columns.values())
    values = ", ".join(f"{columns[key]} = of.{key}" for key in columns if key.startswith("new_"))
    same = " AND ".join(f"{table.name}.{column} = of.{key}" for column, key in where.items())
    statement = (
        f"UPDATE {table.name} SET {values} FROM unnest({arrays}) AS of ({', '.join(columns)}) "
        f"WHERE {same}"
    )
    parameters = [_array(row[key] for row in new) for key in columns]
    with _psycopg(connection) as psycopg:
        # Planned each time: what is best for the first rows of a table would read all of it later.
        psycopg.execute(statement.encode(), parameters, prepare=False)


@contextmanager
def sent_together(connection: Connection) -> Generator[None]:
    """Let PostgreSQL be waited for once for all that `update_all` does in the block, at its end."""
    if connection.dialect.name != "postgresql":
        yield
        return
    with _psycopg(connection) as psycopg, psycopg.pipeline():
        yield


@contextmanager
def _psycopg(connection: Connection) -> Generator[Any]:
    """The connection of psycopg, which core does not import; its errors come as SQLAlchemy's.

    Raises:
        DBAPIError: The database refused.
    """
    dialect = connection.dialect
    refused = dialect.loaded_dbapi.Error
    try:
        yield connection.connection.dbapi_connection
    except refused as error:
        raise DBAPIError.instance(None, None, error, refused, dialect=dialect) from error


def _array(values: Iterable[str | float | bytes | None]) -> str:
    """An array as PostgreSQL reads it, a third of the time that psycopg takes for a list."""
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: str | float | bytes | None) -> str:
    match value:
        case None:
            return "NULL"
        case bytes():
            return f'"\\\\x{value.hex()}"'
        case str():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            return f'"{escaped}"'
        case _:
            return str(value)


@cache
def _postgresql_type(table: Table, name: str) -> str:
    column = table.columns[name]
    return next(known for kind, known in _POSTGRESQL_TYPES if isinstance(column.type, kind))
