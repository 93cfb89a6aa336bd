"""The page Storage: archive, restore, back up, prune and delete, by people and by no reader."""

import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from apps.browser import settle
from apps.conftest import SampleStore
from apps.viewer.app_pages import column, html_of, open_page
from apps.viewer.conftest import Show
from longhaul_core.errors import StoreError
from longhaul_core.store import StoreWriter, open_store, queries
from longhaul_core.store.models import SCHEMA_VERSION, EpisodeRow
from longhaul_core.store.schema import VERSION_TABLE
from longhaul_core.store.session import read_only_engine, write_transaction
from longhaul_viewer import links
from longhaul_viewer.data import storage as storage_data
from longhaul_viewer.data import store as store_data
from longhaul_viewer.data import work
from longhaul_viewer.settings import READ_ONLY_VARIABLE, STORE_VARIABLE
from store_samples import make_training_step, run_started

PATIENCE_SECONDS = 240
PRUNE = "storage_prune"
GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture
def store(sample: SampleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the sample store, which the pages show and may change."""
    copy = Path(shutil.copy(sample.url, tmp_path / "store.db"))
    monkeypatch.setenv(STORE_VARIABLE, str(copy))
    yield copy
    monkeypatch.delenv(READ_ONLY_VARIABLE, raising=False)
    store_data.writer().dispose()


def result() -> str:
    """What came of the newest piece of work, which must have been done."""
    newest = work.pieces()[0]
    newest.future.exception(timeout=PATIENCE_SECONDS)
    assert newest.state == "done", newest.said
    return newest.said


def runs_of(store: Path) -> dict[str, tuple[int, int]]:
    """Episodes and steps of each run."""
    engine = read_only_engine(str(store))
    with Session(engine) as session:
        found = {
            run.run_id: (run.num_episodes, run.num_steps)
            for run in queries.list_runs(session, limit=100)
        }
    engine.dispose()
    return found


def test_the_page_says_what_each_run_takes(store: Path, sample: SampleStore) -> None:
    with StoreWriter(str(store)) as writer:
        writer.write([run_started("small"), *make_training_step(1, run_id="small", num_groups=1)])
    app = open_page("storage")
    large, small = column(app, "Run")
    assert large.startswith(sample.run_id)
    assert small.startswith("small")
    parts = [int(each.removesuffix("%")) for each in column(app, "Of the store")]
    assert parts[0] > parts[1]
    assert sum(parts) == pytest.approx(100, abs=1)
    assert "None yet. An archive is a store of one run" in html_of(app)


def test_a_run_is_archived_deleted_and_restored(store: Path, sample: SampleStore) -> None:
    before = runs_of(store)
    app = open_page("storage", run=sample.run_id)
    app.button(key="do-Archive").click().run()
    result()
    (file,) = storage_data.archives()
    archive = store.parent / "archives" / file.name
    assert runs_of(archive) == before
    assert storage_data.schema_of(file) == SCHEMA_VERSION

    app = open_page("storage", run=sample.run_id)
    app.button(key=f"do-Delete {sample.run_id}").click().run()
    assert "the space is given back" in result()
    assert runs_of(store) == {}

    app = open_page("storage", archive=file.name)
    assert "holds no runs yet" in html_of(app)
    app.button(key="do-Restore").click().run()
    result()
    assert runs_of(store) == before
    assert "is in the store already" in html_of(open_page("storage", archive=file.name))


def test_tokens_alone_are_dropped(store: Path, sample: SampleStore) -> None:
    (before,) = storage_data.sizes().runs
    app = open_page("storage", run=sample.run_id)
    app.button(key=f"do-Drop the tokens of {sample.run_id}").click().run()
    result()
    (after,) = storage_data.sizes().runs
    assert after.num_steps == before.num_steps
    assert after.token_bytes < before.token_bytes
    assert after.num_bytes < before.num_bytes


def test_a_rule_names_the_runs_that_it_lets_go(store: Path, sample: SampleStore) -> None:
    app = open_page("storage")
    assert len(app.number_input) == 0  # nothing is asked while the popover is shut
    assert "No run fits both conditions" not in html_of(app)
    app.session_state[PRUNE] = True  # what a click on it does
    app.run()
    assert "No run fits both conditions" in html_of(app)  # the best three stay
    app.number_input[0].set_value(0)
    app.number_input[1].set_value(0).run()
    assert f"These would be deleted: {sample.run_id}." in html_of(app)
    app.button(key="do-Delete 1 run").click().run()
    result()
    assert runs_of(store) == {}


@pytest.mark.parametrize("tokens_only", [False, True])
def test_a_run_that_goes_on_is_not_deleted(store: Path, tokens_only: bool) -> None:
    with StoreWriter(str(store)) as writer:
        writer.write([replace(run_started("going"), started_at=time.time())])
    storage_data.delete(["going"], tokens_only=tokens_only)
    newest = work.pieces()[0]
    newest.future.exception(timeout=PATIENCE_SECONDS)
    assert newest.state == "failed"
    assert "is running: cancel it first" in newest.said
    assert "trainer runs cancel going" in html_of(open_page("storage", run="going"))


def test_a_run_that_goes_on_keeps_no_other_from_being_deleted(
    store: Path, sample: SampleStore
) -> None:
    with StoreWriter(str(store)) as writer:
        writer.write([replace(run_started("going"), started_at=time.time())])
    storage_data.delete(["going", sample.run_id], tokens_only=False)
    newest = work.pieces()[0]
    newest.future.exception(timeout=PATIENCE_SECONDS)
    assert newest.state == "failed"
    assert "is running: cancel it first" in newest.said
    assert f"{sample.run_id} deleted; the space is given back" in newest.said
    assert list(runs_of(store)) == ["going"]


def test_a_backup_is_whole_while_a_run_writes_and_the_run_loses_nothing(store: Path) -> None:
    stop, written = threading.Event(), 0
    with StoreWriter(str(store)) as writer:
        writer.write([run_started("going")])

        def write() -> None:
            nonlocal written
            while not stop.is_set() and written < 400:
                written += 1
                writer.write(make_training_step(written, run_id="going", num_groups=1))

        thread = threading.Thread(target=write)
        thread.start()
        try:
            storage_data.back_up()
            result()
        finally:
            stop.set()
            thread.join()
    (file,) = storage_data.archives()
    backup = store.parent / "archives" / file.name
    assert episodes_of(store, "going") == 4 * written
    held = episodes_of(backup, "going")
    assert held <= 4 * written
    assert held % 4 == 0  # a transaction is in it whole, or not at all
    engine = open_store(backup, create=False)
    with Session(engine) as session:
        assert queries.violations(session, run_id="going") == []
    engine.dispose()


def episodes_of(store: Path, run_id: str) -> int:
    engine = read_only_engine(str(store))
    with Session(engine) as session:
        count = session.scalar(
            select(func.count()).select_from(EpisodeRow).where(EpisodeRow.run_id == run_id)
        )
    engine.dispose()
    return count or 0


@pytest.mark.parametrize("name", ["../store.db", "/etc/passwd", "none.db", ""])
def test_only_files_of_the_folder_of_archives_are_opened(store: Path, name: str) -> None:
    with pytest.raises(StoreError, match="there is no archive"):
        storage_data.runs_in(name)
    with pytest.raises(StoreError, match="there is no archive"):
        storage_data.restore(name, "run")


def test_a_viewer_that_is_read_only_changes_nothing(
    store: Path, sample: SampleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage_data.back_up()
    result()
    (file,) = storage_data.archives()
    monkeypatch.setenv(READ_ONLY_VARIABLE, "yes")
    app = open_page("storage", run=sample.run_id)
    assert len(app.button) == 0
    assert "started with --read-only" in html_of(app)
    for act in (
        lambda: storage_data.archive(sample.run_id),
        storage_data.back_up,
        storage_data.index,
        lambda: storage_data.delete([sample.run_id], tokens_only=True),
        lambda: storage_data.restore(file.name, sample.run_id),
        lambda: storage_data.remove_cut_short(f"{file.name}.partial"),
    ):
        with pytest.raises(StoreError, match="--read-only"):
            act()


def test_to_look_at_an_archive_leaves_it_as_it_is(store: Path, sample: SampleStore) -> None:
    storage_data.archive(sample.run_id)
    result()
    (file,) = storage_data.archives()
    path = store.parent / "archives" / file.name
    held, written = path.read_bytes(), path.stat().st_mtime_ns
    (run,) = storage_data.runs_in(file.name)
    (stored,) = storage_data.sizes().runs
    assert run == (stored.run_id, stored.num_episodes, stored.num_steps)
    open_page("storage", archive=file.name)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (held, written)
    assert [each.name for each in path.parent.iterdir()] == [file.name]


def test_an_archive_of_another_schema_is_listed_with_the_reason_that_it_is_not_read(
    store: Path, sample: SampleStore
) -> None:
    storage_data.archive(sample.run_id)
    result()
    (file,) = storage_data.archives()
    path = store.parent / "archives" / file.name
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '1'")
    held = path.read_bytes()
    page = html_of(open_page("storage"))
    assert "a development version of Longhaul (schema 1; this program reads" in page
    with pytest.raises(StoreError, match="schema 1"):
        storage_data.runs_in(file.name)
    assert path.read_bytes() == held


def test_a_run_that_is_there_in_part_is_said_to_be(store: Path, sample: SampleStore) -> None:
    storage_data.archive(sample.run_id)
    result()
    (file,) = storage_data.archives()
    engine = store_data.writer()
    with write_transaction(engine) as connection:
        some = connection.scalars(select(EpisodeRow.id).limit(1)).all()
        connection.execute(delete(EpisodeRow).where(EpisodeRow.id.in_(some)))
    storage_data.index()  # what ends makes the page read the store anew
    result()
    said = html_of(open_page("storage", archive=file.name))
    assert f"The store has {sample.run_id} in part: delete it, then restore it." in said


def test_what_was_left_of_a_file_can_be_removed(store: Path) -> None:
    folder = store.parent / "archives"
    folder.mkdir()
    (folder / "run.db.partial").write_bytes(b"half")
    (folder / "run.db.partial-wal").write_bytes(b"more")
    app = open_page("storage")
    assert "run.db.partial" in html_of(app)
    assert storage_data.cut_short()[0].num_bytes == 8
    app.button(key="do-Remove the file").click().run()
    assert list(folder.iterdir()) == []
    with pytest.raises(StoreError, match=r"no file '\.\./store\.db'"):
        storage_data.remove_cut_short("../store.db")


def test_what_waits_is_listed_and_is_not_done_after_the_viewer_closed() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), list[int]()

    def first() -> str:
        begun.set()
        go_on.wait(PATIENCE_SECONDS)
        done.append(0)
        return "done"

    def later() -> str:
        done.append(1)
        return "done"

    work.begin("first", first, writes="first.db")
    for _ in range(work.MOST_PIECES):
        work.begin("later", later)
    pieces = [each for each in work.pieces() if each.title in ("first", "later")]
    assert len(pieces) == work.MOST_PIECES + 1
    assert begun.wait(PATIENCE_SECONDS)
    work.close()
    go_on.set()
    assert pieces[-1].future.result(PATIENCE_SECONDS) == "done"
    assert {each.state for each in pieces[:-1]} == {"cancelled"}
    assert done == [0]
    assert work.pieces() == []


@pytest.mark.slow
def test_a_delete_asks_first_and_says_what_came_of_it(
    page: Page, show: Show, sample: SampleStore, tmp_path: Path
) -> None:
    store = str(shutil.copy(sample.url, tmp_path / "store.db"))
    with show(store) as viewer:
        page.goto(f"{viewer}/{links.address(links.STORAGE, run=sample.run_id)}")
        settle(page)
        page.get_by_role("button", name="Archive", exact=True).click()
        done = page.locator(".badge", has_text="done")
        expect(done).to_have_count(1, timeout=1000 * PATIENCE_SECONDS)
        expect(page.get_by_role("cell", name=sample.run_id).first).to_be_visible()

        settle(page)  # a page that is still drawn closes its popovers
        page.get_by_role("button", name="Prune").click()
        expect(page.get_by_text("No run fits both conditions")).to_be_visible()
        page.keyboard.press("Escape")
        settle(page)
        page.get_by_role("button", name="Delete", exact=True).click()
        sure = page.get_by_role("button", name=f"Delete {sample.run_id}")
        expect(page.get_by_text("This cannot be undone; archive it first.")).to_be_visible()
        assert runs_of(tmp_path / "store.db").keys() == {sample.run_id}
        sure.click()
        expect(done).to_have_count(2, timeout=1000 * PATIENCE_SECONDS)
        expect(page.get_by_text("The store holds no runs yet")).to_be_visible()
    assert runs_of(tmp_path / "store.db") == {}
