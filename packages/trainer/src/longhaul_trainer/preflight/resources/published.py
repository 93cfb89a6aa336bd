"""Shapes of models whose weights are not on this machine: by a `config.json`, here or published."""

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["LEAST_PIXELS", "PUBLISHED", "published_config", "shapes_of"]

_QWEN2_5: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "max_position_embeddings": 32_768,
    "num_hidden_layers": 28,
}
PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "Qwen2.5-1.5B-Instruct": _QWEN2_5
    | {
        "vocab_size": 151_936,
        "hidden_size": 1_536,
        "intermediate_size": 8_960,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "Qwen2.5-7B-Instruct": _QWEN2_5
    | {
        "vocab_size": 152_064,
        "hidden_size": 3_584,
        "intermediate_size": 18_944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
    },
    "Qwen3-VL-2B-Instruct": {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "tie_word_embeddings": True,
        "text_config": {
            "model_type": "qwen3_vl_text",
            "max_position_embeddings": 262_144,
            "num_hidden_layers": 28,
            "vocab_size": 151_936,
            "hidden_size": 2_048,
            "intermediate_size": 6_144,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "tie_word_embeddings": True,
        },
        "vision_config": {
            "depth": 24,
            "hidden_size": 1_024,
            "intermediate_size": 4_096,
            "out_hidden_size": 2_048,
            "patch_size": 16,
            "temporal_patch_size": 2,
            "in_channels": 3,
            "spatial_merge_size": 2,
            "num_position_embeddings": 2_304,
            "deepstack_visual_indexes": [5, 11, 17],
        },
    },
}
"""Of the models that the files in `configs/machines` name, by the last part of their path: what
their `config.json` says."""
LEAST_PIXELS = {"Qwen3-VL-2B-Instruct": 65_536}
"""Of a picture, to which a smaller one is enlarged: what their `preprocessor_config.json` says."""

_BIASED = frozenset({"qwen2"})
"""Families whose queries, keys and values have biases; the others of `shapes_of` have none."""
_NORMED = frozenset({"qwen3", "qwen3_vl_text"})
"""Families that norm the queries and keys of each head."""
_FAMILIES = frozenset({"llama", "mistral"}) | _BIASED | _NORMED


def published_config(path: str) -> Mapping[str, Any] | None:
    """What the `config.json` of a published model says; None of one that is not known here."""
    return PUBLISHED.get(Path(path).name)


def shapes_of(config: Mapping[str, Any]) -> Generator[tuple[str, list[int]]]:
    """Names and shapes of the tensors of a model.

    Raises:
        KeyError: The configuration lacks a number.
        ValueError: It is of a family whose tensors are not known here.
    """
    if config["model_type"] != "qwen3_vl":
        yield from _shapes_of_text(config, "model.")
        return
    yield from _shapes_of_text(config["text_config"], "model.language_model.")
    yield from _shapes_of_vision(config["vision_config"], "model.visual.")


def _shapes_of_text(config: Mapping[str, Any], prefix: str) -> Generator[tuple[str, list[int]]]:
    family = config["model_type"]
    if family not in _FAMILIES:
        raise ValueError(f"the tensors of a {family!r} model are not known without its weights")
    hidden, mlp, vocabulary = (
        config[name] for name in ("hidden_size", "intermediate_size", "vocab_size")
    )
    heads = config["num_attention_heads"]
    head = config.get("head_dim") or hidden // heads
    queries, keys = heads * head, config.get("num_key_value_heads", heads) * head
    yield f"{prefix}embed_tokens.weight", [vocabulary, hidden]
    yield f"{prefix}norm.weight", [hidden]
    if not config.get("tie_word_embeddings", False):
        yield "lm_head.weight", [vocabulary, hidden]
    of_a_layer = {
        "input_layernorm.weight": [hidden],
        "post_attention_layernorm.weight": [hidden],
        "self_attn.q_proj.weight": [queries, hidden],
        "self_attn.k_proj.weight": [keys, hidden],
        "self_attn.v_proj.weight": [keys, hidden],
        "self_attn.o_proj.weight": [hidden, queries],
        "mlp.gate_proj.weight": [mlp, hidden],
        "mlp.up_proj.weight": [mlp, hidden],
        "mlp.down_proj.weight": [hidden, mlp],
    }
    if family in _BIASED:
        of_a_layer |= {
            "self_attn.q_proj.bias": [queries],
            "self_attn.k_proj.bias": [keys],
            "self_attn.v_proj.bias": [keys],
        }
    if family in _NORMED:
        of_a_layer |= {"self_attn.q_norm.weight": [head], "self_attn.k_norm.weight": [head]}
    for layer in range(config["num_hidden_layers"]):
        for name, shape in of_a_layer.items():
            yield f"{prefix}layers.{layer}.{name}", shape


def _shapes_of_vision(config: Mapping[str, Any], prefix: str) -> Generator[tuple[str, list[int]]]:
    """Of Qwen3-VL's part that reads pictures."""
    hidden, mlp = config["hidden_size"], config["intermediate_size"]
    merged = hidden * config["spatial_merge_size"] ** 2
    patch = [config["temporal_patch_size"], config["patch_size"], config["patch_size"]]
    yield f"{prefix}patch_embed.proj.weight", [hidden, config["in_channels"], *patch]
    yield f"{prefix}patch_embed.proj.bias", [hidden]
    yield f"{prefix}pos_embed.weight", [config["num_position_embeddings"], hidden]
    layers = {
        "attn.qkv": (hidden, 3 * hidden),
        "attn.proj": (hidden, hidden),
        "mlp.linear_fc1": (hidden, mlp),
        "mlp.linear_fc2": (mlp, hidden),
    }
    parts: dict[str, tuple[tuple[str, ...], int, dict[str, tuple[int, int]]]] = {
        f"blocks.{number}": (("norm1", "norm2"), hidden, layers)
        for number in range(config["depth"])
    }
    merger = {
        "linear_fc1": (merged, merged),
        "linear_fc2": (merged, config["out_hidden_size"]),
    }
    parts["merger"] = (("norm",), hidden, merger)
    for number, _ in enumerate(config["deepstack_visual_indexes"]):
        parts[f"deepstack_merger_list.{number}"] = (("norm",), merged, merger)
    for part, (norms, width, linear) in parts.items():
        for name in norms:
            yield f"{prefix}{part}.{name}.weight", [width]
            yield f"{prefix}{part}.{name}.bias", [width]
        for name, (inputs, outputs) in linear.items():
            yield f"{prefix}{part}.{name}.weight", [outputs, inputs]
            yield f"{prefix}{part}.{name}.bias", [outputs]
