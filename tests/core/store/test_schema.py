"""Tests for `longhaul_core.store.schema` and the views, and a store of the schema as recorded."""

import gzip
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect, text
from sqlalchemy.orm import Session

from core.store.conftest import ON_BOTH
from longhaul_core.errors import StoreError
from longhaul_core.store import (
    Metrics,
    StoreWriter,
    check_store,
    open_store,
    queries,
    read_only_engine,
)
from longhaul_core.store.records import Phase
from longhaul_core.store.schema import VERSION_TABLE
from longhaul_core.store.views import view_definitions
from store_samples import (
    as_stored,
    make_decisions,
    make_loss_input,
    make_program,
    make_record,
    make_training_step,
    make_trajectory,
    run_started,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "store.db.gz"


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    path.write_bytes(gzip.decompress(GOLDEN.read_bytes()))
    return path


@pytest.fixture
def recorded(golden: Path) -> Iterator[Engine]:
    engine = open_store(golden)
    yield engine
    engine.dispose()


def test_a_table_or_view_that_changes_has_a_new_schema_version(
    recorded: Engine, tmp_path: Path
) -> None:
    # `tests/golden/make_store.py` writes no second file of the same number.
    new = open_store(tmp_path / "new.db")
    assert schema(recorded) == schema(new)
    new.dispose()


def test_a_recorded_store_answers_as_it_did(recorded: Engine) -> None:
    with Session(recorded) as session:
        [run] = queries.list_runs(session)
        assert (run.status, run.attempt, run.num_episodes, run.num_failed_episodes) == (
            "finished",
            1,
            13,
            1,
        )
        curve = queries.training_curve(session, run_id="run", phase="train")
        assert [(point.training_step, point.num_episodes) for point in curve] == [(1, 6), (2, 6)]
        assert queries.metric_series(session, run_id="run") == {
            "loss": [queries.MetricPoint(2, 0.25)]
        }
        assert queries.evaluations(session, run_id="run")[0].mean_return == 0.5
        assert queries.token_pieces(session, run_id="run", token_ids=[7]) == {7: b"go"}
        taken_back = queries.EpisodeFilter(rolled_back=True)
        assert queries.count_episodes(session, where=taken_back) == 6
        expected = make_training_step(2, attempt=1, group_size=3)[1]
        episode = queries.get_episode(session, episode_id=expected.episode_id)
        for step, original in zip(episode.steps, expected.outcome.steps, strict=True):
            for call, written in zip(step.calls, original.calls, strict=True):
                assert call.messages == as_stored(written.messages)
                assert (call.tokens is None) == (written.sampled is None)
                if call.tokens is not None and written.sampled is not None:
                    assert call.tokens.prompt_tokens == written.sampled.prompt_tokens
                    assert call.tokens.action_tokens == written.sampled.action_tokens
            assert step.trained
        program = queries.get_episode(session, episode_id="run/1/validation/2/0/0/0")
        made = make_program()
        assert [[c.messages for c in s.calls] for s in program.steps] == [
            [as_stored(c.messages) for c in s.calls] for s in made.steps
        ]
        [room] = made.steps[0].observation.pictures
        assert queries.get_media(session, content_hash=room.content_hash).data == room.data
        # two training steps of two groups of episodes with 2, 3 and 4 steps, one step that failed
        assert len(queries.search_steps(session, words="see", limit=100).rows) == 2 * 2 * 9 + 1
        groups = queries.list_groups(session, run_id="run").rows
        assert {group.max_abs_advantage for group in groups if group.phase == "train"} == {0.8}
        versions = {row.newest_policy_version for row in queries.list_episodes(session).rows}
        assert versions == {7}
        assert queries.violations(session, run_id="run") == []


def test_a_recorded_store_takes_new_episodes(golden: Path) -> None:
    with StoreWriter(golden) as writer:
        episodes = make_training_step(3, attempt=1)
        writer.write([*episodes, *(make_loss_input(episode) for episode in episodes)])
    engine = open_store(golden)
    with Session(engine) as session:
        assert queries.list_runs(session)[0].num_episodes == 21
        consumed = session.execute(
            text("SELECT num_tokens FROM call_loss_inputs WHERE training_step = 3")
        )
        assert consumed.scalars().all() == [6] * 28
    engine.dispose()


def schema(engine: Engine) -> dict[str, str]:
    with engine.connect() as connection:
        rows = connection.execute(
            text(
                "SELECT name, sql FROM sqlite_master"
                " WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_stat%'"
            )
        )
        return {name: sql for name, sql in rows}  # noqa: C416  # names the two


@pytest.mark.parametrize("version", ["0001", "0009"])
def test_a_store_of_before_the_first_release_is_refused_with_what_to_do(
    version: str, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32))")
        connection.execute(f"INSERT INTO {VERSION_TABLE} VALUES ('{version}')")
        connection.execute("CREATE TABLE runs (id TEXT)")
    before = path.read_bytes()

    def checked(store: Path) -> object:
        return check_store(store)

    for opening in (open_store, read_only_engine, checked):
        with pytest.raises(StoreError) as refused:
            opening(path)
        for part in (str(path), f"schema {version}", "no release ever wrote", "another store"):
            assert part in str(refused.value)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(f"SELECT * FROM {VERSION_TABLE}").fetchall() == [(version,)]
    assert path.read_bytes()[100:] == before[100:]  # but for the mode, which the header has


