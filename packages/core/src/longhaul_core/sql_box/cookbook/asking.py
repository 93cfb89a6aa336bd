"""Answers a question of the cookbook for somebody who types the name of a run."""

from collections.abc import Mapping

from longhaul_core.errors import ConfigError, QueryError
from longhaul_core.run_names import pick_run
from longhaul_core.sql_box.box import QueryResult, run_query
from longhaul_core.sql_box.cookbook import Question
from longhaul_core.sql_box.limits import QueryLimits

__all__ = ["ask_question"]

_RUNS = "SELECT id FROM runs ORDER BY started_at, id"
_MOST_RUNS = 100_000


def ask_question(
    store: str, asked: Question, values: Mapping[str, str | int], *, limits: QueryLimits
) -> QueryResult:
    """The answer of a question.

    Args:
        store: As for `run_query`.
        asked: The question.
        values: Of its parameters, by name. A run may be named by its id, by the beginning of just
            one, or as `last`.
        limits: Of the answer.

    Raises:
        QueryError: A value is missing or wrong, there is no such run, or a limit was reached.
        ConfigError, StoreError: As `run_query`.
    """
    asked.filled(values)  # what is missing is said before the store is asked
    named = [one.name for one in asked.parameters if one.is_run and one.name in values]
    if named:
        rows = run_query(store, _RUNS, limits=QueryLimits(rows=_MOST_RUNS)).rows
        run_ids = [str(row[0]) for row in rows]
        try:
            picked = {
                name: pick_run(str(values[name]), run_ids, place="the store") for name in named
            }
        except ConfigError as error:
            raise QueryError(str(error)) from error
        values = {**values, **picked}
    return run_query(store, asked.filled(values), limits=limits)
