"""Tests for pages by key: each is part of the naive sorted list."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.orm import Session

from core.store.conftest import ON_BOTH, new_database
from longhaul_core.errors import ConfigError
from longhaul_core.store import StoreWriter, open_store, queries, read_only_engine
from longhaul_core.store.queries import (
    EpisodeFilter,
    EpisodeKey,
    EpisodeSort,
    EpisodeSummary,
    Failure,
    FailureKey,
    GroupFilter,
    GroupKey,
    GroupSummary,
    failures,
    list_episodes,
    list_groups,
)
from longhaul_core.store.queries.keyset import encoded_key
from longhaul_core.store.records import EpisodeRecord, Phase
from store_samples import (
    make_failure,
    make_record,
    make_task,
    make_training_step,
    make_trajectory,
    run_started,
)

PHASES: tuple[Phase, ...] = ("train", "validation")
SORTS: tuple[EpisodeSort, ...] = get_args(EpisodeSort)


def episodes(*, seed: int = 0) -> list[EpisodeRecord]:
    """Sixty episodes that are equal in much; every seventh failed and has no return."""
    found: list[EpisodeRecord] = []
    for number in range(60):
        sample_index = number % 3
        outcome = (
            make_failure(task=make_task(number % 4), sample_index=sample_index)
            if number % 7 == 3
            else replace(
                make_trajectory(
                    task=make_task(number % 4),
                    sample_index=sample_index,
                    rewards=(0.0,) * (number % 2) + (0.1 * (number * 31 % 4),),
                ),
                duration_seconds=1.0 + number * 17 % 3,
            )
        )
        found.append(
            make_record(
                outcome,
                phase=PHASES[number // 3 % 2],
                training_step=1 + number // 12 + seed,
                group_index=number // 6 % 2,
            )
        )
    return found


@pytest.fixture
def _written(writer: StoreWriter) -> None:
    writer.write([run_started(), run_started("other"), *episodes()])
    writer.write(make_training_step(9, run_id="other"))


def place(row: EpisodeSummary) -> tuple[int, str, int, int, str]:
    return (row.training_step, row.phase, row.group_index, row.sample_index, row.episode_id)


def naive(
    rows: Sequence[EpisodeSummary], sort: EpisodeSort, *, descending: bool
) -> list[EpisodeSummary]:
    """Sorted in Python, those without a value last."""

    def key(row: EpisodeSummary) -> tuple[Any, ...]:
        return (getattr(row, sort), *place(row))

    known = [row for row in rows if getattr(row, sort) is not None]
    unknown = [row for row in rows if getattr(row, sort) is None]
    return [
        *sorted(known, key=key, reverse=descending),
        *sorted(unknown, key=place, reverse=descending),
    ]


def pages(
    session: Session,
    *,
    where: EpisodeFilter,
    sort: EpisodeSort = "training_step",
    descending: bool = True,
    limits: Sequence[int] = (7,),
    between: Callable[[], object] = lambda: None,
) -> list[EpisodeSummary]:
    """The list read page by page; `between` is called after each."""
    rows: list[EpisodeSummary] = []
    after: EpisodeKey | None = None
    for number in range(200):
        limit = limits[number % len(limits)]
        page = list_episodes(
            session, where=where, sort=sort, descending=descending, after=after, limit=limit
        )
        assert len(page.rows) == limit or page.next_key is None
        rows += page.rows
        after = page.next_key
        if after is None:
            return rows
        session.rollback()
        between()
    raise AssertionError("the list has no end")


@ON_BOTH
@pytest.mark.usefixtures("_written")
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sort=st.sampled_from(SORTS),
    descending=st.booleans(),
    limits=st.lists(st.integers(1, 25), min_size=1, max_size=4),
    phase=st.sampled_from([None, *PHASES]),
    failed=st.sampled_from([None, True, False]),
    run_id=st.sampled_from([None, "run"]),
)
def test_pages_are_the_whole_sorted_list(
    session: Session,
    sort: EpisodeSort,
    descending: bool,
    limits: list[int],
    phase: str | None,
    failed: bool | None,
    run_id: str | None,
) -> None:
    everything = list_episodes(session, limit=1_000).rows
    assert len(everything) == 68
    wanted = [
        row
        for row in everything
        if phase in {None, row.phase}
        and failed in {None, row.failed}
        and run_id in {None, row.run_id}
    ]
    where = EpisodeFilter(run_id=run_id, phase=phase, failed=failed)
    found = pages(session, where=where, sort=sort, descending=descending, limits=limits)
    assert found == naive(wanted, sort, descending=descending)
    assert queries.count_episodes(session, where=where) == len(wanted)


@pytest.mark.usefixtures("_written")
@pytest.mark.parametrize("sort", SORTS)
def test_a_long_page_is_the_short_ones_together(session: Session, sort: EpisodeSort) -> None:
    where = EpisodeFilter()
    whole = list_episodes(session, where=where, sort=sort, limit=1_001)
    assert (len(whole.rows), whole.next_key) == (68, None)
    assert pages(session, where=where, sort=sort, limits=(1,)) == list(whole.rows)


@pytest.mark.usefixtures("_written")
@pytest.mark.parametrize("sort", ["training_step", "episode_return"])
def test_what_is_written_meanwhile_moves_nothing_to_another_page(
    writer: StoreWriter, session: Session, sort: EpisodeSort
) -> None:
    where = EpisodeFilter(run_id="run")
    before = pages(session, where=where, sort=sort)
    assert len(before) == 60
    later = iter(range(1, 5))

    def write_more() -> None:
        if ahead := 10 * next(later, 0):
            writer.write(
                [replace(each, training_step=each.training_step + ahead) for each in episodes()[:9]]
            )

    meanwhile = pages(session, where=where, sort=sort, between=write_more)
    assert [row for row in meanwhile if row in before] == before
    assert len(meanwhile) == len({row.episode_id for row in meanwhile})


@pytest.mark.usefixtures("_written")
def test_a_count_goes_no_further_than_asked(session: Session) -> None:
    where = EpisodeFilter(run_id="run")
    totals = [
        list_episodes(session, where=where, limit=5, count_up_to=up_to).total
        for up_to in (None, 0, 59, 60, 61)
    ]
    assert totals == [None, 0, 59, 60, 60]


@ON_BOTH
@pytest.mark.usefixtures("_written")
@pytest.mark.parametrize("place", [(10**400, 1, "train"), (0.5, 10**30, "train"), (0.5, 1, "a\0b")])
def test_a_key_with_what_no_database_takes_is_refused(
    session: Session, place: tuple[float, int, str]
) -> None:
    key = EpisodeKey(encoded_key("episode_return", *place, 0, 0, "run"))
    with pytest.raises(ConfigError, match="is no key of this list"):
        list_episodes(session, sort="episode_return", after=key)


@pytest.mark.usefixtures("_written")
def test_a_key_of_another_list_is_refused(session: Session) -> None:
    key = list_episodes(session, sort="num_steps", limit=1).next_key
    assert key is not None
    assert set(key) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
    with pytest.raises(ConfigError, match="sorted by num_steps, not by training_step"):
        list_episodes(session, after=key)
    for wrong in (
        "",
        "x",
        "ä",
        "W10",
        "bnVsbA",
        key[:-3],
        str(list_groups(session, run_id="run", limit=1).next_key),
    ):
        with pytest.raises(ConfigError, match="is no key of this list"):
            list_episodes(session, after=EpisodeKey(wrong))
        if len(wrong) < 20:
            with pytest.raises(ConfigError, match="is no key of this list"):
                list_groups(session, run_id="run", after=GroupKey(wrong))


@pytest.mark.usefixtures("_written")
@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("limit", [1, 3, 100])
def test_pages_of_groups_are_the_whole_sorted_list(
    session: Session, limit: int, descending: bool
) -> None:
    rows: list[GroupSummary] = []
    after: GroupKey | None = None
    while True:
        page = list_groups(session, run_id="run", descending=descending, after=after, limit=limit)
        rows += page.rows
        after = page.next_key
        if after is None:
            break
    places = [(row.training_step, row.phase, row.group_index) for row in rows]
    expected = {(e.training_step, e.phase, e.group_index) for e in episodes()}
    assert places == sorted(expected, reverse=descending)


@pytest.mark.usefixtures("_written")
@pytest.mark.parametrize("cause", [None, "environment_timeout"])
@pytest.mark.parametrize("limit", [1, 4, 100])
def test_pages_of_failures_are_the_failed_episodes_in_their_order(
    session: Session, limit: int, cause: str | None
) -> None:
    failed = list_episodes(session, where=EpisodeFilter(run_id="run", failed=True), limit=1_000)
    assert len(failed.rows) == 9
    found: list[Failure] = []
    after: FailureKey | None = None
    while True:
        page = failures(session, run_id="run", cause=cause, after=after, limit=limit)
        assert len(page.rows) == limit or page.next_key is None
        found += page.rows
        after = page.next_key
        if after is None:
            break
    assert [(row.episode_id, row.cause, row.message) for row in found] == [
        (row.episode_id, row.failure_cause, row.failure_message) for row in failed.rows
    ]
    with pytest.raises(ConfigError, match="is no key of this list"):
        failures(session, run_id="run", after=FailureKey("x"))


@pytest.mark.usefixtures("_written")
def test_a_group_sums_up_its_episodes(session: Session) -> None:
    for group in list_groups(session, run_id="run", limit=100).rows:
        members = queries.get_group(session, group.group_id).members
        returns = [each.episode_return for each in members if each.episode_return is not None]
        assert group.returns == tuple(returns)
        assert group.num_failed_episodes == len(members) - len(returns)
        assert group.mean_return == pytest.approx(sum(returns) / len(returns))
        assert (group.min_return, group.max_return) == (min(returns), max(returns))
    [first] = list_groups(session, run_id="run", limit=1).rows
    of_task = GroupFilter(environment="samples/Maze-v0", task_id=first.task_id)
    assert all(
        each.task_id == first.task_id
        for each in list_groups(session, run_id="run", where=of_task).rows
    )


@pytest.mark.usefixtures("_written")
def test_runs_are_read_by_key_and_their_curves_at_once(
    writer: StoreWriter, session: Session, engine: Engine
) -> None:
    writer.write([run_started("third")])
    ids = [run.run_id for run in queries.list_runs(session)]
    assert ids == ["third", "run", "other"]  # started at the same time
    assert [run.run_id for run in queries.list_runs(session, after="third", limit=1)] == ["run"]
    assert [run.run_id for run in queries.list_runs(session, after="other")] == []
    with pytest.raises(LookupError, match="no run 'nobody'"):
        queries.list_runs(session, after="nobody")

    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *given: statements.append(str(given[2])))
    curves = queries.sparklines(session, [*ids, "nobody"])
    assert len(statements) == 1
    for run_id in ids:
        whole = queries.training_curve(session, run_id=run_id, phase="train")
        for point, expected in zip(curves[run_id], whole, strict=True):
            assert point.training_step == expected.training_step
            assert point.mean_return == pytest.approx(expected.mean_return)
            assert point.success_rate == expected.success_rate
    assert curves["nobody"] == curves["third"] == []


def explained(engine: Engine, ask: Callable[[Session], object]) -> str:
    """The plans of all that a question asks."""
    plans: list[str] = []
    sqlite = engine.dialect.name == "sqlite"

    def note(
        connection: Connection, _: object, statement: str, values: tuple[str, ...], *_more: object
    ) -> None:
        if statement.lstrip().startswith("SELECT"):
            explain = "EXPLAIN QUERY PLAN " if sqlite else "EXPLAIN "
            for row in connection.exec_driver_sql(explain + statement, values):
                plans.append(str(row.detail if sqlite else row[0]))

    event.listen(engine, "before_cursor_execute", note)
    with Session(engine) as session:
        ask(session)
    event.remove(engine, "before_cursor_execute", note)
    return "\n".join(plans)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def many(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """Reads a store with rows enough that a plan pays, without steps."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            store = str(tmp_path_factory.mktemp("many") / "store.db")
        else:
            server: URL = request.getfixturevalue("postgresql_server")
            store = stack.enter_context(new_database(server))
        with StoreWriter(store) as writer:
            writer.write(
                [run_started(), *make_training_step(1), make_record(make_failure(), retry=1)]
            )
        opened = open_store(store)
        multiply(opened)
        opened.dispose()
        engine = read_only_engine(store)
        yield engine
        engine.dispose()


