"""One statement on PostgreSQL: a role that may only read, a cursor, our own watchdog."""

import math
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import LiteralString, cast

import psycopg
from psycopg import pq

from longhaul_core.sql_box.child.output import Answer, Refused
from longhaul_core.sql_box.child.request import Request
from longhaul_core.sql_box.limits import HARMFUL_FUNCTIONS, Fence
from longhaul_core.sql_box.mistakes import code_of

__all__ = ["run"]

PREFIX = "DECLARE box NO SCROLL CURSOR FOR "
CONNECT_SECONDS = 10
CANCEL_EVERY_SECONDS = 0.5
FIRST_FETCH = 16
LARGEST_FETCH = 1_000
BYTES_OF_A_FETCH = 2**20

# Nothing here can be set to rights by the box itself: who owns the database must.
_PROBLEMS: LiteralString = r"""
SELECT 'it is a superuser' FROM pg_roles WHERE rolname = current_user AND rolsuper
UNION ALL
SELECT 'it may make databases, make roles, replicate or pass row security' FROM pg_roles
WHERE rolname = current_user AND NOT rolsuper
    AND (rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls)
UNION ALL
SELECT 'it is a member of ' || m.roleid::regrole FROM pg_auth_members m
JOIN pg_roles r ON r.oid = m.member WHERE r.rolname = current_user
UNION ALL
SELECT 'it owns ' || c.oid::regclass FROM pg_class c
WHERE pg_get_userbyid(c.relowner) = current_user AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
UNION ALL
SELECT 'it may write to ' || c.oid::regclass FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
    AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\_t%'
    AND has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER')
UNION ALL
SELECT 'it may make temporary tables' WHERE has_database_privilege(current_database(), 'TEMP')
UNION ALL
SELECT 'it may make schemas' WHERE has_database_privilege(current_database(), 'CREATE')
UNION ALL
SELECT 'it may make tables in schema ' || nspname FROM pg_namespace
WHERE nspname NOT LIKE 'pg\_%' AND has_schema_privilege(oid, 'CREATE')
"""
_HARMFUL: LiteralString = r"""
SELECT 'it may call ' || p.oid::regprocedure FROM pg_proc p
JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE (p.proname ~ %s OR (p.prosecdef AND n.nspname <> 'pg_catalog'))
    AND has_function_privilege(p.oid, 'EXECUTE')
ORDER BY 1
"""
MAKE_A_ROLE = "make one by `trainer store fence-role`, and give the box its address"


def run(request: Request, answer: Answer) -> float:
    """Write the answer.

    Returns:
        Seconds that the statement took.

    Raises:
        Refused: It is wrong, a fence stopped it, or the role is not one for this box.
    """
    limits = request.limits
    timeout = math.ceil((limits.seconds + 2) * 1000) if request.has(Fence.STATEMENT_TIMEOUT) else 0
    options = (
        f"-c statement_timeout={timeout} -c lock_timeout=2s"
        " -c client_connection_check_interval=1s -c search_path=public"
    )
    try:
        connection = psycopg.connect(
            request.store,
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            options=options,
            application_name="longhaul sql",
        )
    except psycopg.OperationalError as error:
        fence = Fence.CONNECTIONS if "too many connections for role" in str(error) else None
        raise Refused(f"the store cannot be reached: {_last_line(error)}", fence=fence) from error
    with connection:
        stopped: list[Fence] = []
        try:
            _require_fenced(connection, request)
            if request.has(Fence.READ_ONLY):
                connection.execute("BEGIN READ ONLY")
            else:
                connection.execute("BEGIN")
            answer.begin()
            begun = time.monotonic()
            with _watchdog(connection, request, stopped):
                _answer(connection, request, answer)
            seconds = time.monotonic() - begun
            connection.execute("ROLLBACK" if request.has(Fence.READ_ONLY) else "COMMIT")
        except psycopg.Error as error:
            raise _explained(error, request, stopped) from error
        return seconds


def _require_fenced(connection: psycopg.Connection, request: Request) -> None:
    problems: list[str] = []
    if request.has(Fence.ROLE):
        problems += [str(row[0]) for row in connection.execute(_PROBLEMS)]
    if request.has(Fence.FUNCTIONS):
        problems += [str(row[0]) for row in connection.execute(_HARMFUL, [HARMFUL_FUNCTIONS])]
    if problems:
        more = f", and {len(problems) - 3} more of that kind" if len(problems) > 3 else ""
        raise Refused(
            f"the role {connection.info.user!r} may do more than read the store: "
            f"{'; '.join(problems[:3])}{more}. The box opens only for a fenced role: {MAKE_A_ROLE}",
            fence=Fence.ROLE if request.has(Fence.ROLE) else Fence.FUNCTIONS,
        )


