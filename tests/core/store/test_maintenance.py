"""Tests for `longhaul_core.store.maintenance`."""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.orm import Session

from core.store.conftest import ON_BOTH
from longhaul_core.errors import StoreError
from longhaul_core.store import (
    Evaluation,
    Heartbeat,
    PanelTasks,
    RunEnded,
    StoreWriter,
    maintenance,
    open_store,
    queries,
)
from longhaul_core.store.maintenance import PruneRule
from longhaul_core.store.models import Base
from longhaul_core.types import Observation, Split
from steps import with_call
from store_samples import (
    make_audit,
    make_loss_input,
    make_program,
    make_record,
    make_training_step,
    make_trajectory,
    run_started,
)

DAY_SECONDS = 86_400.0
NOW = 1_760_000_000.0 + 30 * DAY_SECONDS


def add_run(writer: StoreWriter, run_id: str, *, ended_days_ago: float, score: float) -> None:
    writer.write(
        [
            run_started(run_id),
            *make_training_step(1, run_id=run_id),
            Evaluation(
                run_id=run_id,
                attempt=0,
                training_step=1,
                panel="fixed",
                split=Split.VALIDATION,
                num_episodes=4,
                mean_return=score,
                success_rate=0.5,
            ),
            RunEnded(
                run_id=run_id,
                attempt=0,
                status="finished",
                message="",
                ended_at=NOW - ended_days_ago * DAY_SECONDS,
            ),
        ]
    )


def test_a_cancel_is_seen_and_a_resume_clears_it(writer: StoreWriter, opened: Engine) -> None:
    writer.write([run_started()])
    assert not maintenance.cancel_requested(opened, run_id="run")

    maintenance.request_cancel(opened, run_id="run")
    maintenance.request_cancel(opened, run_id="run")
    assert maintenance.cancel_requested(opened, run_id="run")

    writer.write([RunEnded(run_id="run", attempt=0, status="cancelled", message="", ended_at=NOW)])
    with pytest.raises(StoreError, match="run 'run' is not running: it has cancelled"):
        maintenance.request_cancel(opened, run_id="run")
    writer.write([run_started(attempt=1)])
    assert not maintenance.cancel_requested(opened, run_id="run")


def test_a_store_that_cannot_be_asked_for_a_cancel_says_so(opened: Engine) -> None:
    with opened.begin() as connection:
        connection.execute(text("ALTER TABLE runs RENAME TO runs_elsewhere"))
    try:
        with pytest.raises(StoreError, match="runs"):
            maintenance.cancel_requested(opened, run_id="run")
    finally:
        with opened.begin() as connection:
            connection.execute(text("ALTER TABLE runs_elsewhere RENAME TO runs"))


def test_an_unknown_run_is_a_lookup_error(opened: Engine) -> None:
    with pytest.raises(LookupError, match="'nobody'"):
        maintenance.request_cancel(opened, run_id="nobody")
    with pytest.raises(LookupError, match="'nobody'"):
        maintenance.delete_run(opened, run_id="nobody")
    with pytest.raises(LookupError, match="'nobody'"):
        maintenance.drop_tokens(opened, run_id="nobody")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (PruneRule(older_than_seconds=7 * DAY_SECONDS), {"old_good", "old_bad"}),
        (PruneRule(older_than_seconds=0), {"old_good", "old_bad", "new_bad"}),
        (PruneRule(keep_best=1), {"old_bad", "new_bad"}),
        (PruneRule(keep_best=2), {"new_bad"}),
        (PruneRule(keep_best=9), set[str]()),
        (PruneRule(keep_best=0), {"old_good", "old_bad", "new_bad"}),
        (PruneRule(keep_best=1, older_than_seconds=7 * DAY_SECONDS), {"old_bad"}),
        (PruneRule(keep_best=0, name="other"), set[str]()),
    ],
)
def test_a_rule_lets_go_what_it_says(
    writer: StoreWriter, opened: Engine, rule: PruneRule, expected: set[str]
) -> None:
    add_run(writer, "old_good", ended_days_ago=10, score=0.9)
    add_run(writer, "old_bad", ended_days_ago=9, score=0.3)
    add_run(writer, "new_bad", ended_days_ago=1, score=0.1)
    writer.write([run_started("alive"), Heartbeat(run_id="alive", attempt=0, at=NOW - 5)])

    pruned = maintenance.runs_to_prune(opened, rule=rule, now=NOW)
    assert {run.run_id for run in pruned} == expected


