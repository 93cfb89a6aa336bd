"""Which address typed SQL goes to."""

import os

from longhaul_core.store.addresses import store_url

__all__ = ["SQL_STORE_VARIABLE", "sql_store"]

SQL_STORE_VARIABLE = "LONGHAUL_SQL_STORE"


def sql_store(store: str) -> str | None:
    """The address for the box of a program that serves a store.

    Args:
        store: Path or URL of the store that it serves.

    Returns:
        The same for a SQLite file. For PostgreSQL that of a fenced role, which `LONGHAUL_SQL_STORE`
        names; None if it names none, since the served address mostly is the owner's.

    Raises:
        StoreError: `store` names no database that a store can be kept in.
    """
    if store_url(store).get_backend_name() == "sqlite":
        return store
    return os.environ.get(SQL_STORE_VARIABLE) or None
