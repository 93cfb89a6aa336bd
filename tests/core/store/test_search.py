"""Tests for `longhaul_core.store.queries.search` and `text_index`, which each database has."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.orm import Session

from core.store.conftest import ON_BOTH
from longhaul_core.errors import ConfigError
from longhaul_core.store import StoreWriter, maintenance, open_store, queries
from longhaul_core.store.maintenance import index_text
from longhaul_core.store.queries import EpisodeFilter, SearchHit, search_steps
from longhaul_core.store.search_terms import find_terms, query_phrases, search_terms
from longhaul_core.store.text_index import SearchField, run_term
from longhaul_core.types import Message
from steps import with_call
from store_samples import make_record, make_task, make_training_step, make_trajectory, run_started


@pytest.fixture(autouse=True)
def _sample(writer: StoreWriter) -> None:
    """Two training steps of two groups of four: 56 steps, which all say what one can see."""
    writer.write([run_started(), *make_training_step(1), *make_training_step(2)])


class Sayings:
    """Writes episodes of one step each, and names them by how many there were before."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._number = 0

    def __call__(
        self, *, observation: str = "o", reply: str = "r", prompt: str = "p", run_id: str = "run"
    ) -> str:
        trajectory = make_trajectory(task=make_task(77), sample_index=self._number)
        step = trajectory.steps[0]
        step = replace(step, reward=0.0, observation=replace(step.observation, text=observation))
        step = with_call(step, reply=reply, messages=(Message(role="user", content=prompt),))
        self._number += 1
        record = make_record(replace(trajectory, steps=(step,)), training_step=3, run_id=run_id)
        self._writer.write([record])
        return record.episode_id


@pytest.fixture
def say(writer: StoreWriter) -> Sayings:
    return Sayings(writer)


def found(session: Session, words: str, **how: object) -> list[str]:
    session.rollback()  # what was committed since
    return [hit.episode_id for hit in search_steps(session, words=words, **how).rows]  # type: ignore[arg-type]


@ON_BOTH
def test_text_is_found_once_it_is_indexed(opened: Engine, session: Session, say: Sayings) -> None:
    lantern = say(reply='The LANTERN "flickers" — à gauche')
    assert found(session, "lantern") == []
    assert queries.search_progress(session) == queries.SearchProgress(57, None)
    session.rollback()

    assert index_text(opened) == 57
    assert index_text(opened) == 0

    [hit] = search_steps(session, words="flickers lantern", run_id="run").rows
    assert (hit.episode_id, hit.step_index, hit.run_id) == (lantern, 0, "run")
    assert (hit.found_in, hit.training_step) == ("reply", 3)
    assert "\ue000LANTERN\ue001" in hit.snippet
    assert found(session, "lantern", run_id="other") == []
    assert found(session, 'lantern" OR flickers"') == []  # "or" is a word, and it is not there
    assert found(session, " ") == found(session, "«»") == []
    assert queries.search_progress(session).num_waiting == 0
    assert queries.search_progress(session).indexed_at is not None


SCRIPTS = [
    ("the Café is closed", "cafe"),
    ("the resume is read", "RÉSUMÉ"),
    ("Straße", "straße"),
    ("你在厨房里，看到一张地图。", "地图"),
    ("你在厨房里，看到一张地图。", "厨房 地图"),
    ("冷蔵庫を開ける", "冷蔵庫"),
    ("カードを読む", "カード"),
    ("คุณอยู่ในห้องครัว", "ห้องครัว"),
    ("부엌에서 지도를 찾았다", "지도"),
    ("Ты на кухне", "КУХНЕ"),
    ("אתה במטבח", "במטבח"),
    ("आप रसोई में हैं", "रसोई"),
    ("أنت في المطبخ", "المطبخ"),
    ("the sign-in page", "sign-in"),
    ("the sign-in page", "sign in"),
    ("put the apple in/on cabinet_3", "cabinet"),
    ("http://shop.example/cart?item=7", "cart"),
    ("weights 1e-5 and 3.14", "3.14"),
    ("go 🚪 to the Türgriff", "turgriff"),
    ("a half is ½", "½"),
]
"""What is said, and words that find it alone."""


