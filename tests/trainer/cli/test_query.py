"""`trainer query`, as a person or a script calls it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from core.sql_box.varied_store import write_world
from longhaul_trainer.cli.main import main


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("query") / "store.db")
    write_world(url)
    return url


def trainer(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["trainer", "query", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_an_answer_in_a_pipe_is_csv(
    store: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    sql = "SELECT run_id, 1.5 AS x FROM run_summary ORDER BY run_id"
    assert trainer(monkeypatch, sql, "--store", store) == 0
    assert capfdbinary.readouterr().out == b"run_id,x\nfirst,1.5\nsecond,1.5\n"


def test_json_has_an_object_a_line(
    store: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert (
        trainer(monkeypatch, "SELECT 'é' AS a, NULL AS a", "--store", store, "--format", "json")
        == 0
    )
    assert json.loads(capfdbinary.readouterr().out) == {"a": "é", "a_2": None}


def test_a_files_ending_says_its_format(
    store: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "steps.parquet"
    sql = "SELECT episode_id, step_index, reward FROM steps"
    assert trainer(monkeypatch, sql, "--store", store, "--output", str(file)) == 0
    table = cast("Any", pq.read_table(file))  # pyright: ignore[reportUnknownMemberType]
    assert table.column_names == ["episode_id", "step_index", "reward"]
    assert [str(one) for one in table.schema.types] == ["string", "int64", "double"]
    assert table.num_rows > 100


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1"])
def test_a_text_that_is_a_formula_is_guarded_only_for_spreadsheets(
    store: str,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    sql = f"SELECT '{text}' AS a, -1 AS b"
    trainer(monkeypatch, sql, "--store", store, "--format", "csv", "--for-spreadsheets")
    assert capfdbinary.readouterr().out.decode() == f"a,b\n'{text},-1\n"
    trainer(monkeypatch, sql, "--store", store, "--format", "csv")
    assert capfdbinary.readouterr().out.decode() == f"a,b\n{text},-1\n"


def test_sql_is_read_from_standard_input(store: str, quick_python: str) -> None:
    script = "from longhaul_trainer.cli.main import main; main()"
    done = subprocess.run(
        [quick_python, "-c", script, "query", "--store", store],
        input="SELECT count(*) AS n FROM runs;",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "n\n2\n"


def test_a_question_of_the_cookbook_is_answered(
    store: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = ("--cookbook", "repeated_actions", "--param", "run=first", "--param", "times=4")
    assert trainer(monkeypatch, *asked, "--store", store, "--format", "table") == 0
    out = capfd.readouterr().out.splitlines()
    assert out[0].split() == ["episode_id", "step_index", "action", "times"]
    assert len(out) > 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("SELECT adventage FROM steps",), "did you mean advantage"),
        (("DELETE FROM runs",), "DELETE is not allowed"),
        (("SELECT 1", "--cookbook", "best_steps"), "SQL and --cookbook were given"),
        (("--cookbook", "best_steps", "--param", "run"), "NAME=VALUE, got 'run'"),
        (("SELECT 1", "--param", "run=x"), "--param is for a question"),
        (("--cookbook", "worst_episodes", "--param", "run=x"), "no run 'x' in the store; it holds"),
        (
            ("--cookbook", "dropped_by_memory", "--param", "episode=x"),
            "no episode 'x' in the store",
        ),
        (("SELECT 1", "--output", "a.xls"), "no format goes by the ending"),
        (("SELECT 1", "--format", "json", "--for-spreadsheets"), "is about csv"),
        (("--saved", "none of that name"), "no saved query"),
    ],
)
def test_what_is_wrong_is_said(
    store: str,
    arguments: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert trainer(monkeypatch, *arguments, "--store", store) == 2
    assert message in capfd.readouterr().err


def test_the_rows_that_are_left_out_are_said(
    store: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    trainer(monkeypatch, "SELECT * FROM steps", "--store", store, "--rows", "3")
    shown = capfd.readouterr()
    assert len(shown.out.splitlines()) == 4
    assert "--rows 3 is reached" in shown.err
