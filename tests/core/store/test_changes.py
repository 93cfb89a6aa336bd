"""Tests for the log of changes: who follows a run misses nothing."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import event
from sqlalchemy.orm import Session

from core.store.conftest import ON_BOTH
from longhaul_core.store import (
    Label,
    Metrics,
    RunEnded,
    StoreWriter,
    open_store,
    queries,
)
from longhaul_core.store.queries import Change, changes_since
from store_samples import (
    make_audit,
    make_credit,
    make_decisions,
    make_training_step,
    run_started,
)


@ON_BOTH
def test_each_change_is_told_once_in_the_order_of_commits(
    writer: StoreWriter, session: Session
) -> None:
    writer.write([run_started()])
    cursor = changes_since(session, run_id="run").cursor
    assert cursor == 1
    session.rollback()
    played = make_training_step(1, num_groups=1)
    writer.write(played)
    writer.write([*make_decisions(played), make_credit(played[0])])
    writer.write([Metrics(run_id="run", attempt=0, training_step=1, values={"a": 1.0, "b": 2.0})])
    writer.write([make_audit(), make_label(played[1].episode_id)])
    writer.write(
        [RunEnded(run_id="run", attempt=0, status="finished", message="", ended_at=1_760_000_100.0)]
    )

    found = changes_since(session, run_id="run", cursor=cursor)
    ids = [each.episode_id for each in played]
    assert [
        (row.commit_number, row.kind, row.training_step, row.episode_id) for row in found.rows
    ] == [
        *((2, "episode", 1, episode_id) for episode_id in ids),
        (3, "decision", 1, None),
        (3, "credit", 1, ids[0]),
        (4, "metrics", 1, None),
        (5, "audit", None, None),
        (5, "label", None, ids[1]),
        (6, "run", None, None),
    ]
    assert (found.cursor, found.more, found.status) == (6, False, "finished")
    assert changes_since(session, run_id="run", cursor=6).rows == ()
    with pytest.raises(LookupError, match="no run 'nobody'"):
        changes_since(session, run_id="nobody")


def make_label(episode_id: str) -> Label:
    return Label(
        episode_id=episode_id, step_index=None, name="n", value="v", author="a", created_at=1.0
    )


def test_an_episode_that_is_there_is_no_change(writer: StoreWriter, session: Session) -> None:
    played = make_training_step(1)
    writer.write([run_started(), *played])
    writer.write(played)
    assert changes_since(session, run_id="run", cursor=0).cursor == 1


@pytest.mark.parametrize("limit", [1, 3, 8, 100])
def test_changes_come_in_parts_that_split_no_commit(
    writer: StoreWriter, session: Session, limit: int
) -> None:
    writer.write([run_started()])
    for training_step in (1, 2, 3):
        writer.write(make_training_step(training_step, num_groups=1))
    rows: list[Change] = []
    cursor, more = 0, True
    while more:
        part = changes_since(session, run_id="run", cursor=cursor, limit=limit)
        assert part.rows[-1].commit_number == part.cursor > cursor
        cursor, more = part.cursor, part.more
        rows += part.rows
    assert rows == list(changes_since(session, run_id="run", cursor=0, limit=1_000).rows)
    assert len(rows) == 1 + 3 * 4


@ON_BOTH
def test_nobody_sees_a_commit_before_one_with_a_smaller_number(store: str) -> None:
    """Writers of one run commit in the order of their numbers, however they overlap."""
    with StoreWriter(store) as first:
        first.write([run_started()])
    missed: list[str] = []
    writing = threading.Event()

    def write(attempt: int) -> None:
        with StoreWriter(store) as writer:
            for step in range(1, 9):
                writer.write(make_training_step(step + 100 * attempt, num_groups=1, group_size=1))

    def follow() -> int:
        engine = open_store(store)
        cursor, seen = 0, 0
        while True:
            last_look = writing.is_set()
            with Session(engine) as session:
                found = changes_since(session, run_id="run", cursor=cursor, limit=2)
                known = {row.episode_id for row in queries.list_episodes(session, limit=100).rows}
            numbers = [row.commit_number for row in found.rows]
            if sorted(set(numbers)) != list(range(cursor + 1, found.cursor + 1)):
                missed.append(f"after {cursor} came {numbers}")
            missed.extend(
                str(row)
                for row in found.rows
                if row.kind == "episode" and row.episode_id not in known
            )
            cursor, seen = found.cursor, seen + len(found.rows)
            if last_look and not found.more:
                engine.dispose()
                return seen

    with ThreadPoolExecutor(4) as pool:
        follower = pool.submit(follow)
        for done in [pool.submit(write, number) for number in range(3)]:
            done.result(timeout=120)
        writing.set()
        assert follower.result(timeout=120) == 1 + 3 * 8
    assert missed == []


def test_a_number_is_given_only_after_the_one_before_was_committed(
    empty_postgresql: str,
) -> None:
    """The second writer waits for the first one's commit. SQLite has one writer at a time."""
    store = empty_postgresql
    opened = open_store(store)
    with StoreWriter(store) as writer:
        writer.write([run_started()])
    counted, may_commit = threading.Event(), threading.Event()

    def hold(*_: object) -> None:
        counted.set()
        may_commit.wait(60)

    slow, fast = StoreWriter(store), StoreWriter(store)
    event.listen(slow._engine, "commit", hold)  # pyright: ignore[reportPrivateUsage]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(slow.write, make_training_step(1, num_groups=1))
        assert counted.wait(60)
        second = pool.submit(fast.write, make_training_step(2, num_groups=1))
        with pytest.raises(TimeoutError):
            second.result(timeout=1.0)
        with Session(opened) as session:
            assert changes_since(session, run_id="run", cursor=0).cursor == 1
        may_commit.set()
        first.result(timeout=60)
        second.result(timeout=60)
    with Session(opened) as session:
        rows = changes_since(session, run_id="run", cursor=1).rows
    assert [(row.commit_number, row.training_step) for row in rows] == [(2, 1)] * 4 + [(3, 2)] * 4
    slow.close()
    fast.close()
    opened.dispose()
