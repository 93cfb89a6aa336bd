"""Tests for `trainer runs`, on a store that the real writer wrote."""

import io
import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console
from sqlalchemy.orm import Session

from longhaul_core.errors import ConfigError, StoreError
from longhaul_core.store.maintenance import PruneRule
from longhaul_core.store.queries import RunSummary, list_runs
from longhaul_core.store.records import Evaluation, Record, RunEnded, RunStarted
from longhaul_core.store.session import open_store, read_only_engine
from longhaul_core.store.writer import StoreWriter
from longhaul_core.types import Split
from longhaul_trainer.cli import stored_runs
from longhaul_trainer.cli.stored_runs import (
    age_seconds,
    archive_one,
    ask_to_stop,
    back_up_store,
    index_store,
    remove_by_rule,
    remove_one,
    restore_one,
    show_runs,
    show_sizes,
    status_of,
    table_of,
    verify_file,
)
from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.directory import RunDirectory
from store_samples import make_training_step, run_started

DAY = 86_400.0


def a_config(folder: Path) -> RunConfig:
    """Of a run in `folder`."""
    return RunConfig(
        num_training_steps=3, tasks_per_training_step=1, runs_directory=str(folder / "runs")
    )


def records_of(
    run_id: str, *, ended_days_ago: float | None, mean_return: float = 0.0, config_json: str = "{}"
) -> list[Record]:
    """A run's first and last record; without the last if it has not ended."""
    now = time.time()
    started = now - (ended_days_ago or 0) * DAY - 10
    records: list[Record] = [
        RunStarted(
            run_id=run_id,
            name="run",
            kind="train",
            attempt=0,
            config_json=config_json,
            provenance_json="{}",
            started_at=started,
            num_training_steps=3,
        ),
        Evaluation(
            run_id=run_id,
            attempt=0,
            training_step=3,
            panel="validation",
            split=Split.VALIDATION,
            num_episodes=4,
            mean_return=mean_return,
            success_rate=0.5,
        ),
    ]
    if ended_days_ago is not None:
        ended = RunEnded(
            run_id=run_id,
            attempt=0,
            status="finished",
            message="",
            ended_at=now - ended_days_ago * DAY,
        )
        records.append(ended)
    return records


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with an old good run, a newer bad one, and one that runs."""
    path = str(tmp_path / "longhaul.db")
    write(path, records_of("20260101-a", ended_days_ago=30, mean_return=0.9))
    write(path, records_of("20260102-b", ended_days_ago=10, mean_return=0.1))
    write(path, records_of("20260103-c", ended_days_ago=None))
    return path


def write(path: str, records: Sequence[Record]) -> None:
    """Records into a store."""
    writer = StoreWriter(path)
    writer.write(records)
    writer.close()


def stored(path: str) -> dict[str, RunSummary]:
    """Runs of a store by id."""
    engine = read_only_engine(path)
    with Session(engine) as session:
        found = {run.run_id: run for run in list_runs(session)}
    engine.dispose()
    return found


def test_runs_are_listed_newest_first_for_people_and_for_machines(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_runs(store, status=None, limit=2, as_json=False)
    for_people = capsys.readouterr().out
    show_runs(store, status="finished", limit=9, as_json=True)
    for_machines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert "20260103-c" in for_people
    assert "20260102-b" in for_people
    assert "20260101-a" not in for_people
    assert "0/3" in for_people
    assert [run["run_id"] for run in for_machines] == ["20260102-b", "20260101-a"]


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        (160, ()),
        (100, ("started",)),
        (80, ("started", "steps", "failed", "episodes")),
        (65, ("started", "steps", "failed", "episodes", "success")),
    ],
)
def test_a_narrow_terminal_has_fewer_columns_and_no_cut_word(
    width: int, left_out: tuple[str, ...]
) -> None:
    run = RunSummary(
        run_id="20261123-141500-gigpo-3fa2", name="gigpo", kind="train", attempt=0,
        status="finished", message="", started_at=0.0, ended_at=9.0, heartbeat_at=9.0, host=None,
        pid=None, cancel_requested=False, num_training_steps=150, num_training_steps_done=150,
        num_episodes=19_200, num_failed_episodes=31, num_steps=412_345, num_prompt_tokens=0,
        num_action_tokens=0, last_mean_return=0.514, last_success_rate=0.5,
    )  # fmt: skip
    silent = replace(run, status="running", num_training_steps_done=7)
    console = Console(width=width, file=io.StringIO())

    with console.capture() as captured:
        console.print(table_of([run, silent], now=5000.0, console=console))

    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in captured.get()
    shown = [line for line in lines if run.run_id in line]
    assert [line.split()[0] for line in shown] == [run.run_id] * 2, "on a line of its own"
    cells = {"steps": "412,345", "failed": "31", "episodes": "19,200", "success": "50%"}
    cells |= {"started": "1970-01-0", "return": "0.514", "training steps": "150/150"}
    for heading, cell in cells.items():
        there = any(word.startswith(cell) for word in shown[0].split())
        assert there == (heading not in left_out), heading
    said = f"no room for {', '.join(left_out)}; --json has them"
    assert (said in " ".join(captured.get().split())) == bool(left_out)


def test_a_running_run_is_asked_to_stop_and_says_so(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ask_to_stop(store, "last")

    assert "20260103-c stops within seconds" in capsys.readouterr().out
    run = stored(store)["20260103-c"]
    assert run.cancel_requested
    assert status_of(run, now=run.heartbeat_at + 1) == "running, asked to stop"


@pytest.mark.parametrize(("kind", "resumes"), [("train", True), ("evaluate", False)])
def test_who_cancels_is_told_of_resume_where_a_run_can_be_resumed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: Literal["train", "evaluate"],
    resumes: bool,
) -> None:
    store = str(tmp_path / "longhaul.db")
    started, *_ = records_of("20260104-d", ended_days_ago=None)
    assert isinstance(started, RunStarted)
    write(store, [replace(started, kind=kind)])

    ask_to_stop(store, "last")

    said = capsys.readouterr().out
    assert "20260104-d stops within seconds" in said
    assert ("resume" in said) == resumes


def test_a_run_that_has_ended_cannot_be_cancelled(store: str) -> None:
    with pytest.raises(StoreError, match="not running"):
        ask_to_stop(store, "20260101-a")


def test_a_run_is_archived_deleted_and_restored(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = stored(store)["20260102-b"]
    archive_one(store, "20260102-b", tmp_path / "b.db")
    assert "20260102-b is in" in capsys.readouterr().out
    remove_one(store, "20260102-b", with_folder=False, yes=True)
    assert "20260102-b" not in stored(store)

    restore_one(store, "last", tmp_path / "b.db")
    assert stored(store)["20260102-b"] == before
    with pytest.raises(StoreError, match="already"):
        restore_one(store, "20260102-b", tmp_path / "b.db")


def test_a_store_is_backed_up_indexed_and_measured(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(store, make_training_step(1, run_id="20260103-c"))
    index_store(store)
    assert "indexed 28 steps" in capsys.readouterr().out
    show_sizes(store)
    shown = capsys.readouterr().out
    assert "20260103-c" in shown
    assert "bytes a step" in shown
    for heading in ("episodes", "tokens", "pictures"):
        assert heading in shown
    back_up_store(store, tmp_path / "backup.db")
    assert stored(str(tmp_path / "backup.db")) == stored(store)


def test_a_backup_is_verified(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "backup.db"
    back_up_store(store, file)
    verify_file(file)
    run_ids = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()[1:]]
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE runs SET name = 'x' WHERE id = ?", run_ids[:1])
        connection.commit()

    with pytest.raises(StoreError, match=f"1 are not what was written: {run_ids[0]}; use another"):
        verify_file(file)
    assert f"{run_ids[1]}: as it was written" in capsys.readouterr().out


def test_a_text_that_is_none_is_the_stores_error(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with StoreWriter(file) as writer:
        writer.write([run_started()])
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE runs SET name = CAST(X'ff' AS TEXT)")
        connection.commit()

    with pytest.raises(StoreError, match="the file is damaged: a text in it is none"):
        show_runs(str(file), status=None, limit=20, as_json=False)


def test_a_run_without_an_episode_is_among_the_sizes_and_a_narrow_terminal_has_the_sum(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "small.db")
    open_store(url).dispose()
    show_sizes(url)
    assert capsys.readouterr().out == "The store holds no runs.\n"
    write(url, [run_started("20260104-begun"), run_started("20260105-full")])
    write(url, make_training_step(1, run_id="20260105-full"))

    def narrow(_: str) -> Console:
        return Console(width=44)

    monkeypatch.setattr(stored_runs, "console_of", narrow)
    show_sizes(url)
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines()]
    full, begun = (row for row in rows if row and row[0].startswith("2026"))
    assert full[0] == "20260105-full"
    assert begun[0] == "20260104-begun"
    assert set(begun[1:]) <= {"0", "0.0"}
    assert "MiB" in shown
    assert "no room for" in shown
    assert max(map(len, shown.splitlines()[:4])) <= 44


def test_a_killed_run_is_seen_by_its_silence(store: str) -> None:
    run = stored(store)["20260103-c"]

    assert status_of(run, now=run.heartbeat_at + 600) == "running, but silent for 10 min"
    assert status_of(run, now=run.heartbeat_at + 60) == "running"


def test_without_yes_nothing_is_deleted(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    rule = PruneRule(older_than_seconds=20 * DAY)

    remove_by_rule(store, rule, tokens_only=False, with_folder=False, yes=False)

    assert capsys.readouterr().out == "would delete 20260101-a\nNothing was deleted; add --yes.\n"
    assert len(stored(store)) == 3


def test_old_runs_go_and_the_running_one_stays(store: str) -> None:
    rule = PruneRule(older_than_seconds=5 * DAY)

    remove_by_rule(store, rule, tokens_only=False, with_folder=False, yes=True)

    assert stored(store).keys() == {"20260103-c"}


def test_the_best_run_is_kept(store: str) -> None:
    remove_by_rule(store, PruneRule(keep_best=1), tokens_only=False, with_folder=False, yes=True)

    assert stored(store).keys() == {"20260101-a", "20260103-c"}


def test_dropping_tokens_keeps_the_runs(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    rule = PruneRule(older_than_seconds=5 * DAY)

    remove_by_rule(store, rule, tokens_only=True, with_folder=False, yes=True)

    assert "deleted the tokens of 20260101-a" in capsys.readouterr().out
    assert len(stored(store)) == 3


def test_a_run_is_deleted_with_its_folder_only_if_asked(tmp_path: Path) -> None:
    path = str(tmp_path / "longhaul.db")
    config = a_config(tmp_path)
    runs = [RunDirectory.create(config) for _ in range(2)]
    for run in runs:
        write(path, records_of(run.run_id, ended_days_ago=1, config_json=config.model_dump_json()))

    remove_one(path, runs[0].run_id, with_folder=False, yes=True)
    remove_one(path, runs[1].run_id, with_folder=True, yes=True)

    assert stored(path) == {}
    assert runs[0].path.is_dir()
    assert not runs[1].path.exists()


def test_a_run_that_runs_is_not_deleted(store: str) -> None:
    with pytest.raises(StoreError, match="is running: cancel it first"):
        remove_one(store, "20260103-c", with_folder=False, yes=True)

    assert "20260103-c" in stored(store)


def test_a_run_that_never_had_a_folder_is_deleted_with_the_others(tmp_path: Path) -> None:
    store = str(tmp_path / "longhaul.db")
    imported = json.dumps({"name": "import", "import": {"files": 1}})
    for run_id in ("20260101-import", "20260102-import"):
        write(store, records_of(run_id, ended_days_ago=30, config_json=imported))

    rule = PruneRule(older_than_seconds=DAY)
    remove_by_rule(store, rule, tokens_only=False, with_folder=True, yes=True)

    assert stored(store) == {}


def test_a_name_that_fits_several_runs_or_none_is_refused_with_what_there_is(store: str) -> None:
    with pytest.raises(ConfigError, match="'2026010' begins 3 runs"):
        remove_one(store, "2026010", with_folder=False, yes=True)
    with pytest.raises(ConfigError, match="it holds 20260103-c"):
        ask_to_stop(store, "x")


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store"):
        ask_to_stop(str(tmp_path / "none.db"), "last")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("12h", 43_200), ("7d", 604_800), ("2w", 1_209_600)]
)
def test_ages_are_read(text: str, seconds: float) -> None:
    assert age_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "7 days", "-1d", "1.5h"])
def test_what_is_no_age_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="an age is a number and one of m, h, d, w"):
        age_seconds(text)
