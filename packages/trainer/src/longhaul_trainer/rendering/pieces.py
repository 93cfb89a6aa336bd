# pyright: reportUnknownMemberType=false
# (transformers annotates little of what it returns)
"""Tokens as the bytes that they stand for.

A token of a byte-level vocabulary may be a part of a character, so a reply is read as bytes, and
its text is told as soon as a character is whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from transformers import PreTrainedTokenizerBase


def token_pieces(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int]) -> dict[int, bytes]:
    """The bytes that each token stands for, so that a viewer needs no tokenizer.

    A token of a byte-level vocabulary may be a part of a character; its bytes are kept as
    they are. Special and other added tokens are given by their names.
    """
    ids = sorted(set(tokens))
    pieces = cast("list[str]", tokenizer.convert_ids_to_tokens(ids))
    added = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    bytes_by_name = _bytes_by_name(tokenizer)
    return {
        token: piece.encode() if token in added else bytes_by_name.get(piece) or _bytes_of(piece)
        for token, piece in zip(ids, pieces, strict=True)
    }


class Pieces(dict[int, bytes]):
    """The bytes of a tokenizer's tokens as a reply has them; each is looked up once.

    There are none for a token that is left out or that the tokenizer does not have.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, left_out: frozenset[int]) -> None:
        """Prepare; tokens are looked up when they are first met.

        Args:
            tokenizer: Whose tokens.
            left_out: Tokens that are no part of a text.
        """
        super().__init__(dict.fromkeys(left_out, b""))
        self._tokenizer = tokenizer
        self._added = {
            token: piece.content.encode() for token, piece in tokenizer.added_tokens_decoder.items()
        }
        self._bytes_by_name = _bytes_by_name(tokenizer)

    def __missing__(self, token: int) -> bytes:
        """Look a token up."""
        known = self[token] = self._look_up(token)
        return known

    def _look_up(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token]
        piece = cast("str | None", self._tokenizer.convert_ids_to_tokens(token))
        if piece is None:
            return b""
        return self._bytes_by_name.get(piece) or _bytes_of(piece)


def _bytes_by_name(tokenizer: PreTrainedTokenizerBase) -> dict[str, bytes]:
    """Tokens of single bytes, as SentencePiece names them; none in a byte-level vocabulary."""
    names = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}
    line_end = cast("int | None", tokenizer.convert_tokens_to_ids("<0x0A>"))
    known = line_end is not None and tokenizer.decode([line_end]) == "\n"
    return names if known else {}


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
