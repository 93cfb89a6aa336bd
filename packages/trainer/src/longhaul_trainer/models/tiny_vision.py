# pyright: reportUnknownMemberType=false
# (transformers annotates little of what it returns)
"""Random models of 0.4 million parameters that read pictures, for smoke runs, one a family.

`tiny-vision` is a Qwen2.5-VL. Each has the architecture, the image processor and the special tokens
of its family, and the vocabulary of the other tiny models. Like `tiny-moves` they mostly write
Sokoban's moves, so that runs earn rewards by chance. What they write depends on the picture, if in
no way that is of use.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from longhaul_trainer.models.folder import (
    MESSAGE_END_ID,
    MESSAGE_START_ID,
    PAD_ID,
    write_json,
    write_tokenizer,
)
from longhaul_trainer.models.shards import save_model
from longhaul_trainer.models.smollm2 import packaged_model, packaged_vocabulary
from longhaul_trainer.models.tiny import MOVES, SHAPE, favour
from longhaul_trainer.models.vision import FAMILIES

VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_START, _END, _IMAGE, _VIDEO = range(SHAPE.vocabulary_size, SHAPE.vocabulary_size + 4)
_SHAPE = replace(SHAPE, vocabulary_size=SHAPE.vocabulary_size + len(VISION_TOKENS))
_MARKS: Mapping[str, int] = {
    "image_token_id": _IMAGE,
    "video_token_id": _VIDEO,
    "vision_start_token_id": _START,
    "vision_end_token_id": _END,
}
_ENDS: Mapping[str, int] = {
    "bos_token_id": MESSAGE_START_ID,
    "eos_token_id": MESSAGE_END_ID,
    "pad_token_id": PAD_ID,
}

MERGED, FRAMES = 2, 2
"""Patches of a token's side; frames of a patch, a picture being two."""
MOST_TOKENS = 64
"""Of a picture; a larger one is made smaller."""
_WIDTH, _INNER, _DEPTH = 32, 64, 2
_PICTURE_SCALE = 10
"""How much larger than of text the matrices that read pictures are: a picture's tokens then weigh
as words do, and another picture changes the log-probabilities of a reply by some hundredths of a
nat: a learner that saw none would not go unnoticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """In what a family differs; all else they share."""

    patch: int = 16
    """Pixels of its side."""
    rope: Mapping[str, object] = field(
        default_factory=lambda: {"mrope_section": [6, 5, 5], "mrope_interleaved": True}
    )
    """Pairs of a head that turn with time, height and width."""
    text: Mapping[str, object] = field(default_factory=dict[str, object])
    vision: Mapping[str, object] = field(default_factory=dict[str, object])


_EARLIER: Mapping[str, object] = {"mrope_section": [4, 6, 6]}
_PARTIAL: Mapping[str, object] = {
    "mrope_section": [2, 1, 1],
    "mrope_interleaved": True,
    "partial_rotary_factor": 0.25,
}
_LINEAR: Mapping[str, object] = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "mamba_ssm_dtype": "float32",
}
_EXPERTS: Mapping[str, object] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 96,  # neither matrix of an expert is square
}
_LAYERS: Mapping[str, object] = {"deepstack_visual_indexes": [0]}
_SHAPES: Mapping[str, _Shape] = {
    "qwen2_vl": _Shape(
        patch=14,
        rope=_EARLIER,
        vision={"embed_dim": _WIDTH, "hidden_size": _SHAPE.hidden_size, "mlp_ratio": 2},
    ),
    "qwen2_5_vl": _Shape(
        patch=14,
        rope=_EARLIER,
        vision={"fullatt_block_indexes": [_DEPTH - 1], "window_size": 4 * 14},
    ),
    "qwen3_vl": _Shape(vision=_LAYERS),
    "qwen3_vl_moe": _Shape(text={**_EXPERTS, "norm_topk_prob": True}, vision=_LAYERS),
    "qwen3_5": _Shape(rope=_PARTIAL, text=_LINEAR),
    "qwen3_5_moe": _Shape(
        rope=_PARTIAL, text={**_LINEAR, **_EXPERTS, "shared_expert_intermediate_size": 64}
    ),
}

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['content'] is string -%}
{{ message['content'] }}
{%- else -%}
{%- for part in message['content'] -%}
{%- if part['type'] == 'image' -%}
{{ '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- else -%}
{{ part['text'] }}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- endif -%}
"""


def write_tiny_vision_model(folder: Path, *, family: str = "qwen2_5_vl", seed: int = 0) -> None:
    """Write a model as a Hugging Face folder, weights in float32.

    Args:
        folder: Exists and is empty.
        family: One of `FAMILIES`.
        seed: Of the weights; the same seed gives the same file.
    """
    tokens, merges = packaged_vocabulary(packaged_model())
    kept = tokens[: SHAPE.vocabulary_size]
    known = set(kept)
    write_tokenizer(
        folder,
        kept,
        [pair for pair in merges if "".join(pair) in known],
        added_special=VISION_TOKENS,
        chat_template=CHAT_TEMPLATE,
    )
    _write_processor(folder, family)
    model = tiny_vision_model(family, seed=seed)
    embedding = {"model.embed_tokens.weight": model.get_input_embeddings().weight.data}
    favour(embedding, {kept.index(token): times for token, times in MOVES.items()})
    save_model(model, folder)
    write_json(folder / "generation_config.json", _ENDS)


def tiny_vision_model(family: str, *, seed: int = 0) -> Any:  # noqa: ANN401  a class a family
    """The model of a family in transformers, before it favours any token."""
    config = AutoConfig.for_model(
        family,
        text_config=_text(_SHAPES[family]),
        vision_config=_vision(_SHAPES[family]),
        tie_word_embeddings=True,
        **_MARKS,
        **_ENDS,
    )
    of_transformers: Any = AutoModelForImageTextToText
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model = of_transformers.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".visual." in name and weight.dim() > 1:
                weight *= _PICTURE_SCALE
    return model


def _text(shape: _Shape) -> dict[str, object]:
    return {
        "hidden_size": _SHAPE.hidden_size,
        "head_dim": _SHAPE.hidden_size // _SHAPE.num_heads,
        "intermediate_size": _SHAPE.intermediate_size,
        "max_position_embeddings": _SHAPE.context_tokens,
        "num_attention_heads": _SHAPE.num_heads,
        "num_hidden_layers": _SHAPE.num_layers,
        "num_key_value_heads": _SHAPE.num_key_value_heads,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": _SHAPE.rope_theta,
            **shape.rope,
        },
        "tie_word_embeddings": True,
        "vocab_size": _SHAPE.vocabulary_size,
        **shape.text,
        **_ENDS,
    }


def _vision(shape: _Shape) -> dict[str, object]:
    return {
        "depth": _DEPTH,
        "hidden_size": _WIDTH,
        "intermediate_size": _INNER,
        "num_heads": 2,
        "num_position_embeddings": 16,
        "out_hidden_size": _SHAPE.hidden_size,
        "patch_size": shape.patch,
        "spatial_merge_size": MERGED,
        "temporal_patch_size": FRAMES,
        **shape.vision,
    }


def _write_processor(folder: Path, family: str) -> None:
    patch = _SHAPES[family].patch
    side = patch * MERGED
    write_json(
        folder / "preprocessor_config.json",
        {
            "processor_class": FAMILIES[family].processor,
            "image_processor_type": "Qwen2VLImageProcessor",
            "min_pixels": 4 * side**2,
            "max_pixels": MOST_TOKENS * side**2,
            "patch_size": patch,
            "temporal_patch_size": FRAMES,
            "merge_size": MERGED,
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711],
        },
    )
