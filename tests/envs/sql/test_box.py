"""The box around a statement: what it may not do, what it costs at most; nothing changes."""

import hashlib
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from longhaul_envs.sql.box import Limits, Refusal, Result, run_query

LIMITS = Limits(max_steps=2_000_000, max_seconds=30.0, max_rows=100, max_bytes=100_000)
ENDLESS = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT "


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Whose content is the same after all tests of this module."""
    folder = tmp_path_factory.mktemp("box")
    path = folder / "a b%20#?.sqlite"  # no name that a URI could take as it is
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE t(a INTEGER, b TEXT, c BLOB);"
            "INSERT INTO t VALUES (1, 'one', x'00ff'), (2, 'zwei', NULL), (3, NULL, NULL);"
        )
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    yield path
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert [one.name for one in folder.iterdir()] == [path.name]


def refused(file: Path, sql: str, limits: Limits = LIMITS) -> str:
    found = run_query(file, sql, limits)
    assert isinstance(found, Refusal), found
    return found.reason


def test_a_select_gives_its_rows(file: Path) -> None:
    found = run_query(file, "SELECT a, b AS word, c, a / 2.0 FROM t ORDER BY a DESC;", LIMITS)
    assert found == Result(
        ("a", "word", "c", "a / 2.0"),
        ((3, None, None, 1.5), (2, "zwei", None, 1.0), (1, "one", b"\x00\xff", 0.5)),
        is_whole=True,
    )


@pytest.mark.parametrize(
    "sql",
    [
        "WITH x AS (SELECT a FROM t) SELECT COUNT(*) FROM x JOIN x AS y ON x.a <= y.a",
        "SELECT a, ROW_NUMBER() OVER (ORDER BY a DESC) FROM t",
        "SELECT upper(substr(b, 1, 1)) FROM t WHERE b LIKE '%e%' UNION SELECT 'x'",
        "SELECT sql FROM sqlite_master",
        "-- a comment\nSELECT CASE WHEN a > 1 THEN 'more' ELSE iif(a = 1, 'one', '') END FROM t",
        "VALUES (1), (2)",
    ],
)
def test_what_a_question_needs_is_allowed(file: Path, sql: str) -> None:
    assert isinstance(run_query(file, sql, LIMITS), Result)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("INSERT INTO t VALUES (4, 'x', NULL)", "INSERT is not allowed"),
        ("UPDATE t SET a = 0", "UPDATE is not allowed"),
        ("DELETE FROM t", "DELETE is not allowed"),
        ("DROP TABLE t", "no table may be made, changed or dropped"),
        ("CREATE TABLE u(a)", "no table may be made"),
        ("CREATE TEMP TABLE u AS SELECT * FROM t", "is not allowed"),
        ("ATTACH '/tmp/other.sqlite' AS other", "ATTACH is not allowed"),
        ("VACUUM INTO '/tmp/copy.sqlite'", ""),
        ("PRAGMA query_only = 0", "PRAGMA is not allowed"),
        ("PRAGMA writable_schema = 1", "PRAGMA is not allowed"),
        ("SELECT * FROM pragma_table_info('t')", "none be virtual"),
        ("UPDATE sqlite_master SET sql = ''", "may not be modified"),
        ("BEGIN EXCLUSIVE", "a transaction is not allowed"),
        ("SELECT 1; DROP TABLE t", "one statement"),
        ("SELECT load_extension('/tmp/x.so')", "load_extension may not be called"),
        ("SELECT fts3_tokenizer('simple')", ""),
        ("SELECT zeroblob(1000000)", "zeroblob may not be called"),
        ("SELECT hex(randomblob(1000000))", "randomblob may not be called"),
        ("SELECT random()", "random may not be called"),
        ("SELECT date('now')", "date may not be called"),
        ("SELECT CURRENT_TIMESTAMP", "current_timestamp may not be called"),
        ("EXPLAIN DELETE FROM t", "DELETE is not allowed"),
        ("SELECT a FROM nowhere", "no such table: nowhere"),
        ("SELEKT 1", "syntax error"),
        ("", "no SELECT"),
        ("-- nothing", "no SELECT"),
        ("SELECT '\x00'", ""),
        ("SELECT 1" + " + 1" * 300, "Expression tree is too large"),
        ("SELECT '" + "x" * 30_000 + "'", "too large"),
        ("<answer>\u6f22\u5b57</answer>", "syntax error"),
    ],
)
def test_what_is_no_plain_select_is_refused_with_a_reason(
    file: Path, sql: str, reason: str
) -> None:
    assert reason in refused(file, sql)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (f"{ENDLESS} COUNT(*) FROM r", "too many steps"),
        (f"{ENDLESS} x FROM r WHERE x < 0", "too many steps"),
        ("SELECT COUNT(*) FROM t" + "".join(f", t AS t{n}" for n in range(20)), "too many steps"),
        ("SELECT replace(printf('%*d', 900000, 1), ' ', '   ')", "too big"),
        ("SELECT b FROM t WHERE b LIKE '" + "%a" * 800 + "'", "pattern too complex"),
    ],
)
def test_what_takes_too_much_is_refused(file: Path, sql: str, reason: str) -> None:
    assert reason in refused(file, sql)


def test_a_step_that_cannot_be_interrupted_is_ended_with_its_process(file: Path) -> None:
    """`instr` of two long texts is one step: neither the count of steps nor `interrupt` ends it."""
    slow = (
        "SELECT instr(printf('%.*c', 900000, 'a'), printf('%.*c', 450000, 'a') || 'b')"
        + " + instr(printf('%.*c', 900000, 'a'), printf('%.*c', 450000, 'a') || 'b')" * 19
    )
    limits = Limits(max_steps=2_000_000, max_seconds=1.0, max_rows=10, max_bytes=1000)
    started = time.monotonic()
    assert "takes longer than 1 seconds" in refused(file, slow, limits)
    assert time.monotonic() - started < 60


def test_memory_is_bounded(file: Path) -> None:
    """Sorted rows of a megabyte each, all held before the first is given."""
    big = (
        "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r WHERE x < 2000) "
        "SELECT printf('%.*c', 900000, 'a') || x AS y FROM r ORDER BY y"
    )
    limits = Limits(
        max_steps=2_000_000,
        max_seconds=20.0,
        max_rows=10,
        max_bytes=1000,
        max_memory=128 * 1024 * 1024,
    )
    assert "memory" in refused(file, big, limits)


def test_rows_and_bytes_are_cut_off(file: Path) -> None:
    many = run_query(file, f"{ENDLESS} x FROM r", LIMITS)
    assert isinstance(many, Result)
    assert (len(many.rows), many.is_whole) == (100, False)
    wide = run_query(file, f"{ENDLESS} printf('%.*c', 40000, 'a') FROM r", LIMITS)
    assert isinstance(wide, Result)
    assert (len(wide.rows), wide.is_whole) == (2, False)


def test_the_count_of_steps_ends_a_query_at_the_same_row_each_time(file: Path) -> None:
    limits = Limits(max_steps=100_000, max_seconds=20.0, max_rows=10**6, max_bytes=10**9)
    few = f"{ENDLESS} x FROM r LIMIT 5000"
    many = f"{ENDLESS} x FROM r LIMIT 50000"
    assert isinstance(run_query(file, few, limits), Result)
    assert "too many steps" in refused(file, many, limits)


def test_the_clock_is_read_only_where_it_is_allowed(file: Path) -> None:
    found = run_query(file, "SELECT strftime('%Y', '2020-05-01')", LIMITS, allow_clock=True)
    assert isinstance(found, Result)
    assert found.rows == (("2020",),)


def test_text_that_is_no_utf8_is_read(tmp_path: Path) -> None:
    path = tmp_path / "latin.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT CAST(x'e9' AS TEXT) AS a")
        connection.commit()
    found = run_query(path, "SELECT a FROM t", LIMITS)
    assert isinstance(found, Result)
    assert found.rows == (("\ufffd",),)


def test_a_file_that_is_no_database_is_no_fault_of_the_statement(tmp_path: Path) -> None:
    path = tmp_path / "text.sqlite"
    path.write_text("no database" * 100, encoding="ascii")
    for one in (path, tmp_path / "missing.sqlite"):
        with pytest.raises(RuntimeError, match="cannot be opened"):
            run_query(one, "SELECT 1", LIMITS)