def multiply(opened: Engine) -> None:
    """Each episode, group and failure three thousand times."""
    count = "generate_series(1, 3000) AS n(value)"
    if opened.dialect.name == "sqlite":
        count = (
            "(WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n"
            " WHERE value < 3000) SELECT value FROM n) AS n"
        )
    with opened.begin() as connection:
        for table, key in (
            ("episodes", {"id": "id || '/' || n.value", "training_step": "n.value + 1"}),
            ("groups", {"training_step": "n.value + 1"}),
            ("failures", {"episode_id": "episode_id || '/' || n.value"}),
        ):
            names = list(connection.execute(text(f"SELECT * FROM {table} LIMIT 0")).keys())
            values = ", ".join(key.get(name, f"{table}.{name}") for name in names)
            connection.execute(
                text(
                    f"INSERT INTO {table} ({', '.join(names)})"
                    f" SELECT {values} FROM {table}, {count}"
                )
            )
        connection.execute(text("ANALYZE"))


@pytest.mark.parametrize("descending", [True, False])
def test_the_newest_page_is_read_in_its_order(many: Engine, descending: bool) -> None:
    with Session(many) as session:
        first = list_episodes(session, where=EpisodeFilter(run_id="run"), descending=descending)
    for after in (None, first.next_key):
        plan = explained(
            many,
            lambda session, after=after: list_episodes(
                session,
                where=EpisodeFilter(run_id="run", success=True),
                after=after,
                descending=descending,
            ),
        )
        assert "ix_episodes_newest_first" in plan
        assert "SCAN episodes" not in plan
        assert "Seq Scan on episodes" not in plan


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("sort", ["episode_return", "num_steps", "num_invalid_actions"])
def test_episodes_of_one_value_are_read_in_their_order(
    many: Engine, sort: EpisodeSort, descending: bool
) -> None:
    """Only the values are sorted, and the rows of a page; behind the first page not even they."""
    where = EpisodeFilter(run_id="run", failed=False)
    with Session(many) as session:
        first = list_episodes(session, where=where, sort=sort, descending=descending)
    assert first.next_key is not None
    for after, num_sorted in ((None, 2), (first.next_key, 1)):
        plan = explained(
            many,
            lambda session, after=after: list_episodes(
                session, where=where, sort=sort, after=after, descending=descending
            ),
        )
        assert "ix_episodes_newest_first" in plan
        if many.dialect.name == "sqlite":
            assert plan.count("TEMP B-TREE") == num_sorted
            assert plan.count("USING COVERING INDEX ix_episodes_newest_first") == num_sorted
        else:
            assert plan.count("Sort Key") == num_sorted
            assert plan.count("Seq Scan on episodes") <= num_sorted - 1


