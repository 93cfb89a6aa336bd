"""Tests for `longhaul_core.store.copies`: stores and runs are copied while they are written."""

import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.orm import Session

from core.store.conftest import ON_BOTH
from longhaul_core.errors import StoreError
from longhaul_core.store import (
    PanelTasks,
    StoreWriter,
    TokenPieces,
    copies,
    maintenance,
    open_store,
    queries,
)
from longhaul_core.store.copies import (
    archive_run,
    back_up,
    copy_run,
    opened_archive,
    verify_archive,
)
from longhaul_core.types import Split
from store_samples import (
    make_audit,
    make_credit,
    make_decisions,
    make_failure,
    make_loss_input,
    make_program,
    make_record,
    make_task,
    make_training_step,
    run_started,
)

Counts = Callable[[], dict[str, int]]


@pytest.fixture(autouse=True)
def _sample(writer: StoreWriter) -> None:
    """A run with something in every table, and another one."""
    played = make_training_step(1)
    panel = PanelTasks(run_id="run", name="fixed", split=Split.TEST, tasks=(make_task(900),))
    writer.write(
        [
            run_started(),
            *played,
            *make_decisions(played),
            *(make_credit(each) for each in played),
            *(make_loss_input(each) for each in played),
            make_record(make_program(), training_step=2),
            make_record(make_failure(), training_step=3),
            panel,
            make_audit(),
            TokenPieces(run_id="run", pieces={7: b"go"}),
        ]
    )
    writer.write([run_started("other"), *make_training_step(1, run_id="other")])


def details(engine: Engine) -> list[object]:
    with Session(engine) as session:
        ids = [
            row.episode_id
            for row in queries.list_episodes(
                session, where=queries.EpisodeFilter(run_id="run"), limit=100
            ).rows
        ]
        return [
            *(queries.get_episode(session, episode_id=each) for each in ids),
            queries.get_run(session, run_id="run"),
            queries.list_groups(session, run_id="run"),
            queries.changes_since(session, run_id="run", cursor=0),
            queries.violations(session, run_id="run"),
        ]


@ON_BOTH
def test_an_archive_is_a_store_with_the_run_as_it_was(
    opened: Engine, tmp_path: Path, writer: StoreWriter, counts: Counts
) -> None:
    target = tmp_path / "archive.db"
    before = details(opened)
    archive_run(opened, run_id="run", target=target)
    assert [path.name for path in tmp_path.iterdir() if "archive" in path.name] == ["archive.db"]

    archive = open_store(target, create=False)
    assert details(archive) == before
    with Session(archive) as session:
        assert [run.run_id for run in queries.list_runs(session)] == ["run"]
        pictures = session.scalars(text("SELECT content_hash FROM media")).all()
        assert pictures
        assert all(queries.get_media(session, content_hash=each).data for each in pictures)

    # What was archived may go, and come back.
    whole = counts()
    maintenance.delete_run(opened, run_id="run", force=True)
    maintenance.collect_garbage(opened)
    copy_run(archive, opened, run_id="run")
    archive.dispose()
    assert counts() == whole
    assert details(opened) == before
    maintenance.index_text(opened)
    with Session(opened) as session:
        assert queries.search_steps(session, words="see", run_id="run").rows


@ON_BOTH
def test_a_copy_is_of_one_moment(opened: Engine, tmp_path: Path, writer: StoreWriter) -> None:
    wrote = False

    def late(*_: object) -> None:
        nonlocal wrote
        if not wrote:
            wrote = True
            writer.write(make_training_step(5))

    target = open_store(tmp_path / "copy.db")
    event.listen(target, "commit", late)
    copy_run(opened, target, run_id="run")
    with Session(target) as session:
        assert wrote
        assert {row.training_step for row in queries.list_episodes(session).rows} == {1, 2, 3}
        assert queries.violations(session, run_id="run") == []
    target.dispose()


def test_a_run_that_is_there_is_not_copied_over(opened: Engine, tmp_path: Path) -> None:
    target = open_store(tmp_path / "copy.db")
    copy_run(opened, target, run_id="run")
    with pytest.raises(StoreError, match=r"'run' is in .*copy\.db already"):
        copy_run(opened, target, run_id="run")
    with pytest.raises(LookupError, match="no run 'nobody'"):
        copy_run(opened, target, run_id="nobody")
    target.dispose()
    with pytest.raises(StoreError, match="there already"):
        archive_run(opened, run_id="run", target=tmp_path / "copy.db")
    with pytest.raises(StoreError, match="no folder"):
        archive_run(opened, run_id="run", target=tmp_path / "none" / "copy.db")
    with pytest.raises(LookupError):
        archive_run(opened, run_id="nobody", target=tmp_path / "new.db")
    assert not list(tmp_path.glob("new.db*"))


