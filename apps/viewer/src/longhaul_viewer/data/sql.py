"""What the page SQL asks: the fenced box, the cookbook, a person's saved queries."""

from longhaul_core.errors import ConfigError
from longhaul_core.sql_box.box import QueryResult, run_query
from longhaul_core.sql_box.limits import QueryLimits
from longhaul_core.sql_box.stores import sql_store
from longhaul_viewer.settings import store_url

__all__ = ["LIMITS", "answer"]

LIMITS = QueryLimits(seconds=20.0, rows=10_000)


def answer(sql: str) -> QueryResult:
    """The answer to one SELECT.

    Raises:
        ConfigError: The store is in PostgreSQL, and no fenced role was named.
        QueryError: The statement is wrong, may not be run, or took too much.
        StoreError: The store cannot be read.
    """
    store = sql_store(store_url())
    if store is None:
        raise ConfigError(
            "typed SQL is off: on PostgreSQL it needs the address of a fenced role. Make one by "
            "`trainer store fence-role`, and start the viewer with it in LONGHAUL_SQL_STORE"
        )
    return run_query(store, sql, limits=LIMITS)
