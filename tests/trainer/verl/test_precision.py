"""How far ten updates move the weights, by verl's real FSDP worker, in float32 and in bfloat16.

AdamW moves a weight by about the learning rate, whatever the gradient's size; what is lost of that
to rounding is lost from every update. The settings are those that a recipe composes.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from longhaul_trainer.config import RunConfig, load_config
from trainer.verl.updates import LOSSES, Row, make_rows, update
from verl_process import IMPORTS_VERL, one_worker

pytestmark = IMPORTS_VERL

CONFIGS = Path(__file__).parents[3] / "configs"
GIGPO = CONFIGS / "recipes" / "gigpo.toml"
MACHINES = {
    str(load_config(GIGPO, layers=[file]).model.model_copy(update={"path": "tiny"})): file
    for file in sorted((CONFIGS / "machines").glob("*.toml"))
}
"""One for each way that machines have of training a model."""
NUM_UPDATES = 10
KINDS = {
    "weight": CONFIGS / "machines" / "qwen2.5-7b-4x80gb.toml",
    "lora_A": CONFIGS / "machines" / "qwen2.5-7b-lora-1x80gb.toml",
}
"""What a machine trains, and the machine."""


@pytest.fixture(scope="module")
def rows(model_folder: Path, cpu_run: None) -> list[Row]:
    return make_rows(
        AutoModelForCausalLM.from_pretrained(
            model_folder, dtype=torch.float32, attn_implementation="sdpa"
        )
    )


def trained_weights(worker: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401
    return {
        name: parameter.full_tensor().float().clone()
        for name, parameter in worker.actor.engine.module.named_parameters()
        if parameter.requires_grad
    }


def moved(run: RunConfig, model_folder: Path, rows: Sequence[Row]) -> dict[str, float]:
    """Norm of how far ten updates move the weights of each kind, by the last word of its name.

    The first factor of an adapter is random and the second begins at zero, near which bfloat16 is
    fine.
    """
    with one_worker(run, model_folder, device="gpu") as worker:
        before = trained_weights(worker)
        for _ in range(NUM_UPDATES):
            update(worker, rows, LOSSES["clipped"])
        after = trained_weights(worker)
        if run.model.dtype == "float32":
            state = worker.actor.engine.optimizer.state.values()
            assert {kept["exp_avg"].dtype for kept in state} == {torch.float32}
    squares: dict[str, float] = {}
    for name, weight in after.items():
        kind = next((f for f in ("lora_A", "lora_B") if f in name), "weight")
        squares[kind] = squares.get(kind, 0.0) + (weight - before[name]).square().sum().item()
    return {kind: math.sqrt(square) for kind, square in squares.items()}


Ratios = Callable[[RunConfig], dict[str, float]]


@pytest.fixture(scope="module")
def ratios(model_folder: Path, rows: list[Row]) -> Ratios:
    """What a run moves of what the same run moves where all of it computes in float32."""
    known: dict[str, dict[str, float]] = {}

    def of(run: RunConfig) -> dict[str, float]:
        model = run.model.model_copy(update={"dtype": "float32", "engine_dtype": "float32"})
        made_of = str((model.model_copy(update={"path": "tiny"}), run.optimizer))
        if made_of not in known:
            known[made_of] = moved(run.model_copy(update={"model": model}), model_folder, rows)
        found = moved(run, model_folder, rows)
        return {kind: found[kind] / norm for kind, norm in known[made_of].items()}

    return of


@pytest.mark.parametrize("file", MACHINES.values(), ids=lambda file: file.stem)
def test_a_recipe_s_updates_move_its_weights_as_far_as_in_float32(
    file: Path, ratios: Ratios
) -> None:
    found = ratios(load_config(GIGPO, layers=[file]))

    assert all(0.8 < ratio < 1.25 for ratio in found.values()), found


@pytest.mark.parametrize(("kind", "file"), KINDS.items())
def test_in_bfloat16_most_of_an_update_is_rounded_away(
    kind: str, file: Path, ratios: Ratios, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why a training in bfloat16 is refused: with the refusal taken out, it hardly moves."""

    def no_problems(_: RunConfig) -> list[str]:
        return []

    monkeypatch.setattr(RunConfig, "training_problems", no_problems)

    found = ratios(load_config(GIGPO, ['model.dtype="bfloat16"'], layers=[file]))

    assert found[kind] < 0.5, found