@contextmanager
def _watchdog(
    connection: psycopg.Connection, request: Request, stopped: list[Fence]
) -> Generator[None]:
    """Cancel what goes on at the deadline, again and again until the block is left.

    A typed `SET statement_timeout` would undo the server's own. No function can swallow a
    cancellation here: those that may be called are the server's.
    """
    over = threading.Event()

    def cancel() -> None:
        if over.wait(request.limits.seconds):
            return
        stopped.append(Fence.DEADLINE)
        while not over.is_set():
            connection.cancel_safe(timeout=CANCEL_EVERY_SECONDS)
            over.wait(CANCEL_EVERY_SECONDS)

    if not request.has(Fence.DEADLINE):
        yield
        return
    thread = threading.Thread(target=cancel, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def _answer(connection: psycopg.Connection, request: Request, answer: Answer) -> None:
    if not request.has(Fence.CURSOR):
        _given(connection, request.sql, request)
        answer.columns(["done"])
        return
    _given(connection, PREFIX + request.sql, request)
    size = FIRST_FETCH
    with connection.cursor() as cursor:
        while True:
            cursor.execute(cast("LiteralString", f"FETCH {size} FROM box"))
            if size == FIRST_FETCH:
                answer.columns([column.name for column in cursor.description or ()])
            rows = cursor.fetchall()
            for row in rows:
                _require_short(row, request)
                if not answer.row(row):
                    return
            if len(rows) < size:
                return
            of_a_row = sum(len(str(value)) for value in rows[-1]) + 1
            size = max(FIRST_FETCH + 1, min(LARGEST_FETCH, BYTES_OF_A_FETCH // of_a_row))


def _given(connection: psycopg.Connection, sql: str, request: Request) -> None:
    """Carry out one statement by the extended protocol, which takes no second one."""
    raw = connection.pgconn
    encoded = sql.encode("utf-8", "replace")
    if request.has(Fence.ONE_STATEMENT):
        result = raw.exec_params(encoded, None)
    else:
        result = raw.exec_(encoded)
    if result.status not in {pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK}:
        raise psycopg.errors.error_from_result(result)


def _require_short(row: tuple[object, ...], request: Request) -> None:
    longest = request.limits.value_bytes
    for value in row:
        if (
            isinstance(value, str | bytes)
            and len(value) > longest
            and request.has(Fence.VALUE_LENGTH)
        ):
            raise Refused(
                f"a value is longer than the {longest:,} bytes that one may have here: "
                "read a part of it by substr()",
                fence=Fence.VALUE_LENGTH,
            )


def _explained(error: psycopg.Error, request: Request, stopped: list[Fence]) -> Refused:
    """What was wrong, in words, and where."""
    state = error.sqlstate
    text = error.diag.message_primary or _last_line(error)
    if stopped:
        return Refused(
            f"no answer within {request.limits.seconds:g} s, so the statement was stopped: name a "
            "run and a training step, or count over fewer rows",
            fence=Fence.DEADLINE,
        )
    if state is None and ("out of memory" in str(error) or "allocate memory" in str(error)):
        raise MemoryError
    if state == "57014":
        return Refused(f"the server stopped the statement: {text}", fence=Fence.STATEMENT_TIMEOUT)
    if state == "53400":
        return Refused(
            f"the statement sorts or joins more than it may put on disk: {text}",
            fence=Fence.TEMP_FILES,
        )
    given = error.diag.statement_position
    begins = len(PREFIX) if request.has(Fence.CURSOR) else 0
    position = None if given is None else max(0, int(given) - 1 - begins)
    if state == "42601" and "multiple commands" in text:
        return Refused("one statement at a time, please", fence=Fence.ONE_STATEMENT)
    if state == "25006":
        return Refused(f"the store is open for reading only: {text}", fence=Fence.READ_ONLY)
    if state == "42501":
        fence = Fence.FUNCTIONS if "for function" in text else Fence.ROLE
        hint = "" if fence is Fence.FUNCTIONS else _rights_hint(text, request)
        return Refused(f"{text}{hint}", fence=fence, position=position)
    if request.has(Fence.CURSOR) and (
        "DECLARE CURSOR" in text
        or "INTO is not allowed" in text
        or _no_select(state, position, request.sql)
    ):
        return Refused(
            f"the box reads, by one SELECT (or WITH … SELECT): {text}",
            fence=Fence.CURSOR,
            position=position,
        )
    hint = error.diag.message_hint
    if state == "42P01" and any(f'"{name}"' in text for name in request.relations):
        # The role may not read the schema's version: what is missing tells it.
        hint = "The store was written by another version of Longhaul, which alone reads it whole"
    return Refused(f"{text}. {hint}" if hint else text, position=position)


def _no_select(state: str | None, position: int | None, sql: str) -> bool:
    """Whether the grammar refused the statement's first word."""
    return (
        state == "42601" and position is not None and not code_of(sql)[:position].strip(" \t\r\n(")
    )


def _rights_hint(text: str, request: Request) -> str:
    if any(name in text for name in request.relations):
        return (
            ": what the role may read was made anew since it got its rights; run "
            "`trainer store fence-role` again"
        )
    return ""


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
