"""kill -9 of a writer at chosen moments: the store opens, nothing committed is lost or doubled.

The child kills itself inside a statement's hook, so the moments are exact: after the
episodes are inserted but not their steps, between steps and contents, in the middle of
credit, and right before and after the commit.
"""

import os
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
from sqlalchemy import Engine, event
from longhaul_core.store import StoreWriter
from store_samples import make_credit, make_decisions, make_training_step, run_started

store, moment = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def die_after(connection, cursor, statement, *_):
    if statement.startswith(moment):
        die()

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
writer.write(batch(3))
die()
"""

MOMENTS = [
    "INSERT INTO tasks",
    "INSERT INTO episodes",
    "INSERT INTO messages",
    "INSERT INTO steps",
    "INSERT INTO step_contents",
    "UPDATE episodes",
    "UPDATE steps",
    "before commit",
    "after commit",
]


def batch(training_step: int) -> list[Record]:
    episodes = make_training_step(training_step)
    return [*episodes, *make_decisions(episodes), *(make_credit(episode) for episode in episodes)]


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
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
        assert queries.list_episodes(session).total == survived * 8
        assert queries.violations(session, run_id="run") == []

    # The run goes on and writes what it is not sure of again.
    with StoreWriter(store) as writer:
        writer.write(batch(2))
        writer.write(batch(3))
    with Session(engine) as session:
        assert queries.list_episodes(session).total == 24
        assert queries.list_runs(session)[0].num_steps == 3 * 28
        assert queries.violations(session, run_id="run") == []
        page = queries.list_episodes(session, limit=100)
        assert all(row.trained for row in page.rows)
    engine.dispose()
