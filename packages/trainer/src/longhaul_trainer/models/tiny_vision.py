"""A random Qwen2.5-VL of 0.4 million parameters, for smoke runs of models that read pictures.

It has the architecture, the image processor and the special tokens of Qwen2.5-VL, and the
vocabulary of the other tiny models. Like `tiny-moves` it mostly writes Sokoban's moves, so that
runs earn rewards by chance. What it writes depends on the picture, if in no way that is of use.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import gguf
import torch
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike

from longhaul_trainer.models.folder import (
    MESSAGE_END_ID,
    MESSAGE_START_ID,
    PAD_ID,
    write_json,
    write_tokenizer,
)
from longhaul_trainer.models.smollm2 import packaged_gguf, packaged_vocabulary
from longhaul_trainer.models.tiny import MOVES, SHAPE, favour, random_weights

VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_START, _END, _IMAGE, _VIDEO = range(SHAPE.vocabulary_size, SHAPE.vocabulary_size + 4)
_SHAPE = replace(SHAPE, vocabulary_size=SHAPE.vocabulary_size + len(VISION_TOKENS))

PATCH, MERGED, FRAMES = 14, 2, 2
"""Pixels of a patch's side; patches of a token's side; frames of a patch, a picture being two."""
MOST_TOKENS = 64
"""Of a picture; a larger one is made smaller."""
_WIDTH, _INNER, _DEPTH = 32, 64, 2
_PICTURE_SCALE = 0.2
"""Deviation of the matrices that read pictures: a picture's tokens then weigh as words do."""
_ATTENTION_SCALE = 3
"""How much more than in the other tiny models attention moves a reply: another picture changes its
log-probabilities by some tenths of a nat, and a learner that saw none would not go unnoticed."""

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


def write_tiny_vision_model(folder: Path, *, seed: int = 0) -> None:
    """Write the model as a Hugging Face folder, weights in float32.

    Args:
        folder: Exists and is empty.
        seed: Of the weights; the same seed gives the same file.
    """
    _write_config(folder)
    _write_processor(folder)
    tokens, merges = packaged_vocabulary(gguf.GGUFReader(packaged_gguf()))
    kept = tokens[: SHAPE.vocabulary_size]
    known = set(kept)
    write_tokenizer(
        folder,
        kept,
        [pair for pair in merges if "".join(pair) in known],
        added_special=VISION_TOKENS,
        chat_template=CHAT_TEMPLATE,
    )
    weights = random_weights(_SHAPE, seed=seed)
    key_value = _SHAPE.hidden_size // _SHAPE.num_heads * _SHAPE.num_key_value_heads
    for layer in range(_SHAPE.num_layers):
        for name, size in (("q", _SHAPE.hidden_size), ("k", key_value), ("v", key_value)):
            weights[f"model.layers.{layer}.self_attn.{name}_proj.bias"] = torch.zeros(size)
    favour(weights, {kept.index(token): times for token, times in MOVES.items()})
    for name, weight in weights.items():
        if name.endswith(("v_proj.weight", "o_proj.weight")):
            weight *= _ATTENTION_SCALE
    save_file({**weights, **_vision_weights(seed)}, folder / "model.safetensors", {"format": "pt"})


def _write_config(folder: Path) -> None:
    shape = _SHAPE
    tokens: Mapping[str, object] = {
        "bos_token_id": MESSAGE_START_ID,
        "eos_token_id": MESSAGE_END_ID,
        "pad_token_id": PAD_ID,
    }
    head_size = shape.hidden_size // shape.num_heads
    text = {
        "model_type": "qwen2_5_vl_text",
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "hidden_size": shape.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": shape.intermediate_size,
        "max_position_embeddings": shape.context_tokens,
        "num_attention_heads": shape.num_heads,
        "num_hidden_layers": shape.num_layers,
        "num_key_value_heads": shape.num_key_value_heads,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": shape.rope_theta,
            # Pairs of a head that turn with time, height and width.
            "mrope_section": [head_size // 8, 3 * head_size // 16, 3 * head_size // 16],
        },
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "vocab_size": shape.vocabulary_size,
        **tokens,
    }
    vision = {
        "model_type": "qwen2_5_vl_vision",
        "depth": _DEPTH,
        "fullatt_block_indexes": [_DEPTH - 1],
        "hidden_act": "silu",
        "hidden_size": _WIDTH,
        "in_channels": 3,
        "intermediate_size": _INNER,
        "num_heads": 2,
        "out_hidden_size": shape.hidden_size,
        "patch_size": PATCH,
        "spatial_merge_size": MERGED,
        "temporal_patch_size": FRAMES,
        "tokens_per_second": 4,
        "window_size": 4 * PATCH,
    }
    write_json(
        folder / "config.json",
        {
            "architectures": ["Qwen2_5_VLForConditionalGeneration"],
            "model_type": "qwen2_5_vl",
            "dtype": "float32",
            "image_token_id": _IMAGE,
            "video_token_id": _VIDEO,
            "vision_start_token_id": _START,
            "vision_end_token_id": _END,
            "tie_word_embeddings": True,
            "text_config": text,
            "vision_config": vision,
            **tokens,
        },
    )
    write_json(folder / "generation_config.json", tokens)


def _write_processor(folder: Path) -> None:
    side = PATCH * MERGED
    write_json(
        folder / "preprocessor_config.json",
        {
            "processor_class": "Qwen2_5_VLProcessor",
            "image_processor_type": "Qwen2VLImageProcessor",
            "min_pixels": 4 * side**2,
            "max_pixels": MOST_TOKENS * side**2,
            "patch_size": PATCH,
            "temporal_patch_size": FRAMES,
            "merge_size": MERGED,
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711],
        },
    )


def _vision_weights(seed: int) -> dict[str, torch.Tensor]:
    """Normal matrices, biases of zero and norms of one, under their Hugging Face names."""
    generator = torch.Generator().manual_seed(seed)
    together = _WIDTH * MERGED**2
    matrices = {
        "patch_embed.proj": (_WIDTH, 3, FRAMES, PATCH, PATCH),
        **{
            f"blocks.{block}.{name}": size
            for block in range(_DEPTH)
            for name, size in (
                ("attn.qkv", (3 * _WIDTH, _WIDTH)),
                ("attn.proj", (_WIDTH, _WIDTH)),
                ("mlp.gate_proj", (_INNER, _WIDTH)),
                ("mlp.up_proj", (_INNER, _WIDTH)),
                ("mlp.down_proj", (_WIDTH, _INNER)),
            )
        },
        "merger.mlp.0": (together, together),
        "merger.mlp.2": (_SHAPE.hidden_size, together),
    }
    weights: dict[str, torch.Tensor] = {}
    for name, size in matrices.items():
        weights[f"visual.{name}.weight"] = _PICTURE_SCALE * torch.randn(size, generator=generator)
        if not name.startswith("patch_embed"):
            weights[f"visual.{name}.bias"] = torch.zeros(size[0])
    norms = [f"blocks.{block}.norm{number}" for block in range(_DEPTH) for number in (1, 2)]
    return weights | {
        f"visual.{name}.weight": torch.ones(_WIDTH) for name in (*norms, "merger.ln_q")
    }
