"""Tests for `longhaul_trainer.models.shards`; `test_two_ranks` reads what two ranks wrote."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load
from transformers import AutoModelForImageTextToText

from longhaul_trainer.models.shards import save_model, whole_weights
from longhaul_trainer.models.tiny_vision import tiny_vision_model


class Stranger:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.file),)


def test_a_shard_that_would_run_code_is_refused(tmp_path: Path) -> None:
    made = tmp_path / "made"
    (tmp_path / "fsdp_config.json").write_text(json.dumps({"world_size": 1}), encoding="utf-8")
    shard = tmp_path / "model_world_size_1_rank_0.pt"

    torch.save({"a": torch.ones(2), "b": Stranger(made)}, shard)
    with pytest.raises(ValueError, match=f"{shard} is refused, since it holds more than weights"):
        whole_weights(tmp_path)
    assert not made.exists()

    torch.save({"a": torch.ones(2)}, shard)
    assert torch.equal(whole_weights(tmp_path)["a"], torch.ones(2))


def test_experts_are_written_as_they_are_published_and_read_again(tmp_path: Path) -> None:
    """Of 4 experts, a hidden size of 64 and an inner one of 96; vLLM loads no other layout."""
    model = tiny_vision_model("qwen3_vl_moe")
    save_model(model, tmp_path)

    written = load((tmp_path / "model.safetensors").read_bytes())
    experts = {name: weight for name, weight in written.items() if ".mlp.experts." in name}
    of_transformers: Any = AutoModelForImageTextToText
    read = of_transformers.from_pretrained(tmp_path, dtype=torch.float32).state_dict()

    assert {tuple(weight.shape) for weight in experts.values()} == {(4, 64, 192), (4, 96, 64)}
    assert all(torch.equal(read[name], weight) for name, weight in model.state_dict().items())
