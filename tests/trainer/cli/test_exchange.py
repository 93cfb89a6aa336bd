"""`trainer import` and `trainer export`, as typed, on a store that the real writer wrote."""

import json
from pathlib import Path

import pytest
from sqlalchemy.orm import Session
from typer.testing import CliRunner

from longhaul_core.errors import ConfigError, FormatError
from longhaul_core.exchange import parse_where
from longhaul_core.store import StoreWriter, queries, read_only_engine
from longhaul_core.types import StopReason
from longhaul_trainer.cli.main import app
from store_samples import make_record, make_trajectory, run_started

CLI = CliRunner()


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = tmp_path / "store.db"
    with StoreWriter(path) as writer:
        outcomes = [
            make_trajectory(),
            make_trajectory(sample_index=1, success=False, rewards=(0.0,)),
        ]
        writer.write(
            [run_started("first"), *(make_record(one, run_id="first") for one in outcomes)]
        )
    return str(path)


def test_what_is_exported_can_be_imported(store: str, tmp_path: Path) -> None:
    file = tmp_path / "solved.jsonl"
    typed = ["export", "first", "--format", "verl", "--store", store, "-o", str(file)]
    exported = CLI.invoke(app, [*typed, "--where", "success=true"], catch_exceptions=False)
    assert exported.exit_code == 0
    assert [json.loads(line)["step_reward"] for line in file.read_text().splitlines()] == [
        0.0,
        0.5,
        1.0,
    ]
    typed = ["import", str(file), "--format", "verl", "--store", store, "--name", "again"]
    result = CLI.invoke(app, typed, catch_exceptions=False)
    assert result.exit_code == 0
    assert "1 episodes of 3 steps, 1 solved" in result.stdout
    engine = read_only_engine(store)
    with Session(engine) as session:
        run = queries.list_runs(session, kind="imported")[0]
    engine.dispose()
    assert (run.name, run.num_episodes, run.num_steps) == ("again", 1, 3)
    assert run.run_id in result.stdout


@pytest.mark.parametrize("output", [(), ("-o", "-")])
def test_an_export_goes_to_standard_output(
    store: str, output: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where a file called `-` would be
    typed = ["export", "last", "--format", "agentgym", "--store", store, *output]
    exported = CLI.invoke(app, typed, catch_exceptions=False)
    assert [log["reward"] for log in json.loads(exported.stdout)] == [1.5, 0.0]


def test_what_the_store_has_no_place_for_is_said(store: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    row = {"input": "a", "output": "b", "score": 1, "step": 1, "acc": 1.0}
    file.write_text(f"{json.dumps(row)}\n" * 3, encoding="utf-8")
    typed = ["import", str(file), "--format", "verl", "--store", store]
    result = CLI.invoke(app, typed, catch_exceptions=False)
    assert "Not in the store, by number of episodes: acc (3)" in result.stderr


def test_a_bad_file_is_named_with_its_line(store: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"input": "a", "output": "b", "step": 1}\n', encoding="utf-8")
    result = CLI.invoke(app, ["import", str(file), "--format", "verl", "--store", store])
    assert isinstance(result.exception, FormatError)
    assert "rows.jsonl, line 1: field score: Field required" in str(result.exception)


@pytest.mark.parametrize(
    ("conditions", "problem"),
    [
        (["success"], "NAME=VALUE"),
        (["sucess=true"], "no condition 'sucess'; there are phase, min_training_step"),
        (["success=maybe"], "success: Input should be a valid boolean"),
        (["phase=practice"], "phase: Input should be 'train', 'baseline'"),
        (["min_return=nan"], "min_return: Input should be a finite number"),
        (["min_steps=-1"], "min_steps: Input should be greater than or equal to 0, got '-1'"),
        (["success=true", "success=false"], "success is given twice"),
        (["failed=true"], "failed episodes have no return"),
    ],
)
def test_a_condition_that_makes_no_sense_is_named(
    store: str, conditions: list[str], problem: str
) -> None:
    typed = [part for condition in conditions for part in ("--where", condition)]
    result = CLI.invoke(app, ["export", "first", "--format", "verl", "--store", store, *typed])
    assert isinstance(result.exception, ConfigError)
    assert problem in str(result.exception)


def test_conditions_are_typed() -> None:
    where = parse_where(["stop_reason=task_solved", "min_return = 0.5", "failed=false"])
    assert where.stop_reason is StopReason.TASK_SOLVED
    assert where.filter_of("run").min_return == 0.5
    assert where.filter_of("run").run_id == "run"
    assert where.filter_of("run").rolled_back is False


def test_a_broken_export_leaves_no_file(store: str, tmp_path: Path) -> None:
    file = tmp_path / "none" / "out.jsonl"
    result = CLI.invoke(
        app, ["export", "first", "--format", "verl", "--store", store, "-o", str(file)]
    )
    assert isinstance(result.exception, ConfigError)
    assert f"cannot write {file}" in str(result.exception)
    assert list(tmp_path.glob("*.part")) == []