@ON_BOTH
def test_every_script_is_found(opened: Engine, session: Session, say: Sayings) -> None:
    said_in = {said: say(observation=said) for said in dict(SCRIPTS)}
    index_text(opened)
    for said, words in SCRIPTS:
        [hit] = search_steps(session, words=words).rows
        assert (hit.episode_id, hit.found_in) == (said_in[said], "observation"), words
        assert hit.snippet.replace("\ue000", "").replace("\ue001", "") == said
        assert "\ue000" in hit.snippet


@ON_BOTH
def test_characters_are_found_in_their_order(
    opened: Engine, session: Session, say: Sayings
) -> None:
    say(observation="你在厨房里，看到一张地图。")
    index_text(opened)
    for words in ("图地", "地 图 三", '"厨房 地图"', "卫"):
        assert found(session, words) == []


@ON_BOTH
def test_a_phrase_is_found_where_its_words_follow_each_other(
    opened: Engine, session: Session, say: Sayings
) -> None:
    said_it = say(observation="open the red door", reply="open the door")
    say(observation="the door is red")
    index_text(opened)
    assert found(session, '"red door"') == [said_it]
    assert found(session, '"open the door"') == [said_it]
    assert found(session, '"door open"') == []  # not from one text into another
    assert len(found(session, "red door")) == 2


@ON_BOTH
def test_a_search_may_be_within_some_texts(opened: Engine, session: Session, say: Sayings) -> None:
    said_it: dict[SearchField, str] = {
        "observation": say(observation="a quokka"),
        "reply": say(reply="a quokka"),
        "prompt": say(prompt="a quokka"),
    }
    index_text(opened)
    assert found(session, "quokka") == list(said_it.values())[::-1]
    for field, episode_id in said_it.items():
        [hit] = search_steps(session, words="quokka", within=[field]).rows
        assert (hit.episode_id, hit.found_in) == (episode_id, field)
    assert len(found(session, "quokka", within=["prompt", "reply"])) == 2
    assert len(found(session, "quokka", within=["prompt", "reply"], run_id="run")) == 2


@ON_BOTH
def test_a_prompt_is_found_at_the_step_that_shows_it_first(
    opened: Engine, session: Session
) -> None:
    index_text(opened)
    # The instruction is a system message of all prompts of an episode, the store keeps it once.
    page = search_steps(session, words="maze", within=["prompt"], limit=100)
    assert page.rows
    assert {hit.step_index for hit in page.rows} == {0}


@ON_BOTH
def test_a_search_takes_all_that_a_person_can_type(opened: Engine, session: Session) -> None:
    index_text(opened)
    for words in ("\x00", "see \x00", "\ud800", "'", "&|!", "*", '"', "see:*", "("):
        assert len(found(session, words)) in {0, 50}
        assert len(found(session, words, best_first=True, within=["observation"])) in {0, 50}