def test_a_killed_run_may_be_pruned(writer: StoreWriter, opened: Engine) -> None:
    writer.write([run_started("killed")])
    rule = PruneRule(older_than_seconds=DAY_SECONDS)
    [run] = maintenance.runs_to_prune(opened, rule=rule, now=NOW)
    assert run.run_id == "killed"


@ON_BOTH
def test_a_rule_is_applied_to_more_runs_than_a_statement_takes_parameters(opened: Engine) -> None:
    with opened.begin() as connection:
        connection.execute(
            text(
                """
                WITH RECURSIVE numbers (n) AS (
                    SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 33000
                )
                INSERT INTO runs (id, name, kind, attempt, status, message, started_at,
                                  heartbeat_at, config_json)
                SELECT 'run' || n, 'many', 'train', 0, 'finished', '', n, n, '{}' FROM numbers
                """
            )
        )

    going = maintenance.runs_to_prune(opened, rule=PruneRule(keep_best=1), now=NOW)

    assert [run.run_id for run in going] == [f"run{n}" for n in range(32_999, 0, -1)]


def test_a_rule_without_a_condition_is_refused() -> None:
    with pytest.raises(ValueError, match="needs older_than_seconds or keep_best"):
        PruneRule(name="run")
    with pytest.raises(ValueError, match="keep_best must be at least 0, got -1"):
        PruneRule(keep_best=-1)


def test_dropping_tokens_keeps_text_and_numbers(
    writer: StoreWriter, opened: Engine, session: Session
) -> None:
    writer.write([run_started(), *make_training_step(1)])
    writer.write([run_started("other"), *make_training_step(1, run_id="other")])

    assert maintenance.drop_tokens(opened, run_id="run") == 28
    assert maintenance.drop_tokens(opened, run_id="run") == 0

    episode = queries.get_episode(session, episode_id="run/0/train/1/0/1/0")
    for step in episode.steps:
        [call] = step.calls
        assert call.tokens is None
        assert call.num_prompt_tokens == 24
        assert len(call.messages) == 2
    other = queries.get_episode(session, episode_id="other/0/train/1/0/1/0")
    assert other.steps[1].calls[0].tokens is not None
    assert queries.violations(session, run_id="run") == []


