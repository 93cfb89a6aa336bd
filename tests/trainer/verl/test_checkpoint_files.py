"""What a checkpoint of verl's real FSDP worker holds, and what a run makes of it at its end."""

# pyright: reportUnknownVariableType=false
# safetensors is typed in part.

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from longhaul_core.errors import ConfigError
from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.directory import PanelScore, RunDirectory
from longhaul_trainer.training.checkpoints import CheckpointFolder
from longhaul_trainer.verl.launch import (
    keep_models,
    run_training,
)
from trainer.verl.updates import LOSSES, Row, make_rows, update
from verl_process import IMPORTS_VERL, one_worker

pytestmark = IMPORTS_VERL

Weights = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def rows(model_folder: Path, cpu_run: None) -> list[Row]:
    return make_rows(
        AutoModelForCausalLM.from_pretrained(
            model_folder, dtype=torch.float32, attn_implementation="sdpa"
        )
    )


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(path=tmp_path / "run")
    run.checkpoints.mkdir(parents=True)
    return run


def trained_by(model_folder: Path, *, lora_rank: int, **checkpoint: bool) -> RunConfig:
    adapter = {"lora_rank": lora_rank, "lora_alpha": 3 * lora_rank} if lora_rank else {}
    return RunConfig.model_validate(
        {
            "num_training_steps": 8,
            "tasks_per_training_step": 2,
            "model": {"path": str(model_folder), "engine_dtype": "float32"} | adapter,
            "optimizer": {"learning_rate": 1e-2},
            "checkpoint": checkpoint,
        }
    )


def for_the_engine(worker: Any) -> Weights:  # noqa: ANN401
    """The whole weights, an adapter added, as the engine would get them."""
    weights, _ = worker.actor.engine.get_per_tensor_param()
    return {name: weight.clone() for name, weight in weights}


class Trained(NamedTuple):
    """A learner after two updates, at a checkpoint, the best so far."""

    checkpoints: Path
    weights: Weights
    later: Weights
    """After one more update."""


@pytest.fixture(scope="module")
def trained(
    rows: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[RunConfig], Trained]:
    """Trains each configuration once."""
    known: dict[str, Trained] = {}

    def of(config: RunConfig) -> Trained:
        if str(config) not in known:
            known[str(config)] = _trained(config, rows, tmp_path_factory.mktemp("checkpoints"))
        return known[str(config)]

    return of


def _trained(config: RunConfig, rows: list[Row], folder: Path) -> Trained:
    checkpoints = CheckpointFolder(folder)
    with one_worker(config, Path(config.model.path)) as worker:
        for _ in range(2):
            update(worker, rows, LOSSES["clipped"])
        checkpoint = checkpoints.begin(2)
        worker.save_checkpoint(str(checkpoint / "actor"), None, 2)
        weights = for_the_engine(worker)
        update(worker, rows, LOSSES["clipped"])
        later = for_the_engine(worker)
    score = PanelScore.of([(0, 0.5, True)], num_planned=1)
    checkpoints.publish(2, {"scores": {"2": asdict(score)}})
    return Trained(folder, weights, later)


@pytest.fixture
def checkpointed(
    trained: Callable[[RunConfig], Trained], run: RunDirectory
) -> Callable[[RunConfig], Trained]:
    """Gives the run a copy of the checkpoint that its configuration makes."""

    def of(config: RunConfig) -> Trained:
        found = trained(config)
        shutil.copytree(found.checkpoints, run.checkpoints, dirs_exist_ok=True)
        return found

    return of


def files_of(run: RunDirectory) -> set[str]:
    (actor,) = run.checkpoints.glob("global_step_2/actor")
    return {file.name.partition("_world")[0] for file in actor.iterdir() if file.is_file()}


def model_in(folder: Path) -> Weights:
    found: Weights = {}
    for file in folder.glob("*.safetensors"):
        found |= load_file(file)
    return found