def test_what_was_written_last_comes_first_without_sorting(
    opened: Engine, engine: Engine, session: Session
) -> None:
    index_text(opened)
    plans: list[str] = []

    def note(
        connection: Connection, _: object, statement: str, values: tuple[str, ...], *_more: object
    ) -> None:
        if "ORDER BY s." in statement and not statement.startswith("EXPLAIN"):
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
            plans.extend(row.detail for row in plan)

    event.listen(engine, "before_cursor_execute", note)
    hits = search_steps(session, words="see", limit=30).rows

    assert [hit.training_step for hit in hits] == [2] * 28 + [1] * 2
    assert len(plans) == 3
    assert not [plan for plan in plans if "TEMP B-TREE" in plan]


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_postgresql_lists_rare_hits_and_counts_no_common_ones(
    opened: Engine, engine: Engine, say: Sayings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would look for one of few hits from the newest step on, and reads texts to count."""
    monkeypatch.setattr("longhaul_core.store.queries.search._MOST_LISTED", 2)
    rare = say(observation="a quokka")
    index_text(opened)
    with opened.begin() as connection:
        connection.exec_driver_sql("ANALYZE step_search")
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        if "step_search" in statement and not statement.startswith("EXPLAIN"):
            asked.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    with Session(engine) as session:
        assert found(session, "quokka") == [rare]
        assert len(asked) == 2
        assert "count(" in asked[0]
        assert "ANY(ARRAY(" in asked[1]
        del asked[:]
        assert len(found(session, "see")) == 50
    event.remove(engine, "before_cursor_execute", note)
    [common] = asked
    assert "ANY(ARRAY(" not in common


@ON_BOTH
def test_a_hit_says_which_step_it_is(opened: Engine, session: Session, say: Sayings) -> None:
    said_it = say(reply="two quokkas")
    index_text(opened)
    task = make_task(77)
    [hit] = search_steps(session, words="quokkas").rows
    assert hit == SearchHit(
        episode_id=said_it,
        step_index=0,
        run_id="run",
        phase="train",
        training_step=3,
        environment=task.environment,
        task_id=task.task_id,
        found_in="reply",
        snippet="two \ue000quokkas\ue001",
    )


@ON_BOTH
@pytest.mark.parametrize("most_listed", [0, 5_000])
@pytest.mark.parametrize("best_first", [False, True])
def test_pages_of_hits_are_the_whole_list(
    opened: Engine,
    session: Session,
    best_first: bool,
    most_listed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("longhaul_core.store.queries.search._MOST_LISTED", most_listed)
    index_text(opened)
    whole = search_steps(session, words="see", best_first=best_first, limit=100)
    assert (len(whole.rows), whole.next_key, whole.ranked) == (56, None, best_first)
    rows: list[SearchHit] = []
    after = None
    while True:
        page = search_steps(session, words="see", best_first=best_first, after=after, limit=9)
        rows += page.rows
        after = page.next_key
        if after is None:
            break
    assert tuple(rows) == whole.rows
    with pytest.raises(ConfigError, match="no key of this list"):
        search_steps(session, words="see", after=queries.SearchKey("nothing"))


@ON_BOTH
def test_the_best_come_first_while_hits_are_few(
    opened: Engine, session: Session, say: Sayings, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = say(observation="quokka quokka quokka")
    once = say(observation="there is one quokka among very many other words of no importance")
    index_text(opened)
    assert found(session, "quokka") == [once, often]
    assert found(session, "quokka", best_first=True) == [often, once]

    monkeypatch.setattr("longhaul_core.store.queries.search.MOST_RANKED", 1)
    assert found(session, "quokka", best_first=True) == [once, often]
    assert not search_steps(session, words="quokka", best_first=True).ranked


@ON_BOTH
@pytest.mark.parametrize("most_listed", [0, 5_000])
def test_episodes_are_filtered_by_their_text(
    opened: Engine,
    session: Session,
    say: Sayings,
    most_listed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("longhaul_core.store.queries.search._MOST_LISTED", most_listed)
    said_it = [say(observation="a quokka"), say(reply="two quokkas and a quokka")]
    index_text(opened)

    def episodes(**where: object) -> list[str]:
        page = queries.list_episodes(session, where=EpisodeFilter(**where), limit=100)  # type: ignore[arg-type]
        return [row.episode_id for row in page.rows]

    assert episodes(text="quokka") == said_it[::-1]
    assert episodes(text="quokka", run_id="run", min_training_step=3) == said_it[::-1]
    assert episodes(text="quokka", max_training_step=2) == []
    assert len(episodes(text="see")) == 16
    assert episodes(text="nowhere") == episodes(text="?") == []


@ON_BOTH
@pytest.mark.parametrize("most_listed", [0, 20, 5_000])
def test_a_run_shows_its_own_episodes_by_their_text(
    opened: Engine,
    session: Session,
    writer: StoreWriter,
    most_listed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where both runs, one of them, or none has few hits."""
    monkeypatch.setattr("longhaul_core.store.queries.search._MOST_LISTED", most_listed)
    writer.write([run_started("other"), *make_training_step(1, run_id="other")])
    index_text(opened)
    for run_id, num_episodes in (("run", 16), ("other", 8)):
        where = EpisodeFilter(run_id=run_id, text="see")
        page = queries.list_episodes(session, where=where, limit=100)
        assert [row.run_id for row in page.rows] == [run_id] * num_episodes
        assert queries.count_episodes(session, where=where) == num_episodes


@ON_BOTH
def test_hits_are_counted_in_the_index_alone(opened: Engine, engine: Engine) -> None:
    """And the run's term, which every step of the run has, is looked for where hits are many."""
    index_text(opened)
    asked: list[tuple[str, str]] = []

    def note(
        connection: Connection, _: object, statement: str, values: tuple[str, ...], *_more: object
    ) -> None:
        if "step_search" in statement and not statement.startswith("EXPLAIN"):
            sqlite = engine.dialect.name == "sqlite"
            explain = "EXPLAIN QUERY PLAN" if sqlite else "EXPLAIN"
            plan = connection.exec_driver_sql(f"{explain} {statement}", values)
            asked.append((str(values), "\n".join(str(row[-1]) for row in plan)))

    event.listen(engine, "before_cursor_execute", note)
    with Session(engine) as session:
        page = queries.list_episodes(session, where=EpisodeFilter(run_id="run", text="see"))
    event.remove(engine, "before_cursor_execute", note)
    assert len(page.rows) == 16
    (_, counting), (listing, _) = asked
    assert "observations" not in counting
    assert "SEARCH o" not in counting
    assert run_term("run") not in listing


def test_steps_that_are_not_indexed_yet_are_not_looked_for_one_by_one(
    engine: Engine, opened: Engine, say: Sayings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's index takes as long for each of them as for one that it has."""
    monkeypatch.setattr("longhaul_core.store.queries.search._MOST_LISTED", 1)
    said_it = [say(observation=f"quokka {number}") for number in range(3)]
    index_text(opened)
    for _ in range(50):
        say(observation="another quokka")
    looked_for = 0

    def trace(statement: str) -> None:
        nonlocal looked_for
        looked_for += "step_search_data" in statement or "step_search_idx" in statement

    with Session(engine) as session:
        raw = session.connection().connection.dbapi_connection
        assert isinstance(raw, sqlite3.Connection)
        raw.set_trace_callback(trace)
        page = queries.list_episodes(session, where=EpisodeFilter(text="quokka"), limit=100)
        raw.set_trace_callback(None)
    assert [row.episode_id for row in page.rows] == said_it[::-1]
    assert looked_for < 20


@ON_BOTH
def test_a_rolled_back_step_is_not_found(
    opened: Engine, session: Session, writer: StoreWriter
) -> None:
    index_text(opened)
    assert len(found(session, "see", limit=100)) == 56
    writer.write([run_started(attempt=1, resumes_after=1)])
    assert len(found(session, "see", limit=100)) == 0  # no decision was made on any group


@ON_BOTH
def test_an_index_grows_by_what_is_new(
    opened: Engine, session: Session, say: Sayings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longhaul_core.store.text_index._STEPS_PER_BATCH", 10)
    assert index_text(opened, most_steps=20) == 20
    assert queries.search_progress(session).num_waiting == 36
    later = say(observation="a quokka")
    assert index_text(opened) == 37
    assert found(session, "quokka") == [later]
    assert len(found(session, "see", limit=100)) == 56


@ON_BOTH
def test_two_programs_may_index_at_once(
    opened: Engine, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    from longhaul_core.store import text_index

    whole = text_index._index_some  # pyright: ignore[reportPrivateUsage]

    def late(engine: Engine, begin: int, newest: int) -> int:
        assert whole(engine, begin, newest) == 56  # the other program comes first
        return whole(engine, begin, newest)

    monkeypatch.setattr(text_index, "_index_some", late)
    assert index_text(opened) == 0
    assert len(found(session, "see", limit=100)) == 56


@ON_BOTH
def test_a_step_that_commits_late_is_indexed(store: str, say: Sayings, session: Session) -> None:
    """On PostgreSQL a transaction may commit rows with smaller ids than are there already."""
    engine = open_store(store)
    if engine.dialect.name == "postgresql":
        with engine.connect() as connection:
            taken = connection.execute(
                text("SELECT nextval(pg_get_serial_sequence('observations', 'id'))")
            ).scalar_one()
        assert isinstance(taken, int)
    index_text(engine)
    late = say(observation="a quokka")
    index_text(engine)
    assert found(session, "quokka") == [late]
    engine.dispose()


@ON_BOTH
def test_what_is_deleted_is_not_found_and_what_comes_then_is(
    opened: Engine, session: Session, writer: StoreWriter, say: Sayings
) -> None:
    writer.write([run_started("other")])
    say(observation="a quokka", run_id="other")
    index_text(opened)
    maintenance.delete_run(opened, run_id="other", force=True)
    assert found(session, "quokka") == []
    with opened.connect() as connection:
        if opened.dialect.name == "sqlite":
            query = "SELECT count(*) FROM step_search WHERE step_search MATCH 'quokka'"
            assert connection.execute(text(query)).scalar_one() == 0
        else:
            query = "SELECT count(*) FROM step_search"
            assert connection.execute(text(query)).scalar_one() == 56
    # SQLite gives the number of the deleted row to the next one.
    again = say(observation="a wombat")
    index_text(opened)
    assert found(session, "wombat") == [again]


@ON_BOTH
@pytest.mark.parametrize("comes_between", [False, True])
def test_rows_deleted_while_they_are_indexed_hide_none_that_get_their_numbers(
    opened: Engine,
    session: Session,
    writer: StoreWriter,
    say: Sayings,
    monkeypatch: pytest.MonkeyPatch,
    comes_between: bool,
) -> None:
    from longhaul_core.store import text_index

    writer.write([run_started("other")])
    say(observation="a quokka", run_id="other")
    said: list[str] = []
    usual = text_index.write_transaction

    @contextmanager
    def late(engine: Engine) -> Generator[Connection]:
        monkeypatch.setattr(text_index, "write_transaction", usual)
        maintenance.delete_run(opened, run_id="other", force=True)
        if comes_between:
            said.append(say(observation="a wombat"))
        with usual(engine) as connection:
            yield connection

    monkeypatch.setattr(text_index, "write_transaction", late)
    index_text(opened)
    if not comes_between:
        said.append(say(observation="a wombat"))
    index_text(opened)

    assert found(session, "wombat") == said
    assert found(session, "quokka") == []
    assert queries.search_progress(session).num_waiting == 0


@given(st.text(max_size=60))
def test_terms_are_the_same_however_they_are_spaced(said: str) -> None:
    terms = search_terms(said)
    assert search_terms(terms).split() == terms.split()
    assert [term for phrase in query_phrases(said.replace('"', " ")) for term in phrase] == (
        search_terms(said.replace('"', " ")).split()
    ) or "\x00" in said


@given(st.lists(st.sampled_from(["red", "Door", "地图", "Café", "—", "7"]), max_size=8))
def test_every_term_of_a_text_is_found_in_it(words: list[str]) -> None:
    said = " ".join(words)
    for phrase in query_phrases(said):
        places = find_terms(said, [phrase])
        assert places
        assert all(search_terms(said[a:b]).split() == phrase for a, b in places)
