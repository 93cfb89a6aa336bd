"""Tests for `longhaul_trainer.models.adapter`, against PEFT's own model."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# transformers and safetensors are typed in part.

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from longhaul_trainer.models import prepare_model
from longhaul_trainer.models.adapter import merge_adapter

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of PEFT's own

RANK, ALPHA = 4, 16
TOKENS = torch.arange(20, 60).unsqueeze(0)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_model("tiny", tmp_path_factory.mktemp("models"))


@pytest.fixture
def trained(model_folder: Path) -> Any:  # noqa: ANN401  PEFT's model is untyped
    """A model whose adapter does something, under PEFT."""
    base = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    model = get_peft_model(
        base, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", bias="none")
    )
    draw = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn(parameter.shape, generator=draw) * 0.1
    return model.eval()


def saved(model: Any, model_folder: Path, folder: Path, *, shard: str) -> Path:  # noqa: ANN401
    """The folder that verl makes of a PEFT model: the base model's class, PEFT's names."""
    base = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    state = {k: v.clone() for k, v in model.state_dict().items() if "lm_head" not in k}
    base.save_pretrained(folder, state_dict=state, max_shard_size=shard)
    return folder


@pytest.mark.parametrize("shard", ["1GB", "100KB"])
def test_the_merged_folder_is_the_model_that_was_trained(
    trained: Any,  # noqa: ANN401
    model_folder: Path,
    tmp_path: Path,
    shard: str,
) -> None:
    folder = saved(trained, model_folder, tmp_path / "model", shard=shard)
    files = sorted(folder.glob("*.safetensors"))
    assert (len(files) > 1) == (shard == "100KB")
    linked = tmp_path / "checkpoint.safetensors"
    os.link(files[0], linked)
    before = linked.read_bytes()

    merge_adapter(folder, scale=ALPHA / RANK)

    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    start = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    with torch.no_grad():
        expected = trained(TOKENS).logits
        torch.testing.assert_close(plain(TOKENS).logits, expected, rtol=0, atol=1e-4)
        assert not torch.allclose(start(TOKENS).logits, expected, atol=0.01)
    assert linked.read_bytes() == before
    index = folder / "model.safetensors.index.json"
    assert index.exists() == (shard == "100KB")
    if index.exists():
        weight_map = json.loads(index.read_text())["weight_map"]
        assert all("lora" not in n and "base_layer" not in n for n in weight_map)
        assert weight_map.keys() == {name for file in files for name in load_file(file)}


def test_a_folder_without_an_adapter_stays_as_it_is(model_folder: Path) -> None:
    (file,) = model_folder.glob("*.safetensors")
    before = file.stat()

    merge_adapter(model_folder, scale=1.0)

    assert file.stat() == before


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["base_model.model.x.lora_A.default.weight"], "only one of its two factors"),
        (
            [
                "base_model.model.x.lora_A.default.weight",
                "base_model.model.x.lora_B.default.weight",
            ],
            "no weight for the adapter of x.weight",
        ),
    ],
)
def test_half_an_adapter_is_refused_by_name(tmp_path: Path, names: list[str], message: str) -> None:
    save_file({name: torch.ones(2, 2) for name in names}, tmp_path / "model.safetensors")

    with pytest.raises(ValueError, match=message):
        merge_adapter(tmp_path, scale=1.0)
