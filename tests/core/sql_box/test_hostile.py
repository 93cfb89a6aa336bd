"""Statements that would do harm: a fence that each names stops it, and all is as it was.

Most are given to the fences in this process, where a statement takes a millisecond; one of each
fence, and all that only a process of its own can hold, go through the box.
"""

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text

from core.sql_box import hostile
from core.sql_box.conftest import OF_A_PROCESS, Box, answered_here
from longhaul_core.errors import QueryError
from longhaul_core.processes import descendants
from longhaul_core.sql_box.box import run_query
from longhaul_core.sql_box.limits import KILL_SECONDS, START_SECONDS, Fence, QueryLimits
from longhaul_core.sql_box.relations import relation_names
from longhaul_core.store.addresses import store_url
from longhaul_core.store.models import Base

MIB = 2**20
LIMITS = QueryLimits(
    seconds=20, rows=1000, num_bytes=2 * MIB, memory_bytes=256 * MIB, value_bytes=4 * MIB
)
SMALL = {Fence.BYTES, Fence.ROWS}
"""These end an answer early; they are no errors."""


def in_this_process(statements: hostile.Hostile) -> list[Fence]:
    """Fences whose statements are not all given to the box anyway."""
    return [
        fence for fence, group in statements.items() if len(group) > 1 and fence not in OF_A_PROCESS
    ]


def test_there_are_two_hundred_for_each_database() -> None:
    for statements in (hostile.SQLITE, hostile.POSTGRESQL):
        assert len({sql for group in statements.values() for sql in group}) >= 200


@pytest.mark.parametrize("fence", in_this_process(hostile.SQLITE))
def test_sqlites_fences_withstand_each_statement(sqlite_box: Box, fence: Fence) -> None:
    before = of_sqlite(sqlite_box)
    let_through = [sql for sql in hostile.SQLITE[fence] if not stops(sqlite_box, fence, sql)]
    assert let_through == []
    assert of_sqlite(sqlite_box) == before


@pytest.mark.parametrize("fence", in_this_process(hostile.POSTGRESQL))
def test_postgresqls_fences_withstand_each_statement(
    postgresql_box: Box, bystander: Connection, fence: Fence
) -> None:
    before = of_postgresql(bystander)
    let_through = [
        sql for sql in hostile.POSTGRESQL[fence] if not stops(postgresql_box, fence, sql)
    ]
    assert let_through == []
    require_as_before(bystander, before)


@pytest.mark.parametrize("fence", hostile.SQLITE)
def test_a_boxed_process_withstands_a_statement_of_each_fence(
    sqlite_box: Box, fence: Fence
) -> None:
    before = of_sqlite(sqlite_box)
    for sql in of_each(hostile.SQLITE, fence):
        require_stopped(sqlite_box, fence, sql)
    assert of_sqlite(sqlite_box) == before


@pytest.mark.parametrize("fence", hostile.POSTGRESQL)
def test_a_boxed_process_on_postgresql_withstands_a_statement_of_each_fence(
    postgresql_box: Box, bystander: Connection, fence: Fence
) -> None:
    before = of_postgresql(bystander)
    for sql in of_each(hostile.POSTGRESQL, fence):
        require_stopped(postgresql_box, fence, sql)
    require_as_before(bystander, before)


def of_each(statements: hostile.Hostile, fence: Fence) -> list[str]:
    """What goes through the box: all that only a process holds, or else the last."""
    return statements[fence] if fence in OF_A_PROCESS else statements[fence][-1:]


def stops(box: Box, fence: Fence, sql: str) -> bool:
    """Whether the fence stops the statement where it runs in this process."""
    url = store_url(box.url)
    given = (
        f"file:{url.database}?mode=ro"
        if box.dialect == "sqlite"
        else url.set(drivername="postgresql").render_as_string(hide_password=False)
    )
    seconds = 0.05 if fence is Fence.DEADLINE else LIMITS.seconds
    request = {
        "dialect": box.dialect,
        "store": given,
        "sql": sql,
        "relations": sorted(relation_names(box.dialect)),
        "limits": asdict(replace(LIMITS, seconds=seconds)),
    }
    last: dict[str, Any] = json.loads(answered_here(request)[-1])
    if fence in SMALL:
        return last["end"]["truncated"] == fence
    return "error" in last and last["error"]["fence"] in {fence, hostile.ALSO.get(sql, fence)}


