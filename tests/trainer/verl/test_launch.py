"""Tests for `longhaul_trainer.verl.launch`: the number of an attempt, and what nodes must see."""

import shutil
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from transformers import AutoTokenizer

from longhaul_core.errors import ConfigError
from longhaul_core.store.writer import StoreWriter
from longhaul_trainer.cli.evaluate import weights_of
from longhaul_trainer.config import RunConfig
from longhaul_trainer.models import prepare_model
from longhaul_trainer.models.adapter import ADAPTER_META
from longhaul_trainer.run.context import RunContext
from longhaul_trainer.run.directory import PanelScore, RunDirectory
from longhaul_trainer.training.checkpoints import CheckpointFolder
from longhaul_trainer.training.stages import StageClock
from longhaul_trainer.verl.launch import _Launch, keep_models, next_attempt
from longhaul_trainer.verl.progress import RunProgress
from store_samples import run_started


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(path=tmp_path / "run")
    (run.path / "scratch").mkdir(parents=True)
    return run


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "longhaul.db")


def leave_ticket(run: RunDirectory, attempt: int) -> None:
    config = RunConfig(num_training_steps=2, tasks_per_training_step=2)
    run_context = RunContext(
        run_id=run.run_id, attempt=attempt, recorder_name="none", config=config, descriptions={}
    )
    run_context.write(run.path / "scratch")


def launch_of(config: RunConfig, run: RunDirectory) -> _Launch:
    return _Launch(
        config=config,
        run=run,
        checkpoints=CheckpointFolder(run.checkpoints),
        checkpoint=None,
        evaluates=None,
        kind="train",
        device="cpu",
        stages=StageClock(),
        started_at=0.0,
    )


def test_a_run_that_nobody_knows_begins_with_attempt_0(run: RunDirectory, store: str) -> None:
    assert next_attempt(run, store=store) == 0
    with StoreWriter(store) as writer:
        writer.write([run_started("another"), run_started("another", attempt=3)])
    assert next_attempt(run, store=store) == 0


def test_an_attempt_that_only_the_store_knows_is_not_taken_again(
    run: RunDirectory, store: str
) -> None:
    with StoreWriter(store) as writer:
        writer.write([run_started("run"), run_started("run", attempt=1)])

    assert next_attempt(run, store=store) == 2
    leave_ticket(run, 0)
    assert next_attempt(run, store=store) == 2
    shutil.rmtree(run.path / "scratch")
    assert next_attempt(run, store=store) == 2


def test_an_attempt_that_only_left_a_ticket_is_not_taken_again(
    run: RunDirectory, store: str
) -> None:
    leave_ticket(run, 10)
    leave_ticket(run, 9)

    assert next_attempt(run, store=store) == 11


@pytest.mark.usefixtures("cpu_run")
@pytest.mark.slow  # imports verl
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_serving_that_is_cancelled_from_another_terminal_does_not_end_as_finished(
    run: RunDirectory, tmp_path: Path
) -> None:
    config = RunConfig(num_training_steps=2, tasks_per_training_step=2)
    tokenizer = AutoTokenizer.from_pretrained(prepare_model("tiny", tmp_path / "models"))
    trainer = SimpleNamespace(get_llm_client=lambda: None, tokenizer=tokenizer, processor=None)
    run_context = RunContext(
        run_id=run.run_id, attempt=0, recorder_name="none", config=config, descriptions={}
    )
    launch = launch_of(config, run)
    progress = RunProgress(launch.stages, config=config, log_folder=run.logs)

    async def serve(served: object) -> None:
        """As a gateway does, which the signal of a cancellation stops."""
        progress.cancelled_by = "cancelled by `trainer runs cancel`"

    with pytest.raises(KeyboardInterrupt):
        launch._serve(serve, cast("Any", trainer), run_context, cast("Any", None), progress)


def test_final_weights_are_there_whole_or_not_at_all(run: RunDirectory) -> None:
    config = RunConfig.model_validate(
        {"num_training_steps": 2, "tasks_per_training_step": 2, "model": {"lora_rank": 4}}
    )
    checkpoints = CheckpointFolder(run.checkpoints)
    weights = checkpoints.begin(2) / "actor/huggingface"
    weights.mkdir(parents=True)
    (weights / "config.json").write_text("{}", encoding="utf-8")
    score = PanelScore.of([(0, 0.5, True)], num_planned=1)
    checkpoints.publish(2, {"scores": {"2": asdict(score)}})

    with pytest.raises(FileNotFoundError, match=ADAPTER_META):  # after weights were copied
        keep_models(config, run, checkpoints)
    with pytest.raises(ConfigError, match="holds no best or final weights"):
        weights_of(run, None)

    meta = run.checkpoints / "global_step_2/actor" / ADAPTER_META
    meta.write_text('{"lora_alpha": 8, "r": 4}', encoding="utf-8")
    keep_models(config, run, checkpoints)
    for folder in (run.model, run.best_model):
        assert [file.name for file in folder.iterdir()] == ["config.json"]
    assert weights_of(run, "final") == run.model
    assert [*run.path.glob(".*")] == []


def test_nodes_must_see_the_critics_folder_too(run: RunDirectory, tmp_path: Path) -> None:
    policy = prepare_model("tiny", tmp_path / "models")
    critic = shutil.copytree(policy, tmp_path / "critic")
    sections = {"num_training_steps": 2, "tasks_per_training_step": 2}
    algorithm = {"algorithm": {"name": "gae"}, "critic": {"path": str(critic)}}

    def files(**more: object) -> tuple[Path, ...]:
        return launch_of(RunConfig.model_validate(sections | more), run)._files_of_nodes(policy)

    assert files() == (run.config_file, policy / "config.json")
    assert files(**algorithm) == (*files(), critic / "config.json")
