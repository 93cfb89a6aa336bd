"""Tests for `longhaul_core.store.maintenance`: every one on SQLite and on PostgreSQL."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

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
from longhaul_core.types import Split
from store_samples import make_audit, make_consumed, make_training_step, run_started

DAY_SECONDS = 86_400.0
NOW = 1_760_000_000.0 + 30 * DAY_SECONDS


@pytest.fixture
def opened(store: str) -> Iterator[Engine]:
    engine = open_store(store)
    yield engine
    engine.dispose()


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
        assert step.prompt_tokens is None
        assert step.action_tokens is None
        assert step.behavior_logprobs is None
        assert step.num_prompt_tokens == 24
        assert len(step.messages) == 2
    other = queries.get_episode(session, episode_id="other/0/train/1/0/1/0")
    assert other.steps[1].prompt_tokens is not None
    assert queries.violations(session, run_id="run") == []


def test_deleting_a_run_leaves_the_others_whole(
    writer: StoreWriter, opened: Engine, session: Session, counts: Callable[[], dict[str, int]]
) -> None:
    panel = PanelTasks(run_id="run", name="fixed", split=Split.TEST, tasks=())
    writer.write([run_started(), *make_training_step(1)])
    before = counts()
    shared = make_training_step(1, run_id="other")
    own = make_training_step(2, run_id="other")
    consumed = [make_consumed(episode) for episode in own]
    writer.write([run_started("other"), *shared, *own, *consumed, replace(panel, run_id="other")])
    writer.write([make_audit(run_id="other")])
    maintenance.index_text(opened)
    assert len(queries.search_steps(session, words="see", limit=1_000)) == 28 * 3
    session.rollback()

    maintenance.delete_run(opened, run_id="other")
    maintenance.collect_garbage(opened)

    assert counts() == before
    assert len(queries.search_steps(session, words="see", limit=1_000)) == 28
    episode = queries.get_episode(session, episode_id="run/0/train/1/0/1/0")
    assert [len(step.messages) for step in episode.steps] == [2, 2, 2]
    assert queries.violations(session, run_id="run") == []


def test_a_running_run_is_not_deleted_by_accident(
    writer: StoreWriter, opened: Engine, session: Session
) -> None:
    writer.write([run_started(), Heartbeat(run_id="run", attempt=0, at=time.time())])

    with pytest.raises(StoreError, match="run 'run' is running: cancel it first"):
        maintenance.delete_run(opened, run_id="run")
    maintenance.delete_run(opened, run_id="run", force=True)

    assert queries.list_runs(session) == []


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
    words = observation.removeprefix("You see ").removesuffix(".")
    [hit] = queries.search_steps(session, words=words)
    assert (hit.episode_id, hit.step_index) == ("run/0/train/2/0/0/0", 1)
    if opened.dialect.name == "sqlite":
        with opened.begin() as connection:
            connection.execute(
                text("INSERT INTO step_search (step_search, rank) VALUES ('integrity-check', 1)")
            )