def test_a_page_of_failures_is_read_in_its_order(many: Engine) -> None:
    with Session(many) as session:
        first = failures(session, run_id="run", limit=20)
    assert first.next_key is not None
    for after in (None, first.next_key):
        plan = explained(
            many,
            lambda session, after=after: failures(session, run_id="run", after=after, limit=20),
        )
        assert "ix_episodes_newest_first" in plan
        assert "TEMP B-TREE" not in plan
        assert "Seq Scan on episodes" not in plan


def test_a_list_of_groups_reads_its_own_episodes_only(many: Engine) -> None:
    plan = explained(many, lambda session: list_groups(session, run_id="run"))
    assert "ix_groups_newest_first" in plan
    assert "ix_episodes_run_id_attempt_phase_training_step_group_index" in plan
    for table in ("groups", "episodes"):
        assert f"Seq Scan on {table}" not in plan
        assert f"SCAN {table}" not in plan


def test_curves_read_no_episode(many: Engine) -> None:
    """PostgreSQL reads the rows where it takes all of them for few."""
    plan = explained(many, lambda session: queries.sparklines(session, ["run"]))
    assert " episodes" in plan
    if many.dialect.name == "sqlite":
        assert "USING COVERING INDEX ix_episodes_newest_first" in plan
        for ask in (queries.training_curve, queries.get_run):
            of_episodes = [
                line
                for line in explained(many, lambda s, ask=ask: ask(s, run_id="run")).splitlines()
                if " episodes " in line
            ]
            assert of_episodes
            assert all("COVERING INDEX" in line for line in of_episodes), of_episodes