def test_two_programs_do_not_write_one_archive(opened: Engine, tmp_path: Path) -> None:
    target = tmp_path / "archive.db"
    refused: list[str] = []

    def meanwhile(*_: object) -> None:
        if not refused:
            refused.append("nothing yet")
            with pytest.raises(StoreError) as caught:
                archive_run(opened, run_id="other", target=target)
            refused[:] = [str(caught.value)]

    event.listen(opened, "begin", meanwhile)
    archive_run(opened, run_id="run", target=target)
    event.remove(opened, "begin", meanwhile)

    assert refused == [f"another program writes {target} now: name another file"]
    with opened_archive(target) as archive:
        assert details(archive) == details(opened)
    assert [path.name for path in tmp_path.glob("archive*")] == ["archive.db"]


def test_what_a_death_left_of_an_archive_is_written_over(opened: Engine, tmp_path: Path) -> None:
    for name in ("archive.db.partial", "archive.db.partial-wal", "archive.db.partial-shm"):
        (tmp_path / name).write_bytes(b"half of it" * 5_000)
    archive_run(opened, run_id="run", target=tmp_path / "archive.db")
    with opened_archive(tmp_path / "archive.db") as archive:
        assert details(archive) == details(opened)
    assert [path.name for path in tmp_path.glob("archive*")] == ["archive.db"]


@ON_BOTH
def test_a_backup_is_the_whole_store(
    opened: Engine, tmp_path: Path, counts: Counts, writer: StoreWriter
) -> None:
    target = tmp_path / "backup.db"
    if opened.dialect.name == "postgresql":
        with pytest.raises(StoreError, match="pg_dump"):
            back_up(opened, target)
        return
    back_up(opened, target)
    with closing(sqlite3.connect(target)) as connection:
        copied = {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in counts()
        }
    assert copied == counts()
    writer.write(make_training_step(7))
    with pytest.raises(StoreError, match="there already"):
        back_up(opened, target)


@ON_BOTH
def test_an_error_leaves_no_part_of_a_run(
    opened: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "_EPISODES_PER_BATCH", 1)
    target = open_store(tmp_path / "copy.db")
    num_begun = 0

    def full(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        nonlocal num_begun
        begins = statement.startswith("INSERT INTO episodes")
        num_begun += begins
        if begins and num_begun == 3:
            raise StoreError("disk is full")

    event.listen(target, "before_cursor_execute", full)
    with pytest.raises(StoreError, match="disk is full"):
        copy_run(opened, target, run_id="run")
    event.remove(target, "before_cursor_execute", full)
    with Session(target) as session:
        assert queries.list_runs(session) == []
    copy_run(opened, target, run_id="run")
    assert details(target) == details(opened)
    target.dispose()


def test_an_archive_stays_as_it_is_when_it_is_read(opened: Engine, tmp_path: Path) -> None:
    file = tmp_path / "archive.db"
    archive_run(opened, run_id="run", target=file)
    held, written = file.read_bytes(), file.stat().st_mtime_ns
    with opened_archive(file) as archive:
        assert details(archive) == details(opened)
    assert (file.read_bytes(), file.stat().st_mtime_ns) == (held, written)
    assert [each.name for each in tmp_path.glob("archive*")] == ["archive.db"]


def test_what_the_death_of_the_process_leaves_of_a_copy_says_so(
    opened: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "_EPISODES_PER_BATCH", 4)
    target = open_store(tmp_path / "copy.db")
    reader = open_store(tmp_path / "copy.db")
    seen: list[tuple[str, str]] = []

    def look(*_: object) -> None:
        """Read what was committed before, which a death would leave."""
        with Session(reader) as session:
            seen.extend((run.status, run.message) for run in queries.list_runs(session))

    event.listen(target, "commit", look)
    copy_run(opened, target, run_id="run")

    assert len(seen) == 4  # of ten episodes
    assert {status for status, _ in seen} == {"failed"}
    assert {message.split(":")[0] for _, message in seen} == {"its copy was cut short"}
    assert details(target) == details(opened)
    target.dispose()
    reader.dispose()


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_what_others_write_meanwhile_hides_no_copied_text(
    opened: Engine, tmp_path: Path, writer: StoreWriter
) -> None:
    file = tmp_path / "archive.db"
    archive_run(opened, run_id="run", target=file)
    maintenance.delete_run(opened, run_id="run", force=True)
    maintenance.index_text(opened)
    indexed: list[Future[int]] = []

    def meanwhile(connection: Connection) -> None:
        """Before the observations of the copy are committed, write and index later ones."""
        own = text("SELECT count(*) FROM observations JOIN episodes e ON e.id = episode_id WHERE ")
        if indexed or not connection.scalar(text(f"{own} e.run_id = 'run'")):
            return
        writer.write(make_training_step(5, run_id="other"))
        indexed.append(pool.submit(maintenance.index_text, indexer))
        with suppress(TimeoutError):
            indexed[0].result(timeout=1.0)

    indexer = open_store(opened.url)
    event.listen(opened, "commit", meanwhile)
    with ThreadPoolExecutor(1) as pool, opened_archive(file) as archive:
        copy_run(archive, opened, run_id="run")
        indexed[0].result(timeout=60)
    event.remove(opened, "commit", meanwhile)
    maintenance.index_text(opened)
    with Session(opened) as session:
        assert queries.search_steps(session, words="see", run_id="run").rows
    indexer.dispose()


@ON_BOTH
def test_a_writer_has_its_turn_between_two_transactions_of_a_copy(
    opened: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "_EPISODES_PER_BATCH", 4)
    target = open_store(tmp_path / "copy.db")
    held: list[tuple[str, float]] = []

    def begins(_: Connection) -> None:
        held.append(("begin", time.monotonic()))

    def commits(_: Connection) -> None:
        held.append(("commit", time.monotonic()))

    event.listen(target, "begin", begins)
    event.listen(target, "commit", commits)

    copy_run(opened, target, run_id="run")

    gaps = [
        after - before
        for (one, before), (other, after) in pairwise(held)
        if (one, other) == ("commit", "begin")
    ]
    assert len(gaps) == 4
    assert min(gaps) > 0.1  # a writer of SQLite looks at a lock ten times a second
    target.dispose()


def change(file: Path, statement: str) -> None:
    """Change a file as a disk does: not through the store."""
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(statement)


def verified(file: Path) -> dict[str, bool | None]:
    with opened_archive(file) as archive:
        return verify_archive(archive)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE steps SET reward = reward + 1 WHERE step_index = 1",
        "UPDATE messages SET own_lines = own_lines || 'x'",
        "UPDATE runs SET config_json = '{}'",
        "DELETE FROM call_tokens",
    ],
)
def test_an_archive_that_is_not_what_was_written_is_not_restored(
    opened: Engine, tmp_path: Path, damage: str
) -> None:
    file, target = tmp_path / "archive.db", open_store(tmp_path / "target.db")
    archive_run(opened, run_id="run", target=file)
    assert verified(file) == {"run": True}

    change(file, damage)

    assert verified(file) == {"run": False}
    with opened_archive(file) as archive:
        with pytest.raises(StoreError, match=r"'run' in .*archive.db is not what was written"):
            copy_run(archive, target, run_id="run")
    with Session(target) as session:
        assert queries.list_runs(session) == []
    target.dispose()


