"""A random Llama of 0.3 million parameters, for smoke runs.

It has SmolLM2's architecture, chat template and the first 4,096 tokens of its
vocabulary, so everything around the model runs as it does with the real one while
the model itself costs next to nothing. It knows nothing and is not meant to learn.
"""

from pathlib import Path

import gguf
import torch
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike

from longhaul_trainer.models.folder import LlamaShape, write_config, write_tokenizer
from longhaul_trainer.models.smollm2 import packaged_gguf, packaged_vocabulary

SHAPE = LlamaShape(
    num_layers=2,
    hidden_size=64,
    intermediate_size=128,
    num_heads=2,
    num_key_value_heads=1,
    vocabulary_size=4096,
    context_tokens=4096,
    rope_theta=10000.0,
)


def write_tiny_model(folder: Path, *, seed: int = 0) -> None:
    """Write the model as a Hugging Face folder, weights in float32.

    Args:
        folder: Exists and is empty.
        seed: Of the weights; the same seed gives the same file.
    """
    write_config(folder, SHAPE, dtype="float32")
    tokens, merges = packaged_vocabulary(gguf.GGUFReader(packaged_gguf()))
    kept = tokens[: SHAPE.vocabulary_size]
    known = set(kept)
    # A merge of two tokens makes a third; its id is higher, so cutting the list by id
    # leaves a tokenizer that is whole.
    write_tokenizer(folder, kept, [pair for pair in merges if "".join(pair) in known])
    save_file(random_weights(SHAPE, seed=seed), folder / "model.safetensors", {"format": "pt"})


def random_weights(shape: LlamaShape, *, seed: int) -> dict[str, torch.Tensor]:
    """Normal weights of deviation 0.02 and norms of one, under their Hugging Face names."""
    generator = torch.Generator().manual_seed(seed)
    hidden, inner = shape.hidden_size, shape.intermediate_size
    key_value = hidden // shape.num_heads * shape.num_key_value_heads
    sizes = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (key_value, hidden),
        "self_attn.v_proj": (key_value, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }

    def normal(size: tuple[int, int]) -> torch.Tensor:
        return torch.randn(size, generator=generator) * 0.02

    weights = {"model.embed_tokens.weight": normal((shape.vocabulary_size, hidden))}
    for layer in range(shape.num_layers):
        for name, size in sizes.items():
            weights[f"model.layers.{layer}.{name}.weight"] = normal(size)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{layer}.{name}.weight"] = torch.ones(hidden)
    return {**weights, "model.norm.weight": torch.ones(hidden)}
