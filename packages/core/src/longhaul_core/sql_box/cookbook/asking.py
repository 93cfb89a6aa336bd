"""Answers a question of the cookbook, if the store has what its parameters name."""

from collections.abc import Mapping
from difflib import get_close_matches

from longhaul_core.errors import ConfigError, QueryError
from longhaul_core.run_names import pick_run
from longhaul_core.sql_box.box import QueryResult, run_query
from longhaul_core.sql_box.cookbook import Named, Question, quoted
from longhaul_core.sql_box.limits import QueryLimits

__all__ = ["ask_question", "statement_of"]

_RUNS = "SELECT id FROM runs ORDER BY started_at, id"
_MOST_NAMES = 100_000


def ask_question(
    store: str, asked: Question, values: Mapping[str, str | int], *, limits: QueryLimits
) -> QueryResult:
    """The answer of a question.

    Args:
        store: As for `run_query`.
        asked: The question.
        values: As for `statement_of`.
        limits: Of the answer.

    Raises:
        QueryError: As `statement_of`, or a limit was reached.
        ConfigError, StoreError: As `run_query`.
    """
    return run_query(store, statement_of(store, asked, values), limits=limits)


def statement_of(store: str, asked: Question, values: Mapping[str, str | int]) -> str:
    """The statement that answers a question.

    Args:
        store: As for `run_query`.
        asked: The question.
        values: Of its parameters, by name. A run may be named by its id, by the beginning of just
            one, or as `last`.

    Raises:
        QueryError: A value is missing or wrong, or there is no such run, episode or metric.
        ConfigError, StoreError: As `run_query`.
    """
    asked.filled(values)  # what is missing is said before the store is asked

    def given(kind: Named) -> dict[str, str]:
        named = [one.name for one in asked.parameters if one.names == kind]
        return {name: str(values[name]) for name in named if name in values}

    runs: dict[str, str] = {}
    if said := given("run"):
        run_ids = _names(store, _RUNS)
        try:
            runs = {name: pick_run(run, run_ids, place="the store") for name, run in said.items()}
        except ConfigError as error:
            raise QueryError(str(error)) from error
    for episode_id in given("episode").values():
        if not _names(store, f"SELECT id FROM episodes WHERE id = {quoted(episode_id)}"):
            raise QueryError(f"no episode {episode_id!r} in the store")
    for metric in given("metric").values():
        for run_id in runs.values():
            _require_metric(store, metric, run_id)
    return asked.filled({**values, **runs})


def _require_metric(store: str, metric: str, run_id: str) -> None:
    of_run = f"FROM metrics WHERE run_id = {quoted(run_id)} AND NOT rolled_back"
    if _names(store, f"SELECT name {of_run} AND name = {quoted(metric)} LIMIT 1"):
        return
    near = get_close_matches(metric, _names(store, f"SELECT DISTINCT name {of_run} ORDER BY name"))
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    raise QueryError(f"no metric {metric!r} in the run {run_id}{meant}")


def _names(store: str, sql: str) -> list[str]:
    rows = run_query(store, sql, limits=QueryLimits(rows=_MOST_NAMES)).rows
    return [str(row[0]) for row in rows]
