"""Tests for `longhaul_core.store.session` and `addresses`: what opens, and what is refused."""

import os
import resource
import sqlite3
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, event, make_url, text
from sqlalchemy.orm import Session

from core.store.conftest import ON_BOTH
from longhaul_core.errors import StoreError
from longhaul_core.store import StoreWriter, check_store, open_store, queries, read_only_engine
from longhaul_core.store.addresses import (
    describe_store,
    is_temporary,
    store_errors,
    store_url,
)
from longhaul_core.store.maintenance import delete_run
from longhaul_core.store.models import SCHEMA_VERSION
from longhaul_core.store.session import write_transaction
from small_disk import small_disk
from store_samples import make_training_step, run_started


def test_a_path_is_a_sqlite_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(store_url("runs/a.db")) == f"sqlite:///{tmp_path}/runs/a.db"
    assert store_url("sqlite:///a.db") == store_url(Path("a.db"))
    assert store_url("sqlite:////data/a.db").database == "/data/a.db"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg2"])
def test_a_postgresql_url_gets_the_driver_we_install(scheme: str) -> None:
    if scheme == "postgres":
        pytest.importorskip("psycopg")
    url = store_url(f"{scheme}://ann@db/runs")
    assert url.drivername == "postgresql+psycopg"


@pytest.mark.parametrize("store", ["", ":memory:", "sqlite://", "sqlite:///:memory:"])
def test_a_store_in_memory_is_refused(store: str) -> None:
    with pytest.raises(StoreError, match=r"(a store is a file|needs a file)"):
        store_url(store)


def test_another_database_is_refused() -> None:
    with pytest.raises(StoreError, match="SQLite or PostgreSQL, not in 'mysql'"):
        store_url("mysql://db/runs")


@pytest.mark.parametrize(
    "store",
    [
        "postgresql://ann:hunter2@db/runs",
        "postgresql://db/runs?user=ann&password=hunter2",
        "postgresql://ann:hunter2@db:5432/runs?sslpassword=hunter2",
    ],
)
def test_a_password_is_not_shown(store: str) -> None:
    assert "hunter2" not in describe_store(store_url(store))


def test_an_address_that_is_none_is_refused_without_its_password() -> None:
    with pytest.raises(StoreError, match="not a database URL") as raised:
        store_url("postgresql://ann:hunter2@db:port/runs")
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_an_unreachable_server_says_what_to_check_and_no_password() -> None:
    with pytest.raises(StoreError, match="check the address") as raised:
        open_store("postgresql://ann:hunter2@127.0.0.1:1/runs")
    assert "hunter2" not in str(raised.value)


def test_opening_creates_the_store_and_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "store.db"
    open_store(path).dispose()
    open_store(path, create=False).dispose()
    assert path.exists()


def test_opening_creates_a_postgresql_store(empty_postgresql: str) -> None:
    with pytest.raises(StoreError, match="holds no store yet"):
        open_store(empty_postgresql, create=False)
    with pytest.raises(StoreError, match="holds no store yet: start a run"):
        read_only_engine(empty_postgresql)
    with StoreWriter(empty_postgresql) as writer:
        writer.write([run_started()])
    engine = read_only_engine(empty_postgresql)
    with Session(engine) as session:
        assert len(queries.list_runs(session)) == 1
    engine.dispose()


