"""Shapes of models whose weights are not on this machine: by a `config.json`, here or published."""

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["PUBLISHED", "published_config", "shapes_of"]

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
}
"""Of the models that the files in `configs/machines` name, by the last part of their path: what
their `config.json` says."""

_BIASED = frozenset({"qwen2"})
"""Families whose queries, keys and values have biases; the others of `shapes_of` have none."""
_NORMED = frozenset({"qwen3"})
"""Families that norm the queries and keys of each head."""
_FAMILIES = frozenset({"llama", "mistral"}) | _BIASED | _NORMED


def published_config(path: str) -> Mapping[str, Any] | None:
    """What the `config.json` of a published model says; None of one that is not known here."""
    return PUBLISHED.get(Path(path).name)


def shapes_of(config: Mapping[str, Any]) -> Generator[tuple[str, list[int]]]:
    """Names and shapes of the tensors of a model that reads text.

    Raises:
        KeyError: The configuration lacks a number.
        ValueError: It is of a family whose tensors are not known here.
    """
    family = config["model_type"]
    if family not in _FAMILIES:
        raise ValueError(f"the tensors of a {family!r} model are not known without its weights")
    hidden, mlp, vocabulary = (
        config[name] for name in ("hidden_size", "intermediate_size", "vocab_size")
    )
    heads = config["num_attention_heads"]
    head = config.get("head_dim") or hidden // heads
    queries, keys = heads * head, config.get("num_key_value_heads", heads) * head
    yield "model.embed_tokens.weight", [vocabulary, hidden]
    yield "model.norm.weight", [hidden]
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
            yield f"model.layers.{layer}.{name}", shape
