"""`trainer evolve`: what each round imitates, and what is not done twice."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from longhaul_core.errors import ConfigError
from longhaul_core.store import StoreWriter
from longhaul_core.store.records import Evaluation, RunEnded
from longhaul_core.types import Split
from longhaul_trainer.cli import evolve
from longhaul_trainer.config.load import parse_config
from longhaul_trainer.play.imitation.evolution import Evolution, Part
from longhaul_trainer.run.directory import RunDirectory
from store_samples import make_record, make_task, make_trajectory, run_started
from trainer.play.imitation.conftest import NUMBER_LINE

RECORDS = """
import json, pathlib, sys
place = pathlib.Path(sys.argv[0]).parent / "asked.txt"
with place.open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
sys.exit(7 if "fails" in sys.argv else 0)
"""


def begun(folder: Path, *settings: str) -> Evolution:
    overrides = ["store=longhaul.db", "runs_directory=evolutions", *settings]
    config = parse_config(NUMBER_LINE, overrides).with_absolute_paths(folder)
    return Evolution(RunDirectory.create(config), config)


def play(
    evolution: Evolution, name: str, *, successes: int, ended: bool = True, inside: str = ""
) -> str:
    """Have a part's run be there, whose panel has three episodes."""
    folder = str(evolution.folder.path / name / (inside or _folder(evolution, name)))
    run = RunDirectory.create(evolution.config.model_copy(update={"runs_directory": folder}))
    outcomes = [make_trajectory(task=make_task(n), success=n < successes) for n in range(3)]
    episodes = [
        make_record(outcome, run_id=run.run_id, phase="validation", group_index=n)
        for n, outcome in enumerate(outcomes)
    ]
    score = Evaluation(
        run_id=run.run_id,
        attempt=0,
        training_step=4,
        panel="train",
        split=Split.TRAIN,
        num_episodes=3,
        mean_return=1.0,
        success_rate=successes / 3,
    )
    of_one = replace(score, panel="train/longhaul/NumberLine-v0", success_rate=0.5)
    with StoreWriter(evolution.config.store) as writer:
        writer.write([run_started(run.run_id), *episodes, score, of_one])
        if ended:
            writer.write(
                [
                    RunEnded(
                        run_id=run.run_id, attempt=0, status="finished", message="", ended_at=2e9
                    )
                ]
            )
    return run.run_id


def _folder(evolution: Evolution, name: str) -> str:
    """Where the command of a part makes its run's folder."""
    if name.startswith("round"):
        return ""
    experts = name == "start" and evolution.config.warm_start.demonstrations
    return "demonstrations" if experts else "evaluations"


def settings_of(part: Part) -> Mapping[str, Any]:
    """What the command line of an imitation says, read as the command reads it."""
    command, file, *words = part.words
    assert command == "imitate"
    config = parse_config(Path(file).read_text("utf-8"), words)
    sources = [
        (source.run, source.where.get("phase"), source.weight)
        for source in config.imitation.sources
    ]
    return {
        "sources": sources,
        "model": config.model.path,
        "validation": config.validation,
        "name": config.name,
        "learning_rate": config.optimizer.learning_rate,
        "num_training_steps": config.num_training_steps,
    }


FROM_EXPERTS = 'imitation.sources=[{run="experts", weight=2.0}]'


@pytest.mark.parametrize("restart", ["base", "last"])
def test_a_round_imitates_the_files_sources_and_what_was_played_before(
    tmp_path: Path, restart: str
) -> None:
    evolution = begun(tmp_path, FROM_EXPERTS, f"evolution.restart_from={restart}")
    assert evolution.before() is None

    first = settings_of(evolution.round(1))
    one = play(evolution, "round-1", successes=2)
    second = settings_of(evolution.round(2))
    two = play(evolution, "round-2", successes=1)
    third = settings_of(evolution.round(3))

    given = ("experts", None, 2.0)
    assert first["sources"] == [given]
    assert second["sources"] == [given, (one, "validation", 1.0)]
    assert third["sources"] == [given, (one, "validation", 1.0), (two, "validation", 1.0)]
    folder = evolution.folder.path
    trained = [str(folder / f"round-{n}" / run / "model") for n, run in ((1, one), (2, two))]
    models = [each["model"] for each in (first, second, third)]
    base = evolution.config.model.path
    assert models == ([base] * 3 if restart == "base" else [base, *trained])
    assert third["name"] == "experts-round-3"


