"""One statement on SQLite: opened for reading, an authorizer that allows, limits, a deadline."""

import sqlite3
import time
from collections.abc import Callable

from longhaul_core.sql_box.child.output import Answer, Refused
from longhaul_core.sql_box.child.request import Request
from longhaul_core.sql_box.limits import Fence
from longhaul_core.sql_box.mistakes import position_of, position_of_syntax_error

__all__ = ["FUNCTIONS", "run"]

BUSY_SECONDS = 5
OPCODES_BETWEEN_LOOKS = 10_000
SCHEMA = ("sqlite_master", "sqlite_schema", "json_each", "json_tree")

_NAMES = """
    abs char coalesce format glob hex ifnull iif instr length like likelihood likely lower
    ltrim max min nullif printf quote replace round rtrim sign soundex substr substring
    total_changes trim typeof unhex unicode unlikely upper random sqlite_version acos acosh
    asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2 mod
    pi pow power radians sin sinh sqrt tan tanh trunc date datetime julianday strftime time
    timediff unixepoch current_date current_time current_timestamp avg count group_concat
    string_agg sum total cume_dist dense_rank first_value lag last_value lead nth_value ntile
    percent_rank rank row_number -> ->> json json_array json_array_length json_each
    json_error_position json_extract json_group_array json_group_object json_insert
    json_object json_patch json_quote json_remove json_replace json_set json_tree json_type
    json_valid match bm25 highlight snippet
"""
FUNCTIONS = frozenset(_NAMES.split())
"""Not among them: load_extension, fts3_tokenizer, zeroblob, randomblob, sqlite_compileoption_*."""


def run(request: Request, answer: Answer) -> float:
    """Write the answer.

    Returns:
        Seconds that the statement took.

    Raises:
        Refused: It is wrong, or a fence stopped it.
    """
    connection = _connect(request)
    stopped: list[tuple[Fence, str]] = []
    answer.begin()
    deadline = time.monotonic() + request.limits.seconds
    _fence(connection, request, deadline, stopped)
    begun = time.monotonic()
    try:
        if request.has(Fence.ONE_STATEMENT):
            found = connection.execute(request.sql)
        else:
            connection.executescript(request.sql)
            found = connection.execute("SELECT 'done' AS done")
        answer.columns([column[0] for column in found.description or ()])
        for row in found:
            if not answer.row(row):
                break
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise _explained(error, connection, request, stopped) from error
    seconds = time.monotonic() - begun
    connection.close()  # a reader that stays keeps the write-ahead log from being emptied
    return seconds


def _connect(request: Request) -> sqlite3.Connection:
    address = request.store
    if not request.has(Fence.READ_ONLY):
        address = address.replace("?mode=ro", "?mode=rw")
    connection = sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        if "vfs=unix-none" in address:  # see `connect_read_only`, which needs SQLAlchemy beside it
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        if request.has(Fence.MEMORY):
            connection.execute(f"PRAGMA hard_heap_limit = {request.limits.memory_bytes // 2}")
        connection.execute("PRAGMA temp_store = MEMORY")  # a sort makes no files
        # What SQLite does at the first use of a table of a module, the authorizer would refuse.
        connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')").close()
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%'"
        ).fetchall():
            connection.execute(f'SELECT * FROM "{name}" LIMIT 0')
    except sqlite3.Error as error:
        raise Refused(f"the store cannot be read: {error}") from error
    return connection


def _fence(
    connection: sqlite3.Connection,
    request: Request,
    deadline: float,
    stopped: list[tuple[Fence, str]],
) -> None:
    """Put up what a connection can hold.

    Args:
        connection: Has read the schema.
        request: Which fences stand.
        deadline: By the monotonic clock.
        stopped: What the fences that answer by yes or no refused is added here.
    """
    if request.has(Fence.FILES):
        import resource  # after the connection's first read, which may make the file of its locks

        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if request.has(Fence.ATTACH):
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    if request.has(Fence.VALUE_LENGTH):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, request.limits.value_bytes)
    if request.has(Fence.SQL_LENGTH):
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 4 * request.limits.sql_characters)
    if request.has(Fence.DEADLINE):

        def past() -> int:
            if time.monotonic() < deadline:
                return 0
            stopped.append((Fence.DEADLINE, ""))
            return 1

        connection.set_progress_handler(past, OPCODES_BETWEEN_LOOKS)
    connection.set_authorizer(_authorizer(connection, request, stopped))


