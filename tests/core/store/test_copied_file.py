"""A SQLite store as people copy it: its file alone, or with its log into a read-only place."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from longhaul_core.errors import StoreError
from longhaul_core.sql_box.box import run_query
from longhaul_core.store import StoreWriter, open_store, queries, read_only_engine
from small_disk import make_read_only, small_disk
from store_samples import make_training_step, run_started

TESTS = Path(__file__).parents[2]

CHILD = """
import sys
from longhaul_core.store import Metrics, StoreWriter
from store_samples import make_training_step, run_started

writer = StoreWriter(sys.argv[1])
writer.write([run_started()])
writer.write(make_training_step(1))
writer.write([Metrics(run_id="run", attempt=0, training_step=1, values={"loss": 0.5})])
writer.write(make_training_step(2))
print("in the second training step", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A store, and the process that has written one training step and a half into it."""
    store = tmp_path / "runs" / "longhaul.db"
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(store)],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"in the second training step\n"
        yield store, child
        child.kill()


def num_episodes(store: Path) -> int:
    engine = read_only_engine(store)
    with Session(engine) as session:
        count = queries.count_episodes(session)
    engine.dispose()
    return count


@pytest.mark.parametrize("killed", [False, True])
def test_the_file_alone_of_a_run_that_goes_on_or_was_killed_has_its_training_steps(
    writing: tuple[Path, subprocess.Popen[bytes]], tmp_path: Path, *, killed: bool
) -> None:
    store, child = writing
    if killed:
        child.send_signal(signal.SIGKILL)
        child.wait()

    copy = Path(shutil.copy(store, tmp_path / "copy.db"))

    assert num_episodes(copy) == 8
    assert num_episodes(store) == 16


def test_the_file_alone_of_a_new_store_is_a_store(tmp_path: Path) -> None:
    engine = open_store(tmp_path / "store.db")
    copy = Path(shutil.copy(tmp_path / "store.db", tmp_path / "copy.db"))
    engine.dispose()

    assert num_episodes(copy) == 0


def test_a_writer_that_ends_waits_for_a_reader_that_keeps_the_log(tmp_path: Path) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    writer = StoreWriter(store)
    writer.write([run_started(), *make_training_step(1)])
    num_tries = 0
    with closing(sqlite3.connect(store, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM episodes").fetchone() == (8,)
        writer.write(make_training_step(2))

        def end_reading(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            nonlocal num_tries
            num_tries += "wal_checkpoint" in statement
            if num_tries == 2:
                reader.rollback()

        event.listen(Engine, "after_cursor_execute", end_reading)
        try:
            writer.close()
        finally:
            event.remove(Engine, "after_cursor_execute", end_reading)
        shutil.copy(store, copy)

    assert num_episodes(copy) == 16
    assert num_tries == 3


def test_a_writer_that_ends_says_that_a_reader_keeps_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "store.db"
    writer = StoreWriter(store)
    writer.write([run_started()])
    with closing(sqlite3.connect(store, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM episodes").fetchone()
        writer.write(make_training_step(1))
        writer.close(patience_seconds=0)

    assert f"{store}-wal: copy both, or copy the store by `trainer runs backup`" in caplog.text


def test_a_store_that_was_copied_without_its_log_says_so(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store.db") as writer:
        writer.write([run_started(), *make_training_step(1)])
    whole = (tmp_path / "store.db").read_bytes()
    torn, empty = tmp_path / "torn.db", tmp_path / "empty.db"
    torn.write_bytes(whole[: len(whole) // 2])
    empty.touch()
    remedy = "which holds what was written last: copy both, or copy the store by `trainer runs"

    with pytest.raises(StoreError, match=f"malformed: .*copied without {torn}-wal, {remedy}"):
        num_episodes(torn)
    with pytest.raises(StoreError, match=f"no store yet: .*copied without {empty}-wal, {remedy}"):
        num_episodes(empty)
    Path(f"{torn}-wal").write_bytes(b"something")
    with pytest.raises(StoreError, match="the file is damaged; else restore a copy"):
        num_episodes(torn)


@pytest.mark.parametrize("with_index", [False, True])
def test_a_store_with_its_log_is_read_from_a_read_only_place(
    writing: tuple[Path, subprocess.Popen[bytes]], tmp_path: Path, *, with_index: bool
) -> None:
    store, child = writing
    child.kill()
    child.wait()
    with small_disk(tmp_path / "disk", megabytes=64) as disk:
        copy = Path(shutil.copy(store, disk))
        for end in ("-wal", "-shm") if with_index else ("-wal",):
            shutil.copy(f"{store}{end}", disk)
        make_read_only(disk)

        assert num_episodes(copy) == 16
        answer = run_query(copy, "SELECT count(*) FROM episodes")
        assert answer.rows == ((16,),)