def test_after_each_round_the_training_tasks_are_played(tmp_path: Path) -> None:
    evolution = begun(
        tmp_path,
        "warm_start.demonstrations=3",
        'warm_start.settings=["validation.num_tasks=0", "optimizer.learning_rate=0.25"]',
        'evolution.settings=["num_training_steps=7"]',
        "evolution.tasks=5",
        "evolution.samples_per_task=3",
    )
    play(evolution, "start", successes=1)

    found = settings_of(evolution.round(1))
    played = found["validation"]

    assert (found["learning_rate"], found["num_training_steps"]) == (0.25, 7)

    assert (played.split, played.num_tasks, played.samples_per_task) == ("train", 5, 3)
    assert (played.temperature, played.before, played.every) == (1.0, False, 0)


def test_the_newest_round_alone_may_be_imitated(tmp_path: Path) -> None:
    evolution = begun(tmp_path, "evolution.keep=newest")
    start = play(evolution, "start", successes=1)
    first = settings_of(evolution.round(1))
    one = play(evolution, "round-1", successes=1)
    second = settings_of(evolution.round(2))

    assert first["sources"] == [(start, "validation", 1.0)]
    assert second["sources"] == [(one, "validation", 1.0)]


def test_a_model_that_has_no_experts_begins_with_its_own_play(tmp_path: Path) -> None:
    evolution = begun(tmp_path, "evolution.tasks=5")
    part = evolution.before()
    assert part is not None
    command, model, *words = part.words
    assert (command, model) == ("evaluate", "tiny")
    assert words[:2] == ["--config", str(evolution.folder.config_file)]
    assert {"validation.num_tasks=5", 'validation.split="train"'} <= set(words)

    start, one = (play(evolution, name, successes=1) for name in ("start", "round-1"))

    assert settings_of(evolution.round(2))["sources"] == [
        (start, "validation", 1.0),
        (one, "validation", 1.0),
    ]


def test_experts_begin_where_the_file_begins_warm(tmp_path: Path) -> None:
    evolution = begun(tmp_path, "warm_start.demonstrations=12")
    part = evolution.before()
    assert part is not None
    assert part.words[:1] + part.words[2:4] == ("demonstrate", "--tasks", "12")

    start = play(evolution, "start", successes=3)

    assert settings_of(evolution.round(1))["sources"] == [(start, None, 1.0)]


def test_a_round_that_solved_nothing_is_left_out_and_nothing_at_all_is_refused(
    tmp_path: Path,
) -> None:
    evolution = begun(tmp_path)
    play(evolution, "start", successes=0)
    with pytest.raises(ConfigError, match=r"round 1 has nothing to imitate: of 64 tasks .*"):
        evolution.round(1)

    with_experts = begun(tmp_path, FROM_EXPERTS)
    play(with_experts, "round-1", successes=0)
    two = play(with_experts, "round-2", successes=1)

    sources = settings_of(with_experts.round(3))["sources"]
    assert sources == [("experts", None, 2.0), (two, "validation", 1.0)]


def test_what_is_wrong_with_a_round_is_found_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "run.toml"
    file.write_text(NUMBER_LINE, "utf-8")
    wrong = 'evolution.settings=["optimizer.learningrate=1"]'
    with pytest.raises(ConfigError, match=r"optimizer\.learningrate"):
        evolve.described(str(file), [wrong])
    with pytest.raises(ConfigError, match=r"samples_per_task = 4 with evolution\.temperature = 0"):
        evolve.described(str(file), ["evolution.temperature=0"])
    with pytest.raises(ConfigError, match=r"evolution\.where: there is no condition 'sucess'"):
        evolve.described(str(file), ["evolution.where={sucess=true}"])
    with pytest.raises(ConfigError, match=r"evolution\.where names a phase"):
        evolve.described(str(file), ['evolution.where={phase="train"}'])
    with pytest.raises(ConfigError, match=r"'model\.path=a', which each round sets itself"):
        evolve.described(str(file), ['evolution.settings=["model.path=a"]'])
    assert evolve.described(str(file), []).runs_directory == str(tmp_path / "runs" / "evolutions")


