"""Each fence alone stops its statement, which gets through where none stands."""

import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from core.sql_box.conftest import Box
from longhaul_core.errors import ConfigError, QueryError
from longhaul_core.sql_box import box as box_module
from longhaul_core.sql_box.box import QueryResult, run_query
from longhaul_core.sql_box.fenced_role import make_fenced_role
from longhaul_core.sql_box.limits import Fence, QueryLimits
from longhaul_core.store import open_store
from longhaul_core.store.addresses import store_url

MIB = 2**20
EVERY = frozenset(Fence)
DELETE = "DELETE FROM metrics"
LARGE_SORT = (
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 300) "
    "SELECT count(*) FROM (SELECT DISTINCT printf('%0*d', 1000000, n) FROM t)"
)
LONG_COUNT = (
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3000000) "
    "SELECT count(*) FROM t"
)
SECOND_LONG = "SELECT instr(printf('%0*d', 1200000, 0), printf('%0*d', 600000, 1))"
"""Some seconds within one opcode: 3.6e11 comparisons of bytes, many at a time."""
ENDLESS = "SELECT instr(printf('%0*d', 9000000, 0), printf('%0*d', 4500000, 1))"


def run(url: str, sql: str, *, without: frozenset[Fence], **limits: float) -> QueryResult:
    given: dict[str, Any] = {"seconds": 60, "memory_bytes": 192 * MIB} | limits
    run_without: Any = box_module._run  # pyright: ignore[reportPrivateUsage]
    found: QueryResult = run_without(url, sql, limits=QueryLimits(**given), without=without)
    return found


def only(fence: Fence, *others: Fence) -> frozenset[Fence]:
    return EVERY - {fence, Fence.ONE_STATEMENT, *others}


ANSWERED = EVERY - {Fence.ONE_STATEMENT, Fence.CURSOR}
"""No fence but these, without which a statement has no rows."""

SQLITE: list[tuple[Fence, str, dict[str, Any]]] = [
    (Fence.READ_ONLY, DELETE, {}),
    (Fence.ACTIONS, DELETE, {}),
    (Fence.FILES, DELETE, {}),
    (Fence.ATTACH, "ATTACH ':memory:' AS planted", {}),
    (Fence.RELATIONS, "SELECT * FROM longhaul_schema", {}),
    (Fence.FUNCTIONS, "SELECT length(zeroblob(10))", {}),
    (Fence.VALUE_LENGTH, "SELECT length(hex(printf('%0*d', 3000000, 0)))", {}),
    (Fence.SQL_LENGTH, f"SELECT '{'x' * 2000}'", {"sql_characters": 1000}),
    (Fence.MEMORY, LARGE_SORT, {}),
    (Fence.DEADLINE, LONG_COUNT, {"seconds": 0.05}),
]


@pytest.fixture
def copy(sqlite_box: Box, tmp_path: Path) -> str:
    return str(shutil.copy(sqlite_box.url, tmp_path / "store.db"))


@pytest.mark.parametrize(("fence", "sql", "limits"), SQLITE, ids=[str(one[0]) for one in SQLITE])
def test_on_sqlite_one_fence_alone_stops_what_gets_through_without(
    copy: str, fence: Fence, sql: str, limits: dict[str, Any]
) -> None:
    with pytest.raises(QueryError) as caught:
        run(copy, sql, without=only(fence), **limits)
    assert caught.value.fence == fence, str(caught.value)

    run(copy, sql, without=ANSWERED, **limits)

    if sql == DELETE:
        assert run_query(copy, "SELECT count(*) FROM metrics").rows == ((0,),)


@pytest.mark.parametrize("fence", [Fence.ROWS, Fence.BYTES])
def test_on_both_an_answer_ends_by_one_fence_alone_and_goes_on_without(
    box: Box, fence: Fence
) -> None:
    sql = "SELECT episode_id, step_index FROM steps"
    limits = {"rows": 5, "num_bytes": 500}
    without = only(fence, Fence.CURSOR)
    assert run(box.url, sql, without=without, **limits).truncated == fence
    all_rows = run(box.url, sql, without=without | {fence}, **limits)
    assert all_rows.truncated is None
    assert len(all_rows.rows) == len(list(box.world.steps("first"))) + len(
        list(box.world.steps("second"))
    ) + _rolled_back(box)


def _rolled_back(box: Box) -> int:
    sql = "SELECT count(*) FROM steps s JOIN episodes e ON e.id = s.episode_id WHERE e.rolled_back"
    number = run_query(box.url, sql).rows[0][0]
    assert isinstance(number, int)
    return number


def test_on_sqlite_a_second_statement_runs_where_nothing_holds_to_one(copy: str) -> None:
    two = f"SELECT 1; {DELETE}"
    with pytest.raises(QueryError) as caught:
        run(copy, two, without=EVERY - {Fence.ONE_STATEMENT})
    assert caught.value.fence == Fence.ONE_STATEMENT
    run(copy, two, without=EVERY)
    assert run_query(copy, "SELECT count(*) FROM metrics").rows == ((0,),)


