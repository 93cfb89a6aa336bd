# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# (the tokenizers package has no annotations)
"""A small Llama with random weights, whose vocabulary is made of the words of some texts.

With such a vocabulary a short observation has few tokens, so that a policy which two processor
cores train in minutes can learn episodes of fifty steps.
"""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from longhaul_trainer.models.folder import (
    MESSAGE_END,
    MESSAGE_START,
    PAD,
    LlamaShape,
    save_tokenizer,
    write_config,
    write_weights,
)
from longhaul_trainer.models.tiny import random_weights

__all__ = ["write_small_model"]

CONTEXT_TOKENS = 4096
HEAD_SIZE = 32
"""The smallest that vLLM has attention for on a CPU."""


def write_small_model(
    folder: Path,
    texts: Iterable[str],
    *,
    num_layers: int,
    hidden_size: int,
    vocabulary_size: int,
    seed: int = 0,
) -> None:
    """Write the model as a Hugging Face folder, weights in float32.

    Args:
        folder: Exists and is empty.
        texts: What the model will read and write; words that they repeat become a token each. Any
            other text has tokens too, down to its bytes.
        num_layers: Of the Llama.
        hidden_size: A multiple of `HEAD_SIZE`.
        vocabulary_size: Most tokens; 256 bytes and three marks are among them.
        seed: Of the weights; the same seed and texts give the same files.
    """
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[PAD, MESSAGE_START, MESSAGE_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    roles = ("system", "user", "assistant")
    tokenizer.train_from_iterator([*texts, *(f"{role}\n" for role in roles for _ in "12")], trainer)
    shape = LlamaShape(
        num_layers=num_layers,
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_heads=hidden_size // HEAD_SIZE,
        num_key_value_heads=hidden_size // HEAD_SIZE,
        vocabulary_size=tokenizer.get_vocab_size(),
        context_tokens=CONTEXT_TOKENS,
        rope_theta=10000.0,
    )
    write_config(folder, shape, dtype="float32")
    save_tokenizer(folder, tokenizer)
    write_weights(folder, random_weights(shape, seed=seed))
