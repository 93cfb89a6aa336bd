"""Tests for `longhaul_core.store.background`: a writer in a process of its own."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from longhaul_core.errors import StoreError
from longhaul_core.store import BackgroundWriter, Metrics, queries, read_only_engine
from store_samples import make_training_step, run_started

TESTS = Path(__file__).parents[2]


def children() -> set[int]:
    """Processes that this one has started and that live."""
    return children_of(os.getpid())


def children_of(pid: int) -> set[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return {int(child) for child in listed.split()}


def test_what_was_written_is_in_the_store_after_flush(store: str, session: Session) -> None:
    with BackgroundWriter(store) as writer:
        writer.write([run_started()])
        for training_step in range(1, 6):
            writer.write(make_training_step(training_step))
        writer.flush()
        assert queries.list_episodes(session).total == 40
        session.rollback()
        writer.write(make_training_step(6))
    assert queries.list_episodes(session).total == 48


def test_supersede_is_done_when_it_returns(store: str, session: Session) -> None:
    with BackgroundWriter(store) as writer:
        writer.write([run_started(), *make_training_step(1), run_started(attempt=1)])
        writer.supersede("run", 0)
        assert queries.list_episodes(session).total == 0


def test_closing_leaves_no_process_behind(tmp_path: Path) -> None:
    before = children()
    writer = BackgroundWriter(tmp_path / "store.db")
    assert len(children() - before) == 1
    writer.close()
    writer.close()
    assert children() == before
    with pytest.raises(StoreError, match="is closed"):
        writer.write([run_started()])


def test_a_store_that_does_not_open_is_refused_at_once(tmp_path: Path) -> None:
    before = children()
    with pytest.raises(StoreError, match="check that the folder exists"):
        BackgroundWriter(tmp_path)
    assert children() == before


def test_an_error_of_the_store_reaches_the_caller_and_stays(tmp_path: Path) -> None:
    writer = BackgroundWriter(tmp_path / "store.db")
    writer.write(make_training_step(1))
    with pytest.raises(StoreError, match="run 'run' is not in the store"):
        writer.flush()
    with pytest.raises(StoreError, match="run 'run' is not in the store"):
        writer.write([run_started()])
    with pytest.raises(StoreError, match="run 'run' is not in the store"):
        writer.close()


def test_an_error_in_the_block_is_not_hidden_by_the_stores(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        with BackgroundWriter(tmp_path / "store.db") as writer:
            writer.write(make_training_step(1))
            raise ZeroDivisionError


def test_the_death_of_the_writer_process_is_noticed(tmp_path: Path) -> None:
    before = children()
    writer = BackgroundWriter(tmp_path / "store.db")
    [pid] = children() - before
    writer.write([run_started()])
    writer.flush()
    os.kill(pid, signal.SIGKILL)

    with pytest.raises(StoreError, match=r"ended early \(exit status -9\)"):
        for training_step in range(1, 100):
            writer.write(make_training_step(training_step))
            time.sleep(0.01)
    with pytest.raises(StoreError, match="ended early"):
        writer.close()


def test_ctrl_c_and_a_polite_end_do_not_reach_the_writer_process(
    store: str, session: Session
) -> None:
    before = children()
    with BackgroundWriter(store) as writer:
        [pid] = children() - before
        writer.write([run_started()])
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
        writer.write(make_training_step(1))
    assert queries.list_episodes(session).total == 8


def test_a_full_backlog_holds_the_caller_up_until_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with BackgroundWriter(path, max_backlog=2) as writer:
        writer.write([run_started()])
        writer.flush()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # the writer process has to wait
            writer.write(make_training_step(1))
            writer.write(make_training_step(2))
            third = threading.Thread(target=writer.write, args=(make_training_step(3),))
            third.start()
            third.join(timeout=0.5)
            assert third.is_alive()
            other.execute("COMMIT")
            third.join(timeout=30)
            assert not third.is_alive()
    engine = read_only_engine(path)
    with Session(engine) as session:
        assert queries.list_episodes(session).total == 24
    engine.dispose()


def test_threads_share_a_writer(store: str, session: Session) -> None:
    with BackgroundWriter(store) as writer:
        writer.write([run_started()])
        threads = [
            threading.Thread(target=writer.write, args=(make_training_step(step),))
            for step in range(1, 9)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert queries.list_episodes(session).total == 64


CALLER = """
import sys, time
from longhaul_core.store import BackgroundWriter
from store_samples import make_training_step, run_started

def main():
    with BackgroundWriter(sys.argv[1]) as writer:
        writer.write([run_started()])
        for training_step in range(1, 21):
            writer.write(make_training_step(training_step))
        print("sent", flush=True)
        time.sleep(60)

main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_what_was_sent_is_written_however_the_caller_dies(
    tmp_path: Path, blow: signal.Signals
) -> None:
    path = tmp_path / "store.db"
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, str(path)],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "sent\n"
        [writer] = children_of(caller.pid)
        caller.send_signal(blow)
        caller.wait(timeout=30)

    deadline = time.monotonic() + 60
    while is_alive(writer) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(writer)
    engine = read_only_engine(path)
    assert count_episodes(engine) == 160
    engine.dispose()


def is_alive(pid: int) -> bool:
    """False also for a process that is over and waits to be buried by the system's first one."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def count_episodes(engine: Engine) -> int:
    with Session(engine) as session:
        return queries.list_episodes(session).total


CARELESS_CALLER = """
import sys
from longhaul_core.store import BackgroundWriter
from store_samples import make_training_step, run_started

writer = BackgroundWriter(sys.argv[1])
writer.write([run_started()])
writer.flush()
print("ready", flush=True)
sys.stdin.readline()
for training_step in range(1, 11):
    writer.write(make_training_step(training_step))
print("sent", flush=True)
"""


def test_a_caller_that_forgets_to_close_does_not_end_before_all_is_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    caller = subprocess.Popen(
        [sys.executable, "-c", CARELESS_CALLER, str(path)],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with caller:
        assert caller.stdin is not None
        assert caller.stdout is not None
        assert caller.stdout.readline() == "ready\n"
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # nothing can be written now
            caller.stdin.write("go\n")
            caller.stdin.flush()
            assert caller.stdout.readline() == "sent\n"
            with pytest.raises(subprocess.TimeoutExpired):
                caller.wait(timeout=1)
            other.execute("COMMIT")
        assert caller.wait(timeout=60) == 0
    engine = read_only_engine(path)
    assert count_episodes(engine) == 80
    engine.dispose()


def test_two_writers_at_once_lose_and_double_nothing(store: str, session: Session) -> None:
    # Both write the same ten training steps and five of their own.
    with BackgroundWriter(store) as one, BackgroundWriter(store) as other:
        one.write([run_started()])
        one.flush()
        for training_step in range(1, 11):
            one.write(make_training_step(training_step))
            other.write(make_training_step(training_step))
        for training_step in range(11, 16):
            one.write(make_training_step(training_step))
            other.write(make_training_step(training_step + 5))
        for writer in (one, other):
            writer.write([Metrics(run_id="run", attempt=0, training_step=1, values={"a": 1.0})])

    assert queries.list_episodes(session).total == 20 * 8
    assert queries.violations(session, run_id="run") == []
    assert queries.metric_series(session, run_id="run") == {"a": [(1, 1.0)]}


def test_a_backlog_of_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_backlog must be at least 1, got 0"):
        BackgroundWriter(tmp_path / "store.db", max_backlog=0)