def test_a_run_that_goes_on_keeps_its_tokens(
    writer: StoreWriter, opened: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.write([run_started(), *make_training_step(1)])
    num_batches = 0

    def resumed_meanwhile(ids: Sequence[str], _: int) -> Generator[Sequence[str]]:
        nonlocal num_batches
        for each in ids:
            yield [each]
            num_batches += 1
            writer.write([replace(run_started(attempt=1), started_at=time.time())])

    monkeypatch.setattr(maintenance, "_batches", resumed_meanwhile)
    with pytest.raises(StoreError, match="run 'run' is running: cancel it first"):
        maintenance.drop_tokens(opened, run_id="run")
    assert num_batches == 1
    with pytest.raises(StoreError, match="run 'run' is running: cancel it first"):
        maintenance.drop_tokens(opened, run_id="run")
    assert maintenance.drop_tokens(opened, run_id="run", force=True) > 0


def test_deleting_a_run_leaves_the_others_whole(
    writer: StoreWriter, opened: Engine, session: Session, counts: Callable[[], dict[str, int]]
) -> None:
    panel = PanelTasks(run_id="run", name="fixed", split=Split.TEST, tasks=())
    writer.write([run_started(), *make_training_step(1)])
    before = counts()
    shared = make_training_step(1, run_id="other")
    own = make_training_step(2, run_id="other")
    consumed = [make_loss_input(episode) for episode in own]
    writer.write([run_started("other"), *shared, *own, *consumed, replace(panel, run_id="other")])
    writer.write([make_audit(run_id="other")])
    maintenance.index_text(opened)
    assert len(queries.search_steps(session, words="see", limit=1_000).rows) == 28 * 3
    session.rollback()

    maintenance.delete_run(opened, run_id="other")
    maintenance.collect_garbage(opened)

    assert counts() == before
    assert len(queries.search_steps(session, words="see", limit=1_000).rows) == 28
    episode = queries.get_episode(session, episode_id="run/0/train/1/0/1/0")
    assert [len(step.calls[0].messages) for step in episode.steps] == [2, 2, 2]
    assert queries.violations(session, run_id="run") == []


def test_a_running_run_is_not_deleted_by_accident(
    writer: StoreWriter, opened: Engine, session: Session
) -> None:
    writer.write([run_started(), Heartbeat(run_id="run", attempt=0, at=time.time())])

    with pytest.raises(StoreError, match="run 'run' is running: cancel it first"):
        maintenance.delete_run(opened, run_id="run")
    maintenance.delete_run(opened, run_id="run", force=True)

    assert queries.list_runs(session) == []


@ON_BOTH
def test_what_the_death_of_the_process_leaves_of_a_deleted_run_says_so(
    writer: StoreWriter, opened: Engine, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_EPISODES_PER_BATCH", 3)
    ended = RunEnded(run_id="run", attempt=0, status="finished", message="", ended_at=1.0)
    writer.write([run_started(), *make_training_step(1), ended])
    seen: list[tuple[int, str, str]] = []

    def look(*_: object) -> None:
        """Read what was committed before, which a death would leave."""
        with Session(engine) as session:
            seen.extend(
                (queries.count_episodes(session), run.status, run.message.split(":")[0])
                for run in queries.list_runs(session)
            )

    event.listen(opened, "commit", look)
    maintenance.delete_run(opened, run_id="run")

    assert seen == [
        (8, "finished", ""),
        (5, "failed", "its deletion was cut short"),
        (2, "failed", "its deletion was cut short"),
    ]


def test_collecting_garbage_shrinks_the_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with StoreWriter(path) as writer:
        for run_id in ("one", "two"):
            writer.write([run_started(run_id), *make_training_step(1, run_id=run_id, num_groups=9)])
        writer.flush()
    engine = open_store(path)
    maintenance.delete_run(engine, run_id="two")
    engine.dispose()
    before = path.stat().st_size

    engine = open_store(path)
    maintenance.collect_garbage(engine)
    engine.dispose()
    assert path.stat().st_size < before


def test_what_refers_to_a_deleted_row_is_found_by_an_index(sqlite_template: Path) -> None:
    # Deleting a row, a database looks for others that refer to it: without an index, through all.
    engine = open_store(sqlite_template)
    with engine.connect() as connection:
        for table in Base.metadata.sorted_tables:
            for key in table.foreign_key_constraints:
                same = " AND ".join(f"{column} = 'x'" for column in key.column_keys)
                found = connection.execute(
                    text(f"EXPLAIN QUERY PLAN SELECT 1 FROM {table.name} WHERE {same}")
                )
                [plan] = [row.detail for row in found]
                assert all(f"{column}=?" in plan for column in key.column_keys), plan
    engine.dispose()


def test_pictures_and_tools_are_collected_with_their_last_episode(
    writer: StoreWriter, opened: Engine, session: Session, counts: Callable[[], dict[str, int]]
) -> None:
    for run_id in ("run", "other"):
        writer.write([run_started(run_id), make_record(make_program(), run_id=run_id)])
    assert (counts()["media"], counts()["episode_media"]) == (3, 6)
    assert (counts()["tool_lists"], counts()["episode_tools"]) == (1, 2)

    maintenance.delete_run(opened, run_id="other", force=True)
    maintenance.collect_garbage(opened)
    kept = queries.get_episode(session, episode_id="run/0/train/1/0/0/0")
    for picture in (*kept.steps[0].pictures, *kept.final_pictures):
        assert queries.get_media(session, content_hash=picture.content_hash).data
    session.rollback()
    assert (counts()["media"], counts()["episode_media"]) == (3, 3)
    assert (counts()["tool_lists"], counts()["episode_tools"]) == (1, 1)

    maintenance.delete_run(opened, run_id="run", force=True)
    maintenance.collect_garbage(opened)
    assert set(counts().values()) == {0}


@ON_BOTH
def test_the_ids_of_the_text_index_outlive_the_collection(
    writer: StoreWriter, opened: Engine, session: Session
) -> None:
    writer.write([run_started("gone"), *make_training_step(1, run_id="gone")])
    writer.write([run_started(), *make_training_step(2)])
    maintenance.index_text(opened)
    maintenance.delete_run(opened, run_id="gone")
    maintenance.collect_garbage(opened)

    observation = (
        queries.get_episode(session, episode_id="run/0/train/2/0/0/0").steps[1].observation
    )
    assert observation is not None
    words = observation.removeprefix("You see ").removesuffix(".")
    [hit] = queries.search_steps(session, words=words).rows
    assert (hit.episode_id, hit.step_index) == ("run/0/train/2/0/0/0", 1)
    if opened.dialect.name == "sqlite":
        with opened.begin() as connection:
            connection.execute(
                text("INSERT INTO step_search (step_search, rank) VALUES ('integrity-check', 1)")
            )


NUMBERS = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 12000)
"""


def add_unused_tasks(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                f"""
                INSERT INTO tasks
                (hash, environment, version, data_hash, task_id, seed, split, goal, data)
                {NUMBERS} SELECT 'unused' || n, 'none', '', '', n, n, 'train', '', '' FROM numbers
                """
            )
        )


def add_steps(engine: Engine) -> None:
    """Further observations of an episode that is there."""
    with engine.begin() as connection:
        connection.execute(
            text(
                f"""
                INSERT INTO observations (episode_id, step_index, text)
                {NUMBERS}
                SELECT 'run/0/train/1/0/0/0', 100 + n, 'A room with ' || n || ' doors.'
                FROM numbers
                """
            )
        )


@contextmanager
def noted(
    engine: Engine, *, statement: str, by: str, log: list[str], until: threading.Event
) -> Generator[threading.Event]:
    """Notes each such statement of the engine; the event is set by the first.

    The transaction after that one waits for `until`.
    """
    seen = threading.Event()

    def hold(_: Connection) -> None:
        if seen.is_set():
            until.wait(60)

    def note(_c: Connection, _u: object, executed: str, *_: object) -> None:
        if executed.strip().startswith(statement):
            log.append(by)
            seen.set()

    event.listen(engine, "after_cursor_execute", note)
    event.listen(engine, "begin", hold, insert=True)
    yield seen
    event.remove(engine, "begin", hold)
    event.remove(engine, "after_cursor_execute", note)


@ON_BOTH
@pytest.mark.parametrize(
    ("maintain", "prepare", "statement"),
    [
        (maintenance.collect_garbage, add_unused_tasks, "DELETE FROM tasks"),
        (maintenance.index_text, add_steps, "INSERT INTO step_search"),
    ],
)
def test_a_run_goes_on_writing_while_the_store_is_maintained(
    writer: StoreWriter,
    opened: Engine,
    maintain: Callable[[Engine], object],
    prepare: Callable[[Engine], None],
    statement: str,
) -> None:
    writer.write([run_started(), *make_training_step(1)])
    prepare(opened)
    log: list[str] = []
    written = threading.Event()
    with (
        ThreadPoolExecutor(1) as pool,
        noted(opened, statement=statement, by="maintenance", log=log, until=written) as first_batch,
    ):
        maintained = pool.submit(maintain, opened)
        assert first_batch.wait(timeout=60)
        writer.write(make_training_step(2))  # waits for the batch, and not for the rest
        log.append("writer")
        written.set()
        maintained.result(timeout=60)

    assert log.index("writer") < len(log) - 1


@ON_BOTH
def test_a_text_that_an_index_cannot_hold_is_indexed_as_far_as_it_fits(
    writer: StoreWriter, opened: Engine, session: Session
) -> None:
    """Words that all differ, each with a place of its own in the index; and one that is long."""
    numbers = " ".join(f"lot{number:0100}" for number in range(20_000))
    steps = [
        replace(with_call(step, reply="go on"), observation=Observation(text=shown))
        for step, shown in zip(
            make_trajectory().steps,
            (f"first {numbers} last", "w" * 3_000 + " beside", "ordinary"),
            strict=True,
        )
    ]
    outcome = replace(make_trajectory(), steps=tuple(steps))
    writer.write([run_started(), make_record(outcome)])

    assert maintenance.index_text(opened) == 3

    for word, expected in (("first", [0]), ("beside", [1]), ("ordinary", [2]), ("go", [2, 1, 0])):
        assert [
            hit.step_index for hit in queries.search_steps(session, words=word).rows
        ] == expected
    whole = opened.dialect.name == "sqlite"
    assert len(queries.search_steps(session, words="last").rows) == whole