def test_the_folder_of_a_run_is_no_evolution(tmp_path: Path) -> None:
    config = parse_config(NUMBER_LINE, ["runs_directory=runs"]).with_absolute_paths(tmp_path)
    run = RunDirectory.create(config)

    with pytest.raises(ConfigError, match=r"is the folder of a run, and no evolution; `trainer r"):
        evolve.evolve(str(run.path))


def test_what_is_done_by_hand_with_a_parts_run_is_none_of_its(tmp_path: Path) -> None:
    evolution = begun(tmp_path, "warm_start.demonstrations=3")
    start = play(evolution, "start", successes=3)
    one = play(evolution, "round-1", successes=1)
    for name in ("start", "round-1"):
        play(evolution, name, successes=3, inside="branches")
        play(evolution, name, successes=3, inside="evaluations")

    found = settings_of(evolution.round(2))["sources"]
    assert found == [(start, None, 1.0), (one, "validation", 1.0)]
    assert evolution.score("round-1").success_rate == pytest.approx(1 / 3)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands are written that would have been given."""
    program = tmp_path / "program.py"
    program.write_text(RECORDS, "utf-8")
    monkeypatch.setattr(sys, "argv", [str(program)])
    return tmp_path / "asked.txt"


def test_a_part_is_done_once_and_a_killed_imitation_is_resumed(tmp_path: Path, asked: Path) -> None:
    evolution = begun(tmp_path, FROM_EXPERTS)
    part = evolution.round(1)
    play(evolution, "round-1", successes=1)
    evolve.finish(evolution, part, ["--skip-doctor"])
    assert not asked.exists()

    run_id = play(evolution, "round-2", successes=1, ended=False)
    second = evolution.round(2)
    evolve.finish(evolution, second, [])
    assert evolution.folder.path.name in asked.read_text("utf-8")
    assert '["imitate"' in asked.read_text("utf-8")

    asked.unlink()
    folder = evolution.folder.path / "round-2" / run_id
    (folder / "checkpoints" / "global_step_3").mkdir()
    evolve.finish(evolution, second, ["--skip-doctor"])
    assert asked.read_text("utf-8") == f'["resume", "{folder}", "--skip-doctor"]\n'


def test_a_part_that_fails_ends_the_evolution_with_its_code(
    tmp_path: Path, asked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evolution = begun(tmp_path, FROM_EXPERTS)

    with pytest.raises(typer.Exit) as ended:
        evolve.finish(evolution, evolution.round(1), ["fails"])

    assert ended.value.exit_code == 7
    assert "trainer evolve" in capsys.readouterr().out
    assert asked.exists()


def test_a_signal_that_ends_a_program_is_handed_on(tmp_path: Path) -> None:
    waits = "print(1, flush=True); import signal; signal.pause()"
    before = signal.getsignal(signal.SIGTERM)
    with subprocess.Popen([sys.executable, "-c", waits], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with evolve.handed_on(child):
            os.kill(os.getpid(), signal.SIGINT)  # the terminal's; it is the child's to read
            os.kill(os.getpid(), signal.SIGTERM)
            assert child.wait() == -signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_rounds_are_shown_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evolution = begun(tmp_path, FROM_EXPERTS)
    for name, successes in {"round-1": 1, "round-2": 2, "test-1": 0, "test-2": 3}.items():
        play(evolution, name, successes=successes)

    evolve.show(evolution, range(1, 3), [1, 2])

    shown = [line.split("│") for line in capsys.readouterr().out.splitlines() if "round" in line]
    assert [[cell.strip() for cell in line[1:4]] for line in shown] == [
        ["round 1", "33.3%", "0.0%"],
        ["round 2", "66.7%", "100.0%"],
    ]
