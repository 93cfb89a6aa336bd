"""Tests for what a resume takes back: by its definition, and by what is read to find it."""

import random
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import pytest
from sqlalchemy import Connection, Engine, RowMapping, event, text
from sqlalchemy.orm import Session

from core.store.conftest import ON_BOTH
from longhaul_core.store import (
    EpisodeRecord,
    Evaluation,
    Metrics,
    PolicyVersion,
    Record,
    StoreWriter,
    open_store,
    queries,
)
from longhaul_core.store.records import Phase
from longhaul_core.store.session import write_transaction
from longhaul_core.store.writing.runs import FATE_OF_GROUP, roll_back
from longhaul_core.types import Split
from store_samples import (
    make_credit,
    make_decisions,
    make_record,
    make_training_step,
    make_trajectory,
    run_started,
)

KEYS = {
    "episodes": "id",
    "groups": "run_id, attempt, phase, training_step, group_index",
    "metrics": "run_id, attempt, training_step, name",
    "evaluations": "run_id, attempt, training_step, panel, split",
    "policy_versions": "run_id, attempt, version",
}
Place = tuple[str, int, int, int]
Parameters = tuple[str | int, ...]


def measured(run_id: str, attempt: int, training_step: int) -> list[Record]:
    """What a training step leaves beside its episodes."""
    about: dict[str, Any] = {"run_id": run_id, "attempt": attempt, "training_step": training_step}
    return [
        Metrics(**about, values={"loss": 1.0}),
        PolicyVersion(**about, version=training_step, created_at=1.0),
        Evaluation(
            **about,
            panel="fixed",
            split=Split.VALIDATION,
            num_episodes=1,
            mean_return=0.5,
            success_rate=0.5,
        ),
    ]


def group_of(
    draw: random.Random, run_id: str, attempt: int, training_step: int, group_index: int
) -> list[Record]:
    """A group with or without a greedy episode, a decision and credit, or a greedy one alone."""

    def episode(phase: Phase, sample_index: int = 0) -> EpisodeRecord:
        return make_record(
            make_trajectory(sample_index=sample_index, rewards=(0.0, 1.0)),
            run_id=run_id,
            attempt=attempt,
            phase=phase,
            training_step=training_step,
            group_index=group_index,
        )

    greedy: list[Record] = [episode("baseline")] if draw.random() < 0.5 else []
    if greedy and draw.random() < 0.2:
        return greedy
    sampled = [episode("train", sample_index) for sample_index in range(2)]
    records: list[Record] = [*greedy, *sampled]
    if draw.random() < 0.3:
        return records
    decided_at = training_step + draw.randrange(3)
    thrown_away = draw.random() < 0.3
    records.append(
        replace(
            make_decisions(sampled)[0],
            resolved_training_step=decided_at,
            update_index=None if thrown_away else 0,
            discard_reason="stale" if thrown_away else None,
        )
    )
    if not thrown_away:
        records += [
            replace(make_credit(record), trained_training_step=decided_at) for record in sampled
        ]
    return records


def history(draw: random.Random, run_id: str, attempt: int) -> list[list[Record]]:
    """Six training steps of an attempt, in batches that may come early or late."""
    batches: list[list[Record]] = []
    for training_step in range(1, 7):
        validation = make_record(
            make_trajectory(),
            run_id=run_id,
            attempt=attempt,
            phase="validation",
            training_step=training_step,
        )
        batches.append([validation, *measured(run_id, attempt, training_step)])
        batches += [group_of(draw, run_id, attempt, training_step, index) for index in range(3)]
    return batches


def rows(connection: Connection) -> dict[str, dict[tuple[Any, ...], RowMapping]]:
    """All rows that can be rolled_back, by table and key."""
    return {
        table: {
            tuple(row[column] for column in key.split(", ")): row
            for row in connection.execute(text(f"SELECT * FROM {table}")).mappings()
        }
        for table, key in KEYS.items()
    }


def trained_steps(connection: Connection) -> set[str]:
    return set(connection.scalars(text("SELECT episode_id FROM steps WHERE trained")))


def place(row: RowMapping) -> Place:
    return (row["run_id"], row["attempt"], row["training_step"], row["group_index"])


def taken_back(
    tables: dict[str, dict[tuple[Any, ...], RowMapping]], *, attempt: int, after: int
) -> dict[str, set[tuple[Any, ...]]]:
    """The definition: keys of the rows of `run` that are rolled_back once `attempt` has begun."""
    kept = {
        place(group)
        for group in tables["groups"].values()
        if group["phase"] == "train"
        and not group["rolled_back"]
        and (group["resolved_training_step"] or after + 1) <= after
    }

    def lost(row: RowMapping) -> bool:
        return (
            row["run_id"] == "run"
            and row["attempt"] < attempt
            and (
                row["training_step"] > after
                or (row.get("phase") in FATE_OF_GROUP and place(row) not in kept)
            )
        )

    return {
        table: {key for key, row in found.items() if row["rolled_back"] or lost(row)}
        for table, found in tables.items()
    }