@ON_BOTH
def test_every_view_can_be_read(store: str) -> None:
    with StoreWriter(store) as writer:
        episodes = make_training_step(1)
        writer.write([run_started(), *episodes, *(make_loss_input(each) for each in episodes[1:])])
    engine = open_store(store)
    names = inspect(engine).get_view_names()
    assert set(names) == set(view_definitions("sqlite"))
    with engine.connect() as connection:
        rows = {
            name: connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one()
            for name in names
        }
        [mean] = connection.execute(text("SELECT mean_return FROM training_curve")).scalars()
        prompts = connection.execute(
            text(
                "SELECT role FROM prompt_messages WHERE episode_id = 'run/0/train/1/0/0/0' "
                "AND step_index = 0 ORDER BY position"
            )
        )
        assert prompts.scalars().all() == ["system", "user"]
    assert rows == {
        "run_summary": 1,
        "episode_summary": 8,
        "step_detail": 28,
        "call_detail": 28,
        "call_loss_inputs": 28,
        "step_texts": 28,
        "episode_messages": 8 + 28,
        "prompt_messages": 56,
        "token_logprobs": 28 * 6,
        "training_curve": 1,
        "lease_summary": 0,
    }
    assert mean == 0.5
    engine.dispose()


@ON_BOTH
def test_curves_leave_out_what_is_in_no_score_and_the_run_counts_it(store: str) -> None:
    phases: tuple[Phase, ...] = ("train", "validation", "play", "branch", "branch")
    with StoreWriter(store) as writer:
        writer.write([run_started()])
        writer.write(
            make_record(make_trajectory(), phase=phase, group_index=place)
            for place, phase in enumerate(phases)
        )
    engine = open_store(store)
    with engine.connect() as connection:
        curve = connection.execute(text("SELECT phase, num_episodes FROM training_curve"))
        assert sorted(map(tuple, curve)) == [("train", 1), ("validation", 1)]
        count = connection.execute(text("SELECT num_episodes FROM run_summary")).scalar_one()
        assert count == 5
        continued = connection.execute(
            text(
                "SELECT DISTINCT branched_from, branched_at_step, branched_action "
                "FROM episode_summary WHERE phase = 'branch'"
            )
        )
        assert continued.one() == ("stored-episode", 1, None)
    with Session(engine) as session:
        points = queries.training_curve(session, run_id="run")
        assert [(point.phase, point.num_episodes) for point in points] == [
            ("train", 1),
            ("validation", 1),
        ]
    engine.dispose()


@ON_BOTH
def test_a_mean_over_all_steps_reads_no_text(store: str) -> None:
    engine = open_store(store)
    mean = "SELECT phase, avg(reward) FROM step_detail GROUP BY phase"
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            plan = str(connection.execute(text(f"EXPLAIN {mean}")).all())
            assert " on steps" in plan  # read in order, or by an index
            assert "observations" not in plan
        else:
            details = [row.detail for row in connection.execute(text(f"EXPLAIN QUERY PLAN {mean}"))]
            # It looks whether there is a text, in the index alone.
            [contents] = [each for each in details if "observations" in each]
            assert "USING COVERING INDEX" in contents
    engine.dispose()


@ON_BOTH
def test_views_show_the_lineage(store: str) -> None:
    with StoreWriter(store) as writer:
        episodes = [*make_training_step(1), *make_training_step(2)]
        writer.write(
            [
                run_started(),
                *episodes,
                *make_decisions(episodes),
                *(make_loss_input(each) for each in episodes),
            ]
        )
        measured = [
            Metrics(run_id="run", attempt=0, training_step=step, values={"loss": 1.0})
            for step in (1, 2)
        ]
        writer.write(measured)
        writer.write([run_started(attempt=1, resumes_after=1)])
    engine = open_store(store)
    with engine.connect() as connection:
        for view, expected in (
            ("episode_summary", 8),
            ("step_detail", 28),
            ("call_loss_inputs", 28),
            ("training_curve", 1),
        ):
            count = connection.execute(text(f"SELECT count(*) FROM {view}")).scalar_one()
            assert count == expected
        done = connection.execute(text("SELECT num_training_steps_done FROM run_summary"))
        assert done.scalar_one() == 1
    engine.dispose()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_several_programs_may_create_a_store_at_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    addresses = [str(tmp_path / f"{number}.db") for number in range(30)]
    if kind == "postgresql":
        addresses = [str(request.getfixturevalue("empty_postgresql"))]

    with ThreadPoolExecutor(max_workers=4) as pool:
        for address in addresses:
            for engine in pool.map(open_store, [address] * 4):
                engine.dispose()
            open_store(address, create=False).dispose()