def test_what_nothing_interrupts_is_ended_by_its_limit_of_processor_time(sqlite_box: Box) -> None:
    begun = processor_seconds_of_children()
    with pytest.raises(QueryError) as caught:
        run(sqlite_box.url, ENDLESS, without=only(Fence.CPU), seconds=0.5)
    assert caught.value.fence == Fence.CPU
    assert processor_seconds_of_children() - begun < 60


def processor_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture
def owner(postgresql_box: Box) -> Iterator[str]:
    """The owner's address; what a test deletes is put back."""
    engine = create_engine(store_url(postgresql_box.owner), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE kept AS SELECT * FROM metrics"))
        yield postgresql_box.owner
        connection.execute(text("TRUNCATE metrics"))
        connection.execute(text("INSERT INTO metrics SELECT * FROM kept"))
        connection.execute(text("DROP TABLE kept"))
    engine.dispose()


def metrics_left(postgresql_box: Box) -> object:
    return run_query(postgresql_box.url, "SELECT count(*) FROM metrics").rows[0][0]


@pytest.mark.parametrize("fence", [Fence.CURSOR, Fence.READ_ONLY])
def test_on_postgresql_one_fence_alone_stops_a_write_even_of_the_owner(
    postgresql_box: Box, owner: str, fence: Fence
) -> None:
    with pytest.raises(QueryError) as caught:
        run(owner, DELETE, without=only(fence))
    assert caught.value.fence == fence
    assert metrics_left(postgresql_box) != 0

    run(owner, DELETE, without=EVERY - {Fence.ONE_STATEMENT})
    assert metrics_left(postgresql_box) == 0


def test_on_postgresql_a_second_statement_runs_where_nothing_holds_to_one(
    postgresql_box: Box, owner: str
) -> None:
    two = f"SELECT 1; {DELETE}"
    with pytest.raises(QueryError) as caught:
        run(owner, two, without=EVERY - {Fence.ONE_STATEMENT})
    assert caught.value.fence == Fence.ONE_STATEMENT
    run(owner, two, without=EVERY)
    assert metrics_left(postgresql_box) == 0


def test_on_postgresql_the_roles_rights_alone_stop_a_write(postgresql_box: Box) -> None:
    with pytest.raises(QueryError) as caught:
        run(postgresql_box.url, DELETE, without=EVERY - {Fence.ONE_STATEMENT, Fence.ROLE})
    # The session of the role is read-only by its own setting, which a statement could undo.
    assert caught.value.fence in {Fence.ROLE, Fence.READ_ONLY}
    undone = "SET default_transaction_read_only = off; BEGIN READ WRITE; " + DELETE
    with pytest.raises(QueryError) as caught:
        run(postgresql_box.url, f"COMMIT; {undone}", without=EVERY)
    assert caught.value.fence == Fence.ROLE


@pytest.mark.parametrize("fence", [Fence.ROLE, Fence.FUNCTIONS])
def test_on_postgresql_the_owners_address_is_refused(postgresql_box: Box, fence: Fence) -> None:
    with pytest.raises(QueryError, match="may do more than read the store") as caught:
        run(postgresql_box.owner, "SELECT 1", without=only(fence, Fence.CURSOR))
    assert caught.value.fence == fence
    assert run(postgresql_box.owner, "SELECT 1", without=ANSWERED).rows == ((1,),)


@pytest.mark.parametrize(
    "fence", [Fence.DEADLINE, Fence.STATEMENT_TIMEOUT, Fence.KILL, Fence.ALARM]
)
def test_on_postgresql_each_of_four_ends_what_waits(postgresql_box: Box, fence: Fence) -> None:
    with pytest.raises(QueryError) as caught:
        run(
            postgresql_box.owner,
            "SELECT 1 FROM pg_sleep(60)",
            without=only(fence, Fence.CURSOR),
            seconds=0.5,
        )
    assert caught.value.fence == fence


def test_on_postgresql_what_waits_goes_on_without_the_four(postgresql_box: Box) -> None:
    slept = run(postgresql_box.owner, "SELECT 1 FROM pg_sleep(3)", without=ANSWERED, seconds=0.5)
    assert slept.rows == ((1,),)


def test_on_postgresql_a_long_value_is_refused(postgresql_box: Box) -> None:
    sql = "SELECT repeat('x', 5000000)"
    with pytest.raises(QueryError) as caught:
        run(postgresql_box.url, sql, without=only(Fence.VALUE_LENGTH, Fence.CURSOR))
    assert caught.value.fence == Fence.VALUE_LENGTH
    assert len(run(postgresql_box.url, sql, without=ANSWERED).rows) == 1


def test_on_postgresql_a_large_answer_ends_at_the_limit_of_memory(postgresql_box: Box) -> None:
    sql = "SELECT repeat('x', 150000000), repeat('y', 150000000)"
    limits = {"memory_bytes": 300 * MIB}
    with pytest.raises(QueryError) as caught:
        run(postgresql_box.url, sql, without=only(Fence.MEMORY, Fence.CURSOR), **limits)
    assert caught.value.fence == Fence.MEMORY


@pytest.mark.parametrize(
    ("fence", "setting", "sql"),
    [
        (
            Fence.TEMP_FILES,
            ("SET temp_file_limit = '1MB'", "SET temp_file_limit = '512MB'"),
            "SELECT count(*) FROM "
            "(SELECT DISTINCT n, md5(n::text) FROM generate_series(1, 400000) n) t",
        ),
        (Fence.CONNECTIONS, ("CONNECTION LIMIT 0", "CONNECTION LIMIT 8"), "SELECT 1"),
    ],
)
def test_on_postgresql_the_roles_limits_hold(
    postgresql_box: Box, fence: Fence, setting: tuple[str, str], sql: str
) -> None:
    engine = create_engine(store_url(postgresql_box.owner), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        try:
            connection.exec_driver_sql("ALTER ROLE longhaul_sql SET work_mem = '64kB'")
            connection.exec_driver_sql(f"ALTER ROLE longhaul_sql {setting[0]}")
            with pytest.raises(QueryError) as caught:
                run_query(postgresql_box.url, sql)
        finally:
            connection.exec_driver_sql(f"ALTER ROLE longhaul_sql {setting[1]}")
            connection.exec_driver_sql("ALTER ROLE longhaul_sql SET work_mem = '32MB'")
    engine.dispose()
    assert caught.value.fence == fence
    assert len(run_query(postgresql_box.url, sql).rows) == 1


def test_other_roles_keep_what_is_taken_from_everybody(postgresql_box: Box) -> None:
    engine = open_store(postgresql_box.owner)
    with engine.begin() as connection:
        connection.execute(text("CREATE ROLE somebody LOGIN"))
    try:
        role = make_fenced_role(engine, role="longhaul_sql_too")
        with engine.begin() as connection:
            asked = text(
                "SELECT r, has_function_privilege(r, 'pg_advisory_lock(bigint)', 'EXECUTE') may "
                "FROM unnest(ARRAY['somebody', 'longhaul_sql', 'longhaul_sql_too']) r"
            )
            rights = {row.r: row.may for row in connection.execute(asked)}
        assert rights == {"somebody": True, "longhaul_sql": False, "longhaul_sql_too": False}
        answer = run_query(role.url, "SELECT count(*) FROM runs")
        assert answer.rows == ((2,),)
    finally:
        with engine.begin() as connection:
            for name in ("somebody", "longhaul_sql_too"):
                connection.execute(text(f"DROP OWNED BY {name}"))
                connection.execute(text(f"DROP ROLE {name}"))
        engine.dispose()


def test_a_role_is_made_beside_a_procedure_that_runs_as_its_owner(postgresql_box: Box) -> None:
    engine = open_store(postgresql_box.owner)
    with engine.begin() as connection:
        connection.execute(
            text("CREATE PROCEDURE planted() LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'")
        )
    try:
        role = make_fenced_role(engine, role="longhaul_sql_beside")
        assert run_query(role.url, "SELECT 1").rows == ((1,),)
    finally:
        with engine.begin() as connection:
            connection.execute(text("DROP PROCEDURE planted()"))
            connection.execute(text("DROP OWNED BY longhaul_sql_beside"))
            connection.execute(text("DROP ROLE longhaul_sql_beside"))
        engine.dispose()


def test_a_sqlite_file_needs_no_role(sqlite_box: Box, tmp_path: Path) -> None:
    engine = open_store(tmp_path / "store.db")
    with pytest.raises(ConfigError, match="it needs no role"):
        make_fenced_role(engine)
    engine.dispose()


def started_by(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Have the box's process begin with a shell script, whose arguments are Python's."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_the_time_of_a_statement_begins_when_its_process_has_started(
    sqlite_box: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(box_module, "KILL_SECONDS", 1.0)
    started_by(monkeypatch, tmp_path, f'sleep 2; exec "{sys.executable}" "$@"')

    found = run_query(sqlite_box.url, "SELECT 1", limits=QueryLimits(seconds=0.1))

    assert found.rows == ((1,),)


def test_a_process_that_does_not_start_is_not_blamed_on_the_statement(
    sqlite_box: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started_by(monkeypatch, tmp_path, "exec sleep 600")
    monkeypatch.setattr(box_module, "START_SECONDS", 0.2)

    with pytest.raises(QueryError, match=r"did not start within 0\.2 s") as caught:
        run_query(sqlite_box.url, "SELECT 1")

    assert caught.value.fence is None