def test_a_store_that_is_not_there_is_not_made_by_looking(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with pytest.raises(StoreError, match="there is no store at"):
        open_store(path, create=False)
    with pytest.raises(StoreError, match="there is no store at"):
        read_only_engine(path)
    assert check_store(str(path)).endswith("will be created")
    assert list(tmp_path.iterdir()) == []


@ON_BOTH
def test_a_reader_cannot_write(engine: Engine) -> None:
    with pytest.raises(StoreError, match=r"readonly|read-only"):
        with store_errors("it"), engine.begin() as connection:
            connection.execute(text("DELETE FROM runs"))


@ON_BOTH
def test_a_newer_store_is_refused_with_a_clear_word(store: str) -> None:
    engine = open_store(store)
    set_version(engine, "9999")
    refusal = (
        rf"written by a newer version of Longhaul \(schema 9999; this program reads "
        rf"{SCHEMA_VERSION}\): upgrade the program"
    )
    try:
        with pytest.raises(StoreError, match=refusal):
            open_store(store)
        with pytest.raises(StoreError, match=refusal):
            read_only_engine(store)
        with pytest.raises(StoreError, match=refusal):
            check_store(store)
    finally:
        set_version(engine, SCHEMA_VERSION)
        engine.dispose()


def set_version(engine: Engine, version: str) -> None:
    with write_transaction(engine) as connection:
        connection.execute(text("UPDATE longhaul_schema SET version_num = :v"), {"v": version})


def test_another_programs_tables_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE runs (x)")
    with pytest.raises(StoreError, match=r"not a Longhaul store but holds tables .*\(runs\)"):
        open_store(path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database " * 1_000, encoding="utf-8")
    with pytest.raises(StoreError, match="it is some other file; name another path"):
        open_store(path)


def test_a_folder_in_the_way_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="check that the folder exists and may be written"):
        open_store(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot create the store's folder"):
        open_store(tmp_path / "file" / "store.db")


def test_a_locked_store_says_who_is_to_blame(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    open_store(path).dispose()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked: another program held it"):
            check_store(str(path))
    assert check_store(str(path)).endswith(f"writable, schema {SCHEMA_VERSION}")


@ON_BOTH
def test_a_store_that_another_program_holds_is_so_for_a_while(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longhaul_core.store.session.LOCK_WAIT_SECONDS", 0.1)
    engine = open_store(store)
    with write_transaction(engine) as holder:
        if holder.dialect.name == "postgresql":
            holder.execute(text("LOCK TABLE runs"))
        with pytest.raises(StoreError, match=r"locked|lock timeout") as raised:
            with write_transaction(engine) as connection:
                if connection.dialect.name == "postgresql":
                    connection.execute(text("SET LOCAL lock_timeout = '100ms'"))
                connection.execute(text("DELETE FROM runs"))
    engine.dispose()

    assert is_temporary(raised.value)


def test_a_connection_that_is_lost_is_so_for_a_while(postgresql_engine: Engine) -> None:
    with pytest.raises(StoreError, match="terminating connection") as lost:
        with write_transaction(postgresql_engine) as connection:
            connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
    with pytest.raises(StoreError, match="check the address") as unreachable:
        open_store("postgresql://ann@127.0.0.1:1/runs")

    assert is_temporary(lost.value)
    assert is_temporary(unreachable.value)
    with write_transaction(postgresql_engine) as connection:
        connection.execute(text("SELECT 1"))  # on a connection of its own


def test_two_transactions_that_wait_for_each_other_pass(postgresql_engine: Engine) -> None:
    meeting = threading.Barrier(2)

    def lock_both(first: int, second: int) -> StoreError | None:
        try:
            with write_transaction(postgresql_engine) as connection:
                connection.execute(text(f"SELECT pg_advisory_xact_lock({first})"))
                meeting.wait(60)
                connection.execute(text(f"SELECT pg_advisory_xact_lock({second})"))
        except StoreError as error:
            return error
        return None

    with ThreadPoolExecutor(2) as threads:
        ended = list(threads.map(lock_both, (1, 2), (2, 1)))

    (error,) = [each for each in ended if each is not None]
    assert "deadlock" in str(error)
    assert is_temporary(error)


@ON_BOTH
def test_what_a_store_refuses_it_refuses_later_too(store: str, tmp_path: Path) -> None:
    engine = open_store(store)
    with pytest.raises(StoreError) as wrong:
        with write_transaction(engine) as connection:
            connection.execute(text("DELETE FROM nowhere"))
    engine.dispose()
    (tmp_path / "notes.txt").write_text("not a database " * 1_000, encoding="utf-8")
    with pytest.raises(StoreError) as damaged:
        open_store(tmp_path / "notes.txt")
    with StoreWriter(store) as writer, pytest.raises(StoreError) as unknown:
        writer.write(make_training_step(1))

    assert not any(is_temporary(each.value) for each in (wrong, damaged, unknown))


def test_a_full_disk_says_so_and_loses_nothing_committed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with StoreWriter(path) as writer:
        writer.write([run_started(), *make_training_step(1)])
        with limited_file_size(path.stat().st_size + 200_000):
            with pytest.raises(StoreError, match=r"free space on the disk|check the disk"):
                for training_step in range(2, 60):
                    writer.write(make_training_step(training_step))
        engine = read_only_engine(path)
        with Session(engine) as session:
            before = queries.count_episodes(session)
        assert before >= 8
        writer.write(make_training_step(99))  # goes on once there is space again
        with Session(engine) as session:
            assert queries.count_episodes(session) == before + 8
            assert queries.violations(session, run_id="run") == []
        engine.dispose()


@contextmanager
def limited_file_size(num_bytes: int) -> Generator[None]:
    """Files of this process cannot grow beyond a size: what a full disk looks like."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_store_on_read_only_media_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    with StoreWriter(path) as writer:
        writer.write([run_started()])
    assert not Path(f"{path}-wal").exists()

    def nothing_is_writable(*_: object) -> bool:
        return False

    monkeypatch.setattr(os, "access", nothing_is_writable)  # root may write anywhere

    engine = read_only_engine(path)
    with Session(engine) as session:
        assert len(queries.list_runs(session)) == 1
    engine.dispose()
    assert [each.name for each in tmp_path.iterdir()] == ["store.db"]


def test_a_store_on_a_full_disk_says_what_is_free_there_and_what_to_do(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", megabytes=2) as disk:
        with StoreWriter(disk / "store.db") as writer:
            writer.write([run_started()])
            with pytest.raises(StoreError, match=r"store.db: .* is full: its disk has") as raised:
                for training_step in range(1, 200):
                    writer.write(make_training_step(training_step))

        assert "MiB free of 2; free space there" in str(raised.value)


def test_a_path_with_odd_characters_works(tmp_path: Path) -> None:
    path = tmp_path / "a b?c#d%20e.db"
    with StoreWriter(path) as writer:
        writer.write([run_started()])
    engine = read_only_engine(path)
    with Session(engine) as session:
        assert len(queries.list_runs(session)) == 1
    engine.dispose()


@ON_BOTH
def test_a_probe_leaves_no_trace(store: str) -> None:
    check_store(store)
    engine = create_engine(make_url(store) if "://" in store else f"sqlite:///{store}")
    with engine.connect() as connection, pytest.raises(Exception, match="longhaul_probe"):
        connection.execute(text("SELECT * FROM longhaul_probe"))
    engine.dispose()


def test_a_writer_that_ends_leaves_statistics_for_readers(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with StoreWriter(path) as writer:
        writer.write([run_started(), *make_training_step(1)])
    with closing(sqlite3.connect(path)) as connection:
        counted = dict(connection.execute("SELECT tbl, max(stat) FROM sqlite_stat1 GROUP BY tbl"))
    # Rows, and how many of them are equal: an episode, a step and a task of the sample.
    assert counted["episodes"].startswith("8 ")
    assert counted["steps"].startswith("28 ")
    assert counted["tasks"].startswith("2 ")


def test_a_store_is_whole_in_its_file_although_a_reader_had_it_open_when_its_writer_ended(
    tmp_path: Path,
) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    writer = StoreWriter(path)
    writer.write([run_started(), *make_training_step(1)])
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as reader:
        (before,) = reader.execute("SELECT count(*) FROM steps").fetchone()
        writer.close()

        copy.write_bytes(path.read_bytes())
        assert Path(f"{path}-wal").stat().st_size == 0

    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT count(*) FROM steps").fetchone() == (before,)
        assert before == 28


def test_a_writer_ends_although_another_program_holds_the_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    writer = StoreWriter(path)
    writer.write([run_started()])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writer.close()
        other.execute("COMMIT")
        assert not other.execute(
            "SELECT 1 FROM sqlite_master WHERE name = 'sqlite_stat1'"
        ).fetchall()


@ON_BOTH
def test_an_answer_is_of_one_state_of_the_store(
    opened: Engine, engine: Engine, writer: StoreWriter
) -> None:
    """An answer is of several statements, and a run may be deleted between two of them."""
    writer.write([run_started(), *make_training_step(1)])
    with Session(engine) as session:
        episode_id = queries.list_episodes(session).rows[0].episode_id
    removed: list[str] = []

    def remove(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "FROM messages" in statement and not removed:
            removed.append(statement)
            delete_run(opened, run_id="run", force=True)

    event.listen(engine, "before_cursor_execute", remove)
    with Session(engine) as session:
        episode = queries.get_episode(session, episode_id=episode_id)

    assert removed
    assert all(call.messages for step in episode.steps for call in step.calls)
    with Session(engine) as session, pytest.raises(LookupError):
        queries.get_episode(session, episode_id=episode_id)


@ON_BOTH
def test_readers_that_come_again_open_no_further_connections(store: str) -> None:
    with StoreWriter(store) as writer:
        writer.write([run_started(), *make_training_step(1)])
    engine = read_only_engine(store)
    num_opened = 0

    def count(*_: object) -> None:
        nonlocal num_opened
        num_opened += 1

    event.listen(engine, "connect", count)
    counts: list[int] = []
    for _ in range(2):
        with ExitStack() as readers:
            for _ in range(10):
                session = readers.enter_context(Session(engine))
                assert len(queries.list_runs(session)) == 1
        counts.append(num_opened)
    engine.dispose()

    assert counts == [9, 9], "the first was opened to look at the schema"
