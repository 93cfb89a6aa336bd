# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# (transformers annotates little of what it returns)
"""Models that have a part for pictures compute, in Longhaul's engine, what they do in verl's."""

from collections.abc import Generator
from types import ModuleType
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tensordict import TensorDict
from transformers import (
    PreTrainedModel,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_vl import modeling_qwen3_vl

from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL

TEXT: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
VISION: dict[str, Any] = {
    "depth": 3,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 4,
    "out_hidden_size": TEXT["hidden_size"],
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "num_position_embeddings": 16,
}
MARKS: dict[str, Any] = {
    "image_token_id": 120,
    "video_token_id": 121,
    "vision_start_token_id": 122,
    "vision_end_token_id": 123,
}
TOKENS = torch.tensor([[5, 6, MARKS["vision_start_token_id"], *[MARKS["image_token_id"]] * 4, 7]])


@pytest.fixture(autouse=True)
def as_verl_found_it(cpu_run: None) -> Generator[None]:
    """What verl replaces in classes of transformers is put back."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (modeling_qwen3_5, modeling_qwen3_vl):
            for kind in classes_of(module):
                for name in ("forward", "fast_pos_embed_interpolate"):
                    if name in vars(kind):
                        patch.setattr(kind, name, vars(kind)[name])
        yield


def classes_of(module: ModuleType) -> list[type]:
    return [kind for kind in vars(module).values() if isinstance(kind, type)]


def qwen3_5() -> PreTrainedModel:
    layers = {"layer_types": [*["linear_attention"] * 3, "full_attention"]}
    heads = {"linear_num_key_heads": 2, "linear_num_value_heads": 4}
    sizes = {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 0]}
    text: dict[str, Any] = {**TEXT, **layers, **heads, **sizes, "rope_parameters": rope}
    config = Qwen3_5Config(text_config=text, vision_config=VISION, **MARKS)
    torch.manual_seed(0)
    return Qwen3_5ForConditionalGeneration(config).eval()


def qwen3_vl() -> PreTrainedModel:
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
    vision: dict[str, Any] = {**VISION, "deepstack_visual_indexes": [0, 1]}
    text: dict[str, Any] = {**TEXT, "rope_parameters": rope}
    config = Qwen3VLConfig(text_config=text, vision_config=vision, **MARKS)
    torch.manual_seed(0)
    return Qwen3VLForConditionalGeneration(config).eval()


def logits(model: torch.nn.Module, tokens: torch.Tensor, **pictures: torch.Tensor) -> torch.Tensor:
    positions = torch.arange(tokens.shape[1]).expand(4, 1, -1)
    with torch.no_grad():
        return model(input_ids=tokens, position_ids=positions, use_cache=False, **pictures).logits


def in_an_engine(model: PreTrainedModel) -> torch.nn.Module:
    """The model as Longhaul's engine has it, where verl's built it."""
    from verl.workers.engine.base import BaseEngine

    from longhaul_trainer.verl.pictures import PicturesAsFeatures

    class Engine(BaseEngine):
        def _build_module(self) -> torch.nn.Module:
            return model

    class OfLonghaul(PicturesAsFeatures, Engine):
        pass

    of_longhaul: Any = OfLonghaul()  # pyright: ignore[reportAbstractUsage]
    return of_longhaul._build_module()


@pytest.mark.parametrize("adapted", [False, True])
def test_qwen3_5_reads_text_as_in_verls_engine(*, adapted: bool) -> None:
    from verl.models.transformers.monkey_patch import apply_monkey_patch

    model, tokens = qwen3_5(), torch.arange(1, 20).unsqueeze(0)
    apply_monkey_patch(model, use_remove_padding=False)
    known = logits(model, tokens)

    built: Any = in_an_engine(model)
    if adapted:  # an adapter that is not trained yet changes nothing
        built = get_peft_model(built, LoraConfig(r=2, target_modules=["q_proj", "in_proj_qkv"]))

    assert torch.equal(logits(built, tokens), known)


def test_qwen3_vl_reads_a_picture_as_in_verls_engine() -> None:
    from verl.models.transformers.monkey_patch import apply_monkey_patch

    model = qwen3_vl()
    apply_monkey_patch(model, use_remove_padding=False)
    shown, other = (
        {
            "pixel_values": torch.randn(16, 3 * 2 * 4 * 4),
            "image_grid_thw": torch.tensor([[1, 4, 4]]),
        }
        for _ in range(2)
    )
    known = logits(model, TOKENS, **shown)
    assert not torch.allclose(logits(model, TOKENS, **other), known), "the picture is not read"

    built = in_an_engine(model)

    assert torch.equal(logits(built, TOKENS, **shown), known)


def test_rows_whose_tokens_have_one_position_each_are_padded_as_they_are() -> None:
    """So verl counts for a folder with a model of pictures and no processor."""
    from longhaul_trainer.verl.cpu.learner import ResponseLogitsEngine

    learner: Any = ResponseLogitsEngine.__new__(ResponseLogitsEngine)
    learner.module = qwen3_5()
    rows = [torch.arange(1, 6), torch.arange(1, 4)]
    columns = {
        "input_ids": rows,
        "position_ids": [torch.arange(len(row)) for row in rows],
        "loss_mask": [torch.tensor([0, 1]) for _ in rows],
    }
    of_rows = {
        name: torch.nested.as_nested_tensor(column, layout=torch.jagged)
        for name, column in columns.items()
    }

    inputs, _ = learner.prepare_model_inputs(TensorDict(of_rows, batch_size=[len(rows)]))

    assert inputs["position_ids"].tolist() == [[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]]
