"""Folders of models whose weights files have true headers and no weights, for what reads sizes."""

import json
from collections.abc import Mapping
from pathlib import Path

QWEN2_5_1_5B: Mapping[str, object] = {
    "model_type": "qwen2",
    "vocab_size": 151_936,
    "num_hidden_layers": 28,
    "hidden_size": 1_536,
    "intermediate_size": 8_960,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
QWEN2_5_7B: Mapping[str, object] = {
    "model_type": "qwen2",
    "vocab_size": 152_064,
    "num_hidden_layers": 28,
    "hidden_size": 3_584,
    "intermediate_size": 18_944,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
}
"""As their `config.json` says: 1,543,714,304 and 7,615,616,512 parameters are published."""

OF_RECIPES = {"Qwen2.5-1.5B-Instruct": QWEN2_5_1_5B, "Qwen2.5-7B-Instruct": QWEN2_5_7B}
"""By the name of the folder that a recipe wants."""


def write_headers(folder: Path, shapes: Mapping[str, list[int]], config: object) -> Path:
    """A Hugging Face folder with those tensors, by their headers."""
    folder.mkdir(parents=True)
    header = {name: {"dtype": "F32", "shape": shape} for name, shape in shapes.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    return folder


def write_qwen(folder: Path, config: Mapping[str, object]) -> Path:
    """A folder with every tensor of a Qwen2."""
    number = {key: value for key, value in config.items() if isinstance(value, int)}
    hidden, mlp, vocabulary = (
        number[key] for key in ("hidden_size", "intermediate_size", "vocab_size")
    )
    keys = number["num_key_value_heads"] * (hidden // number["num_attention_heads"])
    shapes = {"model.embed_tokens.weight": [vocabulary, hidden], "model.norm.weight": [hidden]}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = [vocabulary, hidden]
    for layer in range(number["num_hidden_layers"]):
        for name, shape in {
            "input_layernorm.weight": [hidden],
            "post_attention_layernorm.weight": [hidden],
            "self_attn.q_proj.weight": [hidden, hidden],
            "self_attn.q_proj.bias": [hidden],
            "self_attn.k_proj.weight": [keys, hidden],
            "self_attn.k_proj.bias": [keys],
            "self_attn.v_proj.weight": [keys, hidden],
            "self_attn.v_proj.bias": [keys],
            "self_attn.o_proj.weight": [hidden, hidden],
            "mlp.gate_proj.weight": [mlp, hidden],
            "mlp.up_proj.weight": [mlp, hidden],
            "mlp.down_proj.weight": [hidden, mlp],
        }.items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    return write_headers(folder, shapes, config)