def test_what_was_restored_has_the_hash_that_was_archived(
    opened: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    archive_run(opened, run_id="run", target=first)
    monkeypatch.setattr(copies, "_EPISODES_PER_BATCH", 3)
    monkeypatch.setattr(copies, "_ROWS_AT_ONCE", 2)
    target = open_store(tmp_path / "target.db")
    with opened_archive(first) as archive:
        copy_run(archive, target, run_id="run")
    archive_run(target, run_id="run", target=second)
    target.dispose()

    def hashes(file: Path) -> list[object]:
        with closing(sqlite3.connect(file)) as connection:
            return connection.execute("SELECT run_id, sha256 FROM longhaul_content").fetchall()

    assert hashes(first) == hashes(second)


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_a_backup_tells_which_of_its_runs_was_changed_until_a_run_goes_on_in_it(
    opened: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "backup.db"
    back_up(opened, file)
    assert verified(file) == {"run": True, "other": True}

    change(file, "UPDATE episodes SET episode_return = 7 WHERE run_id = 'other'")
    assert verified(file) == {"run": True, "other": False}
    with StoreWriter(file) as writer:
        writer.write([make_audit()])  # what people add
    assert verified(file) == {"run": True, "other": False}
    with StoreWriter(file) as writer:
        writer.write([run_started(attempt=1)])
    assert verified(file) == {"run": None, "other": None}


@pytest.mark.parametrize(
    ("instead", "kind"),
    [
        ("CREATE VIEW metrics AS WITH RECURSIVE n(run_id) AS "
         "(SELECT 'run' UNION ALL SELECT 'run' FROM n) SELECT * FROM n", "view"),
        ("CREATE VIRTUAL TABLE metrics USING fts5(run_id)", "table"),
    ],
)  # fmt: skip
def test_an_archive_whose_table_is_none_is_refused(
    opened: Engine, tmp_path: Path, instead: str, kind: str
) -> None:
    file = tmp_path / "archive.db"
    archive_run(opened, run_id="run", target=file)
    change(file, f"DROP TABLE metrics; {instead}")

    with pytest.raises(StoreError, match=f"its 'metrics' is a {kind} of another kind"):
        verified(file)


def test_a_value_of_another_kind_is_an_error_of_the_archive(opened: Engine, tmp_path: Path) -> None:
    file, target = tmp_path / "archive.db", open_store(tmp_path / "target.db")
    archive_run(opened, run_id="run", target=file)
    change(file, "DROP TABLE longhaul_content; UPDATE runs SET started_at = 'some day'")

    with opened_archive(file) as archive, pytest.raises(StoreError, match="restore"):
        copy_run(archive, target, run_id="run")
    target.dispose()
