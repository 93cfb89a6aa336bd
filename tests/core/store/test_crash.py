"""kill -9 of a writer at chosen moments: the store opens, nothing committed is lost or doubled.

The child kills itself inside a statement's hook, so the moments are exact: after the
episodes are inserted but not their steps, between steps and contents, in the middle of
credit, and right before and after the commit. What the writer gives to psycopg itself has
the hook there: rows that are copied into PostgreSQL, and updates that nobody has answered yet.

The loss of power cannot be had in a test. Its opposite can: a disk that refuses to sync the
write-ahead log must be noticed by `flush`, or it did not sync it.
"""

import os
import platform
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from longhaul_core.store import Record, StoreWriter, queries, read_only_engine
from store_samples import make_credit, make_decisions, make_training_step

TESTS = Path(__file__).parents[2]

CHILD = """
import os, signal, sys
from contextlib import contextmanager
from sqlalchemy import Engine, event
from longhaul_core.store import StoreWriter
from store_samples import make_credit, make_decisions, make_training_step, run_started

store, moment = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def die_after(connection, cursor, statement, *_):
    if statement.replace("COPY", "INSERT INTO").startswith(moment):
        die()

def hook_psycopg():
    import psycopg
    copy, execute = psycopg.Cursor.copy, psycopg.Connection.execute

    @contextmanager
    def copy_and_die(cursor, statement, *given, **more):
        with copy(cursor, statement, *given, **more) as copied:
            yield copied
        die_after(None, cursor, statement.decode())

    def execute_and_die(connection, statement, *given, **more):
        result = execute(connection, statement, *given, **more)
        die_after(connection, result, statement.decode())
        return result

    psycopg.Cursor.copy, psycopg.Connection.execute = copy_and_die, execute_and_die

def batch(training_step):
    episodes = make_training_step(training_step)
    return [*episodes, *make_decisions(episodes), *(make_credit(episode) for episode in episodes)]

writer = StoreWriter(store)
writer.write([run_started(), *batch(1)])
writer.write(batch(2))
print("committed", flush=True)
if moment == "before commit":
    event.listen(Engine, "commit", die)
elif moment != "after commit":
    event.listen(Engine, "after_cursor_execute", die_after)
    if "://" in store:
        hook_psycopg()
writer.write(batch(3))
die()
"""

MOMENTS = [
    "INSERT INTO tasks",
    "INSERT INTO episodes",
    "INSERT INTO messages",
    "INSERT INTO steps",
    "INSERT INTO calls",
    "INSERT INTO call_tokens",
    "UPDATE episodes",
    "UPDATE steps",
    "before commit",
    "after commit",
]


def batch(training_step: int) -> list[Record]:
    episodes = make_training_step(training_step)
    return [*episodes, *make_decisions(episodes), *(make_credit(episode) for episode in episodes)]


ON_EACH = [
    (kind, moment)
    for place, moment in enumerate(MOMENTS)
    for kind in ("sqlite", "postgresql")
    if moment.endswith("commit") or (place % 2 == 0) == (kind == "sqlite")
]
"""A batch is one transaction on both: they share the moments within it."""


@pytest.mark.slow
@pytest.mark.parametrize(("store", "moment"), ON_EACH, indirect=["store"])
def test_a_writer_killed_at_any_moment_leaves_whole_batches(store: str, moment: str) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", CHILD, store, moment],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        check=False,
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout == b"committed\n"

    survived = 3 if moment == "after commit" else 2
    if "://" not in store:
        with closing(sqlite3.connect(store)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    engine = read_only_engine(store)
    with Session(engine) as session:
        assert queries.count_episodes(session) == survived * 8
        assert queries.violations(session, run_id="run") == []

    # The run goes on and writes what it is not sure of again.
    with StoreWriter(store) as writer:
        writer.write(batch(2))
        writer.write(batch(3))
    with Session(engine) as session:
        assert queries.count_episodes(session) == 24
        assert queries.list_runs(session)[0].num_steps == 3 * 28
        assert queries.violations(session, run_id="run") == []
        page = queries.list_episodes(session, limit=100)
        assert all(row.trained for row in page.rows)
    engine.dispose()


FLUSHING_CHILD = """
import ctypes, os, sqlite3, struct, sys
from longhaul_core.errors import StoreError
from longhaul_core.store import StoreWriter
from store_samples import make_training_step, run_started

FSYNC, FDATASYNC = 74, 75
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER_MODE = 22, 38, 2
ALLOW, FAIL_WITH_EIO = 0x7FFF0000, 0x00050005
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06

class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]

def refuse_to_sync(suffix):
    files = [int(fd) for fd in os.listdir("/proc/self/fd")
             if os.path.exists(f"/proc/self/fd/{fd}")
             and os.readlink(f"/proc/self/fd/{fd}").endswith(suffix)]
    assert files
    steps = [(LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 1, 0, FSYNC),
             (JUMP_IF_EQUAL, 0, len(files) + 1, FDATASYNC), (LOAD, 0, 0, 16)]
    steps += [(JUMP_IF_EQUAL, len(files) - n, 0, fd) for n, fd in enumerate(files)]
    steps += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, FAIL_WITH_EIO)]
    instructions = b"".join(struct.pack("HBBI", *step) for step in steps)
    program = Program(len(steps), instructions)
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, FILTER_MODE, ctypes.byref(program), 0, 0) == 0

path = sys.argv[1]
writer = StoreWriter(path)
writer.write([run_started()])
reader = sqlite3.connect(path, isolation_level=None)
reader.execute("PRAGMA wal_checkpoint(TRUNCATE)")
reader.execute("BEGIN")
reader.execute("SELECT count(*) FROM runs").fetchall()
writer.write(make_training_step(1))
writer.flush()
writer.write(make_training_step(2))
refuse_to_sync("-wal")
try:
    writer.flush()
except StoreError as error:
    print(error)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="system calls are named by number")
def test_a_flush_syncs_the_write_ahead_log_although_a_reader_is_open(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", FLUSHING_CHILD, str(tmp_path / "store.db")],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    assert "disk I/O error: check the disk" in child.stdout
