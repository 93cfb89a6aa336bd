"""Messages to tokens by the model's own chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from longhaul_core.types import Message


class ChatTemplateRenderer:
    """Renders with the tokenizer's chat template, and a prefix that the reply starts from."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, reply_prefix: str = "") -> None:
        self._tokenizer: Any = tokenizer
        self._prefix: list[int] = tokenizer.encode(reply_prefix, add_special_tokens=False)

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """See `Renderer.render`."""
        chat = [{"role": message.role, "content": message.content} for message in messages]
        tokens = self._tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return (*tokens, *self._prefix)

    def decode(self, tokens: Sequence[int]) -> str:
        """See `Renderer.decode`."""
        return self._tokenizer.decode(list(tokens), skip_special_tokens=True)


def token_pieces(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int]) -> dict[int, bytes]:
    """The bytes that each token stands for, so that a viewer needs no tokenizer.

    A token of a byte-level vocabulary may be a part of a character; its bytes are kept as
    they are. Special tokens are given by their names.
    """
    ids = sorted(set(tokens))
    pieces = cast("list[str]", tokenizer.convert_ids_to_tokens(ids))
    special = set(tokenizer.all_special_ids)
    return {
        token: piece.encode() if token in special else _bytes_of(piece)
        for token, piece in zip(ids, pieces, strict=True)
    }


def _byte_alphabet() -> dict[str, int]:
    """The printable stand-ins that byte-level BPE writes for bytes (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES = _byte_alphabet()


def _bytes_of(piece: str) -> bytes:
    if all(character in _BYTES for character in piece):
        return bytes(_BYTES[character] for character in piece)
    return piece.replace("\u2581", " ").encode()  # SentencePiece marks a space so