@ON_BOTH
@pytest.mark.parametrize("seed", range(2))
def test_a_resume_takes_back_what_the_definition_says(
    writer: StoreWriter, engine: Engine, seed: int
) -> None:
    draw = random.Random(seed)
    other = history(draw, "other", 0)
    writer.write([run_started("other"), *chain(*other), run_started()])
    late: list[Record] = []
    for attempt in range(3):
        if attempt:
            resume_and_compare(writer, engine, attempt=attempt, after=draw.randrange(1, 6))
        groups = history(draw, "run", attempt)
        held_back = [group for group in groups if draw.random() < 0.1]
        on_time = [group for group in groups if group not in held_back]
        writer.write([*late, *chain(*on_time)])
        late = list(chain(*held_back))


def resume_and_compare(writer: StoreWriter, engine: Engine, *, attempt: int, after: int) -> None:
    with engine.connect() as connection:
        before, trained_before = rows(connection), trained_steps(connection)

    writer.write([run_started(attempt=attempt, resumes_after=after)])

    with engine.connect() as connection:
        now, trained_now = rows(connection), trained_steps(connection)
    expected = taken_back(before, attempt=attempt, after=after)
    for table, keys in expected.items():
        rolled_back = {key for key, row in now[table].items() if row["rolled_back"]}
        assert not rolled_back ^ keys, table
    assert not trained_now ^ {key for key in trained_before if (key,) not in expected["episodes"]}
    for key, row in now["episodes"].items():
        lost = key in expected["episodes"]
        for column, without in (("trained", False), ("trained_training_step", None)):
            assert row[column] == (without if lost else before["episodes"][key][column])


@pytest.fixture
def sqlite_store(sqlite_template: Path, tmp_path: Path) -> Iterator[Engine]:
    path = tmp_path / "store.db"
    path.write_bytes(sqlite_template.read_bytes())
    engine = open_store(path)
    yield engine
    engine.dispose()


def plans(engine: Engine) -> list[str]:
    """How SQLite finds the rows of each table that a resume reads or writes."""
    statements: list[tuple[str, Parameters]] = []

    def note(_c: object, _u: object, statement: str, parameters: Parameters, *_: object) -> None:
        statements.append((statement, parameters))

    with write_transaction(engine) as connection:
        event.listen(connection, "before_cursor_execute", note)
        roll_back(connection, "run", attempt=1, after=1)
        event.remove(connection, "before_cursor_execute", note)
        return [
            row.detail
            for statement, parameters in statements
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]


def test_a_resume_reads_nothing_of_the_training_steps_that_it_keeps(sqlite_store: Engine) -> None:
    with StoreWriter(sqlite_store.url) as writer:
        writer.write([run_started(), *make_training_step(1), *make_training_step(2)])
        writer.write([run_started(attempt=1)])
        # A writer that ends counts the rows, and of tables this small SQLite reads everything.
        found = plans(sqlite_store)

    assert not [plan for plan in found if plan.startswith("SCAN")]
    searches = {
        table: [plan for plan in found if re.match(rf"SEARCH {table}\b", plan)]
        for table in ("episodes", "groups", "metrics", "steps")
    }
    assert all(searches.values())
    for table in ("episodes", "metrics"):
        assert all("training_step" in plan for plan in searches[table])
    assert all("(episode_id=?)" in plan for plan in searches["steps"])
    # The groups of greedy episodes, which no training step decides on, are all looked at.
    unbounded = [plan for plan in searches["groups"] if "training_step" not in plan]
    assert len(unbounded) == 1
    assert "phase=?" in unbounded[0]


def test_every_phase_is_taken_back(writer: StoreWriter, engine: Engine) -> None:
    phases: tuple[Phase, ...] = get_args(Phase)
    writer.write([run_started()])
    writer.write(make_record(make_trajectory(), phase=phase, training_step=2) for phase in phases)

    writer.write([run_started(attempt=1, resumes_after=1)])

    with Session(engine) as session:
        assert queries.count_episodes(session) == 0


def waits_for_a_lock(engine: Engine) -> bool:
    with engine.connect() as connection:
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        return connection.execute(text(waiting)).scalar_one() > 0


# In SQLite one transaction writes at a time: the resume cannot begin.
@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_a_resume_while_an_old_attempt_writes_leaves_no_row_unmarked(
    writer: StoreWriter, engine: Engine
) -> None:
    """The old attempt is held between what it reads of the run and what it inserts."""
    writer.write([run_started(), *make_training_step(1), *make_decisions(make_training_step(1))])
    reached, resumed = threading.Event(), threading.Event()

    def hold(_c: object, _u: object, statement: str, *_: object) -> None:
        if statement.startswith("INSERT INTO episodes"):
            reached.set()
            while not (resumed.wait(0.01) or waits_for_a_lock(engine)):
                pass

    def resume() -> None:
        with StoreWriter(engine.url) as resuming:
            resuming.write([run_started(attempt=1, resumes_after=1)])
        resumed.set()

    event.listen(Engine, "before_cursor_execute", hold)
    with ThreadPoolExecutor(2) as pool:
        late = pool.submit(writer.write, make_training_step(2))
        assert reached.wait(timeout=60)
        pool.submit(resume).result(timeout=60)
        late.result(timeout=60)
    event.remove(Engine, "before_cursor_execute", hold)

    with Session(engine) as session:
        assert queries.count_episodes(session) == 8
    writer.write(make_training_step(2, attempt=1))
    with Session(engine) as session:
        assert queries.violations(session, run_id="run") == []
