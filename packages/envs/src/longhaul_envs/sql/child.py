"""Runs one SELECT on one SQLite file: a program of its own, started by `longhaul_envs.sql.box`.

It imports nothing but the standard library, so that it starts in 20 ms. It reads a request as
JSON and writes an answer as JSON: rows, or why the statement was refused. If the file itself
cannot be opened it ends with code 3: that is no fault of the statement.

Several fences, since each has a hole. The file is opened read-only. An authorizer allows SELECT,
reading of tables, and a list of functions. Limits bound the length of values, statements and
patterns. A count of the steps of SQLite's machine ends what runs too long, at the same step on
every machine. Rows are read one by one, and only up to a number and a volume. One step may still
last long (`instr` of two long texts), or take much memory before the first row: for those there are
the limits of this process on memory and processor time, and the parent, which ends it.
"""

import json
import resource
import sqlite3
import sys
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

__all__ = ["CANNOT_OPEN"]

CANNOT_OPEN = 3
"""Exit code where the file is no database that can be read."""

_STEPS_BETWEEN_LOOKS: Final = 1000

_FUNCTION_NAMES = """
abs avg cast ceil ceiling char coalesce concat concat_ws count cume_dist dense_rank first_value
floor format glob group_concat hex ifnull iif instr lag last_value lead length like ln log log10
log2 lower ltrim max min mod nth_value ntile nullif percent_rank pow power printf quote rank
replace round row_number rtrim sign sqrt string_agg substr substring sum total trim trunc typeof
unicode upper
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_CLOCK_FUNCTION_NAMES = """
current_date current_time current_timestamp date datetime julianday strftime time timediff
unixepoch
"""
_CLOCK_FUNCTIONS = frozenset(_CLOCK_FUNCTION_NAMES.split())
_CATALOGUE = frozenset({"sqlite_master", "sqlite_schema", "sqlite_sequence"})

_CHANGES = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}

_NAMES = {
    sqlite3.SQLITE_ATTACH: "ATTACH",
    sqlite3.SQLITE_DETACH: "DETACH",
    sqlite3.SQLITE_PRAGMA: "PRAGMA",
    sqlite3.SQLITE_TRANSACTION: "a transaction",
    sqlite3.SQLITE_SAVEPOINT: "SAVEPOINT",
    sqlite3.SQLITE_INSERT: "INSERT",
    sqlite3.SQLITE_UPDATE: "UPDATE",
    sqlite3.SQLITE_DELETE: "DELETE",
    sqlite3.SQLITE_CREATE_TABLE: "CREATE TABLE",
    sqlite3.SQLITE_CREATE_TEMP_TABLE: "CREATE TEMP TABLE",
    sqlite3.SQLITE_CREATE_VTABLE: "CREATE VIRTUAL TABLE",
    sqlite3.SQLITE_CREATE_VIEW: "CREATE VIEW",
    sqlite3.SQLITE_CREATE_TEMP_VIEW: "CREATE TEMP VIEW",
    sqlite3.SQLITE_CREATE_INDEX: "CREATE INDEX",
    sqlite3.SQLITE_CREATE_TRIGGER: "CREATE TRIGGER",
    sqlite3.SQLITE_DROP_TABLE: "DROP TABLE",
    sqlite3.SQLITE_ALTER_TABLE: "ALTER TABLE",
    sqlite3.SQLITE_REINDEX: "REINDEX",
    sqlite3.SQLITE_ANALYZE: "ANALYZE",
}


class _Guard:
    """Decides what a statement may do, and remembers what stopped it."""

    def __init__(self, *, max_steps: int, allow_clock: bool) -> None:
        self.refusal = ""
        self._looks_left = max_steps // _STEPS_BETWEEN_LOOKS
        self._functions = _FUNCTIONS | _CLOCK_FUNCTIONS if allow_clock else _FUNCTIONS

    def authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        """SQLite asks this of everything that a statement would do, before it does anything."""
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ:
            table = (first or "").lower()
            if not table.startswith(("sqlite_", "pragma_")) or table in _CATALOGUE:
                return sqlite3.SQLITE_OK
            return self._deny(f"the table {table} may not be read")
        if action == sqlite3.SQLITE_FUNCTION:
            if (second or "").lower() in self._functions:
                return sqlite3.SQLITE_OK
            return self._deny(f"the function {second} may not be called")
        if action in _CHANGES and (first or "").lower() in _CATALOGUE:
            return self._deny("no table may be made, changed or dropped, and none be virtual")
        return self._deny(f"{_NAMES.get(action, 'that statement')} is not allowed: SELECT alone is")

    def is_out_of_steps(self) -> int:
        """SQLite calls this every thousand steps; 1 stops the statement."""
        self._looks_left -= 1
        if self._looks_left < 0:
            self.refusal = "the query takes too many steps"
        return int(self._looks_left < 0)

    def _deny(self, reason: str) -> int:
        self.refusal = self.refusal or reason
        return sqlite3.SQLITE_DENY


def _run(request: dict[str, Any]) -> dict[str, object]:
    uri = f"file:{quote(request['path'])}?mode=ro"
    try:
        connection = sqlite3.connect(uri, uri=True, isolation_level=None)
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        sys.stderr.write(f"{request['path']}: {error}")
        sys.exit(CANNOT_OPEN)
    connection.text_factory = _text
    limits = {
        sqlite3.SQLITE_LIMIT_LENGTH: 1_000_000,
        sqlite3.SQLITE_LIMIT_SQL_LENGTH: 20_000,
        sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
        sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
        sqlite3.SQLITE_LIMIT_ATTACHED: 0,
        sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
        sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 0,
        sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
    }
    for category, limit in limits.items():
        connection.setlimit(category, limit)
    guard = _Guard(max_steps=request["max_steps"], allow_clock=request["allow_clock"])
    connection.set_authorizer(guard.authorize)
    connection.set_progress_handler(guard.is_out_of_steps, _STEPS_BETWEEN_LOOKS)
    try:
        cursor = connection.execute(request["sql"])
        if cursor.description is None:
            return {"refused": guard.refusal or "there is no SELECT in it"}
        columns = [column[0] for column in cursor.description]
        rows, is_whole = _read(cursor, request["max_rows"], request["max_bytes"])
    except (sqlite3.Error, sqlite3.Warning) as error:
        return {"refused": guard.refusal or str(error)}
    except (ValueError, OverflowError, UnicodeError) as error:  # e.g. a NUL in the statement
        return {"refused": str(error)}
    return {"columns": columns, "rows": rows, "is_whole": is_whole}


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _read(cursor: sqlite3.Cursor, max_rows: int, max_bytes: int) -> tuple[list[list[object]], bool]:
    """Rows up to the limits, and whether these are all."""
    rows: list[list[object]] = []
    volume = 0
    for row in cursor:
        volume += sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
        if len(rows) == max_rows or volume > max_bytes:
            return rows, False
        rows.append([{"blob": v.hex()} if isinstance(v, bytes) else v for v in row])
    return rows, True


def _limit_this_process(max_memory: int, max_seconds: int) -> None:
    limit: Callable[[int, tuple[int, int]], None] = resource.setrlimit
    limit(resource.RLIMIT_AS, (max_memory, max_memory))
    limit(resource.RLIMIT_CPU, (max_seconds, max_seconds))
    limit(resource.RLIMIT_FSIZE, (0, 0))
    limit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    _limit_this_process(asked["max_memory"], asked["max_seconds"])
    try:
        answer = _run(asked)
    except MemoryError:
        answer = {"refused": "the query takes too much memory"}
    json.dump(answer, sys.stdout, ensure_ascii=True)