@pytest.mark.parametrize("lora_rank", [0, 4])
@pytest.mark.parametrize("contents", [{}, {"huggingface": False}, {"optimizer": False}])
def test_the_final_and_the_best_model_are_what_the_engine_sampled_from(
    contents: dict[str, bool],
    lora_rank: int,
    model_folder: Path,
    run: RunDirectory,
    checkpointed: Callable[[RunConfig], Trained],
) -> None:
    config = trained_by(model_folder, lora_rank=lora_rank, **contents)
    trained = checkpointed(config).weights

    keep_models(config, run, CheckpointFolder(run.checkpoints))

    start = model_in(model_folder)
    kept = model_in(run.model)
    assert kept.keys() == start.keys()
    for name, weight in kept.items():
        assert weight.dtype == torch.float32, name
        torch.testing.assert_close(weight, trained[name], rtol=0, atol=1e-6)
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.allclose(kept[name], start[name], atol=1e-4)
    loaded = AutoModelForCausalLM.from_pretrained(run.model, dtype=torch.float32)
    torch.testing.assert_close(loaded.state_dict()[name], trained[name], rtol=0, atol=1e-6)
    assert (run.model / "tokenizer.json").is_file()
    # one and the same checkpoint: its weights are written once
    of_both = [folder / "model.safetensors" for folder in (run.model, run.best_model)]
    assert of_both[0].samefile(of_both[1])


def test_a_checkpoint_without_the_optimizer_has_the_model_alone(
    model_folder: Path,
    run: RunDirectory,
    checkpointed: Callable[[RunConfig], Trained],
) -> None:
    checkpointed(trained_by(model_folder, lora_rank=0, optimizer=False))

    assert files_of(run) == {"fsdp_config.json"}
    assert (run.checkpoints / "global_step_2/actor/huggingface/model.safetensors").is_file()


def test_a_checkpoint_without_a_hugging_face_copy_has_no_weights_there(
    model_folder: Path,
    run: RunDirectory,
    checkpointed: Callable[[RunConfig], Trained],
) -> None:
    checkpointed(trained_by(model_folder, lora_rank=0, huggingface=False))

    assert files_of(run) == {"fsdp_config.json", "model", "optim", "extra_state"}
    assert not model_in(run.checkpoints / "global_step_2/actor/huggingface")


def test_a_checkpoint_of_an_adapter_leaves_out_the_weights_that_stay(
    model_folder: Path,
    run: RunDirectory,
    checkpointed: Callable[[RunConfig], Trained],
) -> None:
    checkpointed(trained_by(model_folder, lora_rank=4, huggingface=False))

    shard = torch.load(
        run.checkpoints / "global_step_2/actor/model_world_size_1_rank_0.pt", weights_only=False
    )
    assert shard
    assert all(".lora_" in name for name in shard)


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_a_resume_goes_on_as_if_there_had_been_no_end(
    lora_rank: int,
    model_folder: Path,
    rows: list[Row],
    trained: Callable[[RunConfig], Trained],
) -> None:
    config = trained_by(model_folder, lora_rank=lora_rank, huggingface=False)
    folder, _, expected = trained(config)

    with one_worker(config, model_folder) as worker:
        worker.load_checkpoint(str(folder / "global_step_2/actor"))
        update(worker, rows, LOSSES["clipped"])
        found = for_the_engine(worker)

    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())


def test_a_resume_without_the_optimizer_is_refused_and_leaves_the_model_to_begin_from(
    model_folder: Path,
    run: RunDirectory,
    checkpointed: Callable[[RunConfig], Trained],
) -> None:
    config = trained_by(model_folder, lora_rank=4, optimizer=False)
    trained = checkpointed(config).weights

    with pytest.raises(ConfigError) as raised:
        run_training(config, run, resume=True)

    with pytest.raises(ConfigError, match="its 2 training steps are done, and its weights are in"):
        run_training(config.model_copy(update={"num_training_steps": 2}), run, resume=True)

    assert "checkpoint.optimizer = false left AdamW's moments" in str(raised.value)
    assert f"model.path={run.model} begins another run from them" in str(raised.value)
    for name, weight in model_in(run.model).items():
        torch.testing.assert_close(weight, trained[name], rtol=0, atol=1e-6)
