"""What `benchmarks/one_gpu.py` trains on a GPU can be described, and its model plays."""

from pathlib import Path
from typing import Any

import one_gpu
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoTokenizer

from longhaul_core.actions import ActionFormat, ActionParser
from longhaul_trainer.cli.train import describe
from longhaul_trainer.config import RunConfig
from longhaul_trainer.models.tiny_vision import write_tiny_vision_model

QWEN3_VL_2B = 2_127_532_032
"""Parameters, as its authors publish them."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures") / "model"
    one_gpu.write_picture_model(folder, tiny=True)
    return folder


def described(name: str, *more: str) -> RunConfig:
    file, *further = one_gpu.RUNS[name]
    return describe(file, [*further, *more]).run()


@pytest.mark.parametrize("name", one_gpu.RUNS)
def test_each_run_is_described_for_a_gpu_and_in_small_for_a_cpu(name: str) -> None:
    large, small = described(name), described(name, *one_gpu.TINY[name])

    assert (large.resources.device, large.model.engine_dtype) == ("gpu", "bfloat16")
    assert (small.resources.device, small.model.engine_dtype) == ("cpu", "float32")


def test_the_engines_of_all_runs_leave_half_a_gpu_to_the_learners() -> None:
    shares = [described(name).engine.gpu_memory_utilization for name in one_gpu.RUNS]

    assert 0 < sum(shares) < 0.5


def test_the_large_model_has_the_published_size(tmp_path: Path) -> None:
    write_tiny_vision_model(tmp_path, family="qwen3_vl")
    of_transformers: Any = AutoModelForImageTextToText
    with torch.device("meta"):
        made = of_transformers.from_config(one_gpu.picture_config(tmp_path, one_gpu.SIZES))

    assert sum(weight.numel() for weight in made.parameters()) == QWEN3_VL_2B


def test_a_random_model_writes_moves_and_ends_its_replies(model: Path) -> None:
    tokenizers: Any = AutoTokenizer
    tokenizer = tokenizers.from_pretrained(model)
    of_transformers: Any = AutoModelForImageTextToText
    network = of_transformers.from_pretrained(model, dtype=torch.float32)
    ids = tokenizer("Which way?\n", return_tensors="pt").input_ids

    with torch.no_grad():
        likely = network(input_ids=ids).logits[0, -1].softmax(-1)

    words = {**dict.fromkeys(one_gpu.MOVES, one_gpu.MOVE_CHANCE), "<|im_end|>": one_gpu.END_CHANCE}
    for word, chance in words.items():
        found = likely[tokenizer.convert_tokens_to_ids(word)].item()
        assert found == pytest.approx(chance, rel=0.3), word


def test_its_moves_are_actions_in_tags_after_a_thought() -> None:
    parser = ActionParser(format=ActionFormat.TAGS, require_thinking=True)

    read = [parser.parse(f"as I see{move} and more") for move in one_gpu.MOVES]

    assert [(action.text, action.valid) for action in read] == [
        (move, True) for move in ("up", "down", "left", "right")
    ]
