"""A vLLM engine on the CPU, after new weights were put in force, against transformers."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from longhaul_trainer.models import prepare_model
from trainer.verl.pythons import Pythons

pytestmark = pytest.mark.slow  # starts a vLLM engine

PROGRAM = Path(__file__).with_name("engine_reload.py")
PROMPT = list(range(100, 140))
TIME_LIMIT_SECONDS = 800


@pytest.fixture(scope="module")
def sampled(
    pythons: Pythons, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """What the engine sampled before and after the reload, and transformers' opinion of it."""
    folder = tmp_path_factory.mktemp("reload")
    model = prepare_model("tiny", folder)
    draw = torch.Generator().manual_seed(0)
    changed = folder / "changed.safetensors"
    weights = load_file(model / "model.safetensors")
    assert "lm_head.weight" not in weights, "the output layer should share the embedding's weights"
    for weight in weights.values():
        weight.mul_(1 + 0.3 * torch.randn(weight.shape, generator=draw))
    save_file(weights, changed, {"format": "pt"})

    command = [pythons.verl, str(PROGRAM), str(model), str(changed), str(folder / "scratch")]
    environment = os.environ | {
        "PYTHONPATH": str(PROGRAM.parent),  # where its workers find the extension
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }
    process = subprocess.run(
        [*command, str(folder / "result.json")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_SECONDS,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    found = json.loads((folder / "result.json").read_text(encoding="utf-8"))

    reference = AutoModelForCausalLM.from_pretrained(
        model, dtype=torch.float32, attn_implementation="sdpa"
    )
    found["before"]["expected"] = logprobs(reference, found["before"]["tokens"])
    reference.load_state_dict(weights, strict=False)
    reference.tie_weights()
    for finish in ("ours", "vllm's"):
        found[finish]["expected"] = logprobs(reference, found[finish]["tokens"])
    return found


def logprobs(model: Any, tokens: list[int]) -> list[float]:  # noqa: ANN401
    """Natural log-probability of each token after the prompt and the tokens before it."""
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT + tokens])).logits[0, len(PROMPT) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor([tokens]).T).squeeze(-1).tolist()


def difference(sample: dict[str, Any]) -> float:
    """Largest difference between engine and transformers, in nats."""
    pairs = zip(sample["logprobs"], sample["expected"], strict=True)
    return max(abs(engine - reference) for engine, reference in pairs)


def test_the_engine_agrees_before_the_reload(sampled: dict[str, dict[str, Any]]) -> None:
    assert difference(sampled["before"]) < 1e-4


def test_the_engine_agrees_after_the_reload(sampled: dict[str, dict[str, Any]]) -> None:
    assert difference(sampled["ours"]) < 1e-4
    assert sampled["ours"]["logprobs"] != sampled["before"]["logprobs"]


def test_without_our_last_step_a_tied_output_layer_stays_behind(
    sampled: dict[str, dict[str, Any]],
) -> None:
    """If this fails, vLLM has learned to do it, and `finish_reload` may go."""
    assert difference(sampled["vllm's"]) > 1e-3
