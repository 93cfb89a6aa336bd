# pyright: reportUnknownMemberType=false
# (the tokenizers package has no annotations)
"""The files of a Hugging Face folder, for models that we write ourselves.

Those that are built in have SmolLM2's tokenizer, or the first part of it; a small one has words of
its own. All but `tiny-vision` are Llamas, and all but that one and `tiny-tools` read the same chat
template. It adds nothing that was not in the messages: no default system message, and no token
before the first, so a prompt is what the memory composed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

if TYPE_CHECKING:
    import torch

PAD, MESSAGE_START, MESSAGE_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
PAD_ID, MESSAGE_START_ID, MESSAGE_END_ID = 0, 1, 2
NUM_SPECIAL_TOKENS = 17
"""The vocabulary begins with them; the 256 bytes and the merged tokens follow."""

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- endif -%}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaShape:
    """Sizes of a Llama."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_key_value_heads: int
    vocabulary_size: int
    context_tokens: int
    rope_theta: float
    ties_embeddings: bool = True
    """Whether the output shares its matrix with the embedding."""


def write_config(folder: Path, shape: LlamaShape, *, dtype: str) -> None:
    """Write `config.json` and `generation_config.json`.

    The end token is that of a message, and padding is another token, so a mask made by
    comparing with the padding id cannot lose the end of a reply.
    """
    tokens = {
        "bos_token_id": MESSAGE_START_ID,
        "eos_token_id": MESSAGE_END_ID,
        "pad_token_id": PAD_ID,
    }
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "dtype": dtype,
        "head_dim": shape.hidden_size // shape.num_heads,
        "hidden_act": "silu",
        "hidden_size": shape.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": shape.intermediate_size,
        "max_position_embeddings": shape.context_tokens,
        "mlp_bias": False,
        "num_attention_heads": shape.num_heads,
        "num_hidden_layers": shape.num_layers,
        "num_key_value_heads": shape.num_key_value_heads,
        "rms_norm_eps": 1e-5,
        "rope_theta": shape.rope_theta,
        "tie_word_embeddings": shape.ties_embeddings,
        "vocab_size": shape.vocabulary_size,
        **tokens,
    }
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", tokens)


def write_tokenizer(
    folder: Path,
    tokens: list[str],
    merges: list[tuple[str, str]],
    *,
    added: Sequence[str] = (),
    added_special: Sequence[str] = (),
    chat_template: str = CHAT_TEMPLATE,
) -> None:
    """As `save_tokenizer`, of a byte-level vocabulary that is given token by token.

    Args:
        folder: Where to.
        tokens: The vocabulary in the order of its ids, special tokens first.
        merges: Pairs of tokens in the order of their rank.
        added: Words that are one token each, whatever stands beside them; their ids follow the
            vocabulary's.
        added_special: Likewise, after those, and no text: decoding leaves them out.
        chat_template: In Jinja.
    """
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in tokens[:NUM_SPECIAL_TOKENS]]
    )
    tokenizer.add_tokens([AddedToken(word, special=False, normalized=False) for word in added])
    tokenizer.add_special_tokens(
        [AddedToken(word, special=True, normalized=False) for word in added_special]
    )
    save_tokenizer(folder, tokenizer, chat_template=chat_template)


def save_tokenizer(
    folder: Path, tokenizer: Tokenizer, *, chat_template: str = CHAT_TEMPLATE
) -> None:
    """Write `tokenizer.json`, its configuration and the chat template.

    Args:
        folder: Where to.
        tokenizer: Its vocabulary begins with `PAD`, `MESSAGE_START` and `MESSAGE_END`.
        chat_template: In Jinja.
    """
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": MESSAGE_START,
            "eos_token": MESSAGE_END,
            "pad_token": PAD,
            "unk_token": PAD,
            "clean_up_tokenization_spaces": False,
            "model_max_length": 8192,
        },
    )
    (folder / "chat_template.jinja").write_text(chat_template, encoding="utf-8")


def write_weights(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    """Write `model.safetensors`, tensors under their Hugging Face names."""
    from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike

    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write a JSON file that a person can read."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