def _authorizer(
    connection: sqlite3.Connection, request: Request, stopped: list[tuple[Fence, str]]
) -> Callable[[int, str | None, str | None, str | None, str | None], int]:
    may_read = _readable(connection, request)

    def refused(action: int, first: str | None, second: str | None) -> tuple[Fence, str] | None:
        match action:
            case sqlite3.SQLITE_SELECT | sqlite3.SQLITE_RECURSIVE:
                return None
            case sqlite3.SQLITE_READ:
                if may_read((first or "").lower(), second):
                    return None
                return Fence.RELATIONS, f"the table {first!r} is not one of the store's"
            case sqlite3.SQLITE_FUNCTION:
                if (second or "").lower() in FUNCTIONS:
                    return None
                return Fence.FUNCTIONS, f"the function {second}() may not be called here"
            case sqlite3.SQLITE_UPDATE if first == "sqlite_master":  # a module's first use
                return Fence.RELATIONS, "that table is not one of the store's"
            case sqlite3.SQLITE_PRAGMA if first == "data_version" and second is None:
                return None  # the text index asks whether it is still up to date
            case _:
                name = ACTIONS.get(action, f"action {action}")
                return Fence.ACTIONS, (
                    f"{name} is not allowed: the box reads, by one SELECT (or WITH … SELECT)"
                )

    def allowed(
        action: int, first: str | None, second: str | None, _base: str | None, _by: str | None
    ) -> int:
        found = refused(action, first, second)
        if found is None or not request.has(found[0]):
            return sqlite3.SQLITE_OK
        stopped.append(found)
        return sqlite3.SQLITE_DENY

    return allowed


def _readable(
    connection: sqlite3.Connection, request: Request
) -> Callable[[str, str | None], bool]:
    """Whether a table, in lower case, may be read; asked with a column."""
    names = {str(row[0]).lower() for row in connection.execute("SELECT name FROM sqlite_master")}
    modules = {str(row[0]).lower() for row in connection.execute("PRAGMA module_list")}
    # The text index reads its own tables by statements of its own.
    own = {name for name in names if name.startswith("step_search")}
    readable = own | {name.lower() for name in (*request.relations, *SCHEMA)}

    def may_read(table: str, column: str | None) -> bool:
        if table in readable:
            return True
        # Of a recursive WITH, whose name may be any, SQLite asks so too, without a column.
        return column == "" and table not in names | modules and not table.startswith("pragma_")

    return may_read


ACTIONS: dict[int, str] = {
    getattr(sqlite3, f"SQLITE_{name}"): name.replace("_", " ")
    for name in (
        "CREATE_INDEX",
        "CREATE_TABLE",
        "CREATE_TEMP_INDEX",
        "CREATE_TEMP_TABLE",
        "CREATE_TEMP_TRIGGER",
        "CREATE_TEMP_VIEW",
        "CREATE_TRIGGER",
        "CREATE_VIEW",
        "CREATE_VTABLE",
        "DELETE",
        "DROP_INDEX",
        "DROP_TABLE",
        "DROP_TEMP_INDEX",
        "DROP_TEMP_TABLE",
        "DROP_TEMP_TRIGGER",
        "DROP_TEMP_VIEW",
        "DROP_TRIGGER",
        "DROP_VIEW",
        "DROP_VTABLE",
        "INSERT",
        "PRAGMA",
        "TRANSACTION",
        "UPDATE",
        "ATTACH",
        "DETACH",
        "ALTER_TABLE",
        "REINDEX",
        "ANALYZE",
        "SAVEPOINT",
    )
}


def _explained(
    error: sqlite3.Error | sqlite3.Warning,
    connection: sqlite3.Connection,
    request: Request,
    stopped: list[tuple[Fence, str]],
) -> Refused:
    """What was wrong, in words, and where."""
    text = str(error)
    fences = {fence for fence, _ in stopped}
    if text == "interrupted" or Fence.DEADLINE in fences:
        return Refused(
            f"no answer within {request.limits.seconds:g} s, so the statement was stopped: name a "
            "run and a training step, or count over fewer rows",
            fence=Fence.DEADLINE,
        )
    if stopped:
        fence, what = stopped[-1]
        return Refused(what, fence=fence, position=position_of(what, request.sql))
    code = getattr(error, "sqlite_errorcode", None)
    if "one statement at a time" in text:
        return Refused("one statement at a time, please", fence=Fence.ONE_STATEMENT)
    if code == sqlite3.SQLITE_TOOBIG or "too big" in text:
        return Refused(
            f"a value is longer than the {request.limits.value_bytes:,} bytes that one may have "
            "here: read a part of it by substr()",
            fence=Fence.VALUE_LENGTH,
        )
    if code == sqlite3.SQLITE_NOMEM:
        raise MemoryError
    if code is not None and code & 0xFF in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL}:
        return Refused(f"the statement may not write files: {text}", fence=Fence.FILES)
    if code is not None and code & 0xFF == sqlite3.SQLITE_READONLY:
        return Refused("the store is open for reading only", fence=Fence.READ_ONLY)
    if "too many attached databases" in text:
        return Refused("no other database can be attached", fence=Fence.ATTACH)
    if code is not None and code & 0xFF == sqlite3.SQLITE_BUSY:
        return Refused("another program holds the store: try again")
    position = position_of_syntax_error(text, request.sql, connection)
    if position is None:
        position = position_of(text, request.sql)
    return Refused(text, position=position)
