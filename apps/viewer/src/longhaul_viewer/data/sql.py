"""What the page SQL asks: the fenced box, the cookbook, a person's saved queries."""

from collections.abc import Mapping

from longhaul_core.errors import ConfigError
from longhaul_core.sql_box.box import QueryResult, run_query
from longhaul_core.sql_box.cookbook import Question
from longhaul_core.sql_box.cookbook.asking import statement_of
from longhaul_core.sql_box.limits import QueryLimits
from longhaul_core.sql_box.stores import sql_store
from longhaul_viewer.settings import store_url

__all__ = ["LIMITS", "answer", "statement"]

LIMITS = QueryLimits(seconds=20.0, rows=10_000)


def answer(sql: str) -> QueryResult:
    """The answer to one SELECT.

    Raises:
        ConfigError: The store is in PostgreSQL, and no fenced role was named.
        QueryError: The statement is wrong, may not be run, or took too much.
        StoreError: The store cannot be read.
    """
    return run_query(_store(), sql, limits=LIMITS)


def statement(asked: Question, values: Mapping[str, str]) -> str:
    """What is asked for a question of the cookbook.

    Raises:
        QueryError: A value is missing or wrong, or the store has no such run, episode or metric.
        ConfigError, StoreError: As `answer`.
    """
    return statement_of(_store(), asked, values)


def _store() -> str:
    store = sql_store(store_url())
    if store is None:
        raise ConfigError(
            "typed SQL is off: on PostgreSQL it needs the address of a fenced role. Make one by "
            "`trainer store fence-role`, and start the viewer with it in LONGHAUL_SQL_STORE"
        )
    return store
