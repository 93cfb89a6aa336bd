"""Statements that SQLite and PostgreSQL both know, for many rows at once.

Rows are sorted by key before they are inserted: two writers on one PostgreSQL database
that insert the same message would wait for each other in a circle otherwise.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, Table, bindparam, update
from sqlalchemy.dialects import postgresql, sqlite

from longhaul_core.store.models import Base
from longhaul_core.store.rows import Row
from longhaul_core.store.writing.limits import require_storable

__all__ = ["insert", "insert_new", "update_all"]


def insert(connection: Connection, model: type[Base] | Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT of the connection's dialect, which has `on_conflict_do_nothing`."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(model)
    return sqlite.insert(model)


def insert_new(
    connection: Connection, model: type[Base], new: Sequence[Row], *, key: tuple[str, ...]
) -> None:
    """Insert the rows whose `key` is neither in the table nor earlier in `new`.

    Raises:
        StoreError: See `require_storable`.
    """
    if not new:
        return
    require_storable(model, new)
    unique: dict[tuple[object, ...], Row] = {}
    for row in new:
        unique.setdefault(tuple(row[column] for column in key), row)
    connection.execute(
        insert(connection, model).on_conflict_do_nothing(),
        [unique[values] for values in sorted(unique, key=str)],
    )


def update_all(
    connection: Connection, model: type[Base], new: Sequence[Row], *, where: dict[str, str]
) -> None:
    """Update one row per entry of `new`: its keys `new_x` set column x.

    Args:
        connection: In a transaction.
        model: The table.
        new: Entries with equal keys.
        where: Column to the key of the entry that it must equal.

    Raises:
        StoreError: See `require_storable`.
    """
    if not new:
        return
    require_storable(model, new, prefix="new_")
    table = Base.metadata.tables[model.__tablename__]
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
