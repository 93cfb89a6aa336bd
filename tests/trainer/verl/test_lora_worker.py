"""What verl's learner hands the engine when it trains a low-rank adapter."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from longhaul_trainer.config import RunConfig
from verl_process import IMPORTS_VERL, one_worker

pytestmark = IMPORTS_VERL

RANK, ALPHA = 4, 12
MODULES = ("q_proj", "down_proj")
Weights = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def base(model_folder: Path) -> Weights:
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    return dict(model.state_dict())


@pytest.fixture(scope="module")
def worker(model_folder: Path, cpu_run: None) -> Generator[Any]:
    run = RunConfig.model_validate(
        {
            "num_training_steps": 1,
            "tasks_per_training_step": 1,
            "model": {
                "engine_dtype": "float32",
                "lora_rank": RANK,
                "lora_alpha": ALPHA,
                "lora_target_modules": MODULES,
            },
        }
    )
    with one_worker(run, model_folder) as made:
        yield made


def handed_over(worker: Any) -> Weights:  # noqa: ANN401
    """The weights that the engine would load."""
    weights, adapter = worker.actor.engine.get_per_tensor_param()
    assert adapter is None
    return dict(weights)


def adapters(worker: Any) -> Weights:  # noqa: ANN401
    return {
        name: parameter.full_tensor().clone()
        for name, parameter in worker.actor.engine.module.named_parameters()
        if "lora_" in name
    }


def test_a_fresh_adapter_hands_over_the_starting_weights_bit_for_bit(
    worker: Any,  # noqa: ANN401
    base: Weights,
) -> None:
    given = handed_over(worker)

    assert given.keys() <= base.keys()
    assert base.keys() - given.keys() <= {"lm_head.weight"}  # tied
    for name, weight in given.items():
        assert weight.dtype == torch.float32, name
        assert torch.equal(weight, base[name]), name


def test_a_trained_adapter_is_added_to_the_weights_and_taken_off_again(
    worker: Any,  # noqa: ANN401
    base: Weights,
) -> None:
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in worker.actor.engine.module.named_parameters():
            if "lora_B" in name:
                local = parameter.to_local()
                local.copy_(torch.randn(local.shape, generator=draw) * 0.02)
    before = adapters(worker)

    given = handed_over(worker)

    trained = {name.split(".lora_B")[0] for name in before if ".lora_B" in name}
    assert {module.rpartition(".")[2] for module in trained} == set(MODULES)
    scale = ALPHA / RANK
    for module in trained:
        name = module.replace("base_model.model.", "") + ".weight"
        added = (
            before[f"{module}.lora_B.default.weight"] @ before[f"{module}.lora_A.default.weight"]
        )
        torch.testing.assert_close(given[name], base[name] + scale * added, rtol=0, atol=1e-6)
        assert not torch.equal(given[name], base[name])
    again = handed_over(worker)
    assert all(torch.equal(again[name], weight) for name, weight in given.items())
    assert all(torch.equal(adapters(worker)[name], weight) for name, weight in before.items())