def require_stopped(box: Box, fence: Fence, sql: str) -> None:
    mine = of_this_process()
    begun = time.monotonic()
    if fence in SMALL:
        assert run_query(box.url, sql, limits=LIMITS).truncated == fence
    else:
        # What is about time has little of it, and what is about all else never runs out of it.
        seconds = 0.5 if fence in {Fence.DEADLINE, Fence.KILL} else LIMITS.seconds
        with pytest.raises(QueryError) as caught:
            run_query(box.url, sql, limits=replace(LIMITS, seconds=seconds))
        assert caught.value.fence in {fence, hostile.ALSO.get(sql, fence)}, str(caught.value)
    assert time.monotonic() - begun < LIMITS.seconds + START_SECONDS + KILL_SECONDS
    assert of_this_process() <= mine  # what earlier tests have left may be closed meanwhile


def require_as_before(bystander: Connection, before: list[object]) -> None:
    for _ in range(600):  # a session that was killed is gone a moment later
        after = of_postgresql(bystander)
        if after == before:
            return
        time.sleep(0.1)
    assert of_postgresql(bystander) == before


def of_this_process() -> set[tuple[str, str]]:
    """Open files by number and what they are, and processes of a box that it started."""
    files = Path("/proc/self/fd")
    named = {(each, link_of(files / each)) for each in os.listdir(files)}
    started = {pid for pid in descendants(os.getpid()) if b"sql_box" in command_of(pid)}
    return {(each, to) for each, to in named if to} | {(str(pid), "a process") for pid in started}


def link_of(file: Path) -> str:
    """What an open file is; nothing for the one that listed them, which is closed."""
    try:
        return os.readlink(file)
    except OSError:
        return ""


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def of_sqlite(box: Box) -> tuple[object, ...]:
    """The store's content, and the files beside it and where a statement would plant one."""
    file = Path(box.url)
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
        schema = connection.execute("SELECT * FROM sqlite_master ORDER BY name").fetchall()
        version = connection.execute("PRAGMA user_version").fetchall()
    connection.close()
    planted = sorted(str(path) for path in Path("/tmp").glob("planted*"))
    return (
        hashlib.sha256(file.read_bytes()).hexdigest(),
        schema,
        version,
        sorted(path.name for path in file.parent.iterdir() if not path.name.endswith("-shm")),
        planted,
    )


@pytest.fixture(scope="module")
def bystander(postgresql_box: Box) -> Iterator[Connection]:
    """Somebody else's session, which listens on the channel that statements notify."""
    engine = create_engine(store_url(postgresql_box.owner), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("LISTEN planted"))
        yield connection
    engine.dispose()


CONTENT = " UNION ALL ".join(
    f"SELECT '{name}', md5(string_agg(t::text, ',' ORDER BY t::text)) FROM {name} t"
    for name in sorted(Base.metadata.tables)
)
SURROUNDINGS = (
    CONTENT,
    "SELECT count(*), max(oid) FROM pg_class",
    "SELECT count(*), max(oid) FROM pg_proc",
    "SELECT string_agg(rolname || rolsuper || rolconnlimit, ',' ORDER BY rolname) FROM pg_roles",
    "SELECT string_agg(datname, ',' ORDER BY datname) FROM pg_database",
    "SELECT count(*) FROM pg_largeobject_metadata",
    "SELECT count(*) FROM pg_prepared_xacts",
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
    "SELECT string_agg(setconfig::text, ',' ORDER BY setrole) FROM pg_db_role_setting",
    "SELECT count(*) FROM pg_stat_activity WHERE usename = 'longhaul_sql'",
    "SELECT pg_backend_pid()",
    "SELECT count(*) FROM pg_ls_tmpdir()",
    "SELECT setting FROM pg_settings WHERE name = 'fsync'",
)


def of_postgresql(bystander: Connection) -> list[object]:
    """Content, catalog, locks, other sessions, temporary files; and what the bystander heard."""
    found: list[object] = [
        bystander.exec_driver_sql(one.replace("%", "%%")).all() for one in SURROUNDINGS
    ]
    raw: Any = bystander.connection.driver_connection
    heard = list(raw.notifies(timeout=0))
    return [*found, heard, sorted(str(path) for path in Path("/tmp").glob("planted*"))]
