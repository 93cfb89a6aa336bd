"""Tokens, logprobs, entropies and text in the form the store keeps them, and back.

Token ids are packed as little-endian int32 and logprobs as little-endian float32:
`numpy.frombuffer(blob, "<i4")` reads them anywhere. An engine reports logprobs in
float32 at best, so nothing sampled is lost. Entropies, which nothing is computed from, are
little-endian float16 (`"<f2"`): 11 significant bits, an error of at most 0.004 nats below 16.
"""

import hashlib
import re
import sys
from array import array
from collections.abc import Sequence
from typing import Literal

import numpy as np

from longhaul_core.errors import StoreError
from longhaul_core.text import storable_text

__all__ = [
    "content_hash",
    "pack_entropies",
    "pack_logprobs",
    "pack_tokens",
    "shared_prefix_length",
    "storable_message",
    "unpack_entropies",
    "unpack_logprobs",
    "unpack_tokens",
]

_ESCAPE_CODE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


def pack_tokens(tokens: Sequence[int]) -> bytes:
    """Token ids as little-endian int32, four bytes each.

    Raises:
        StoreError: An id is outside [-2**31, 2**31).
    """
    try:
        return _packed("i", tokens)
    except OverflowError as error:
        raise StoreError(f"token ids must fit in 32 bits, got up to {max(tokens)}") from error


def pack_logprobs(logprobs: Sequence[float]) -> bytes:
    """Logprobs as little-endian float32, four bytes each."""
    return _packed("f", logprobs)


def pack_entropies(entropies: Sequence[float]) -> bytes:
    """Entropies in nats as little-endian float16, two bytes each."""
    return np.array(entropies, "<f2").tobytes()


def _packed(typecode: Literal["i", "f"], numbers: Sequence[int] | Sequence[float]) -> bytes:
    packed = array(typecode, numbers)  # three times as fast as numpy from a tuple
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_tokens(blob: bytes) -> tuple[int, ...]:
    """The token ids that `pack_tokens` packed."""
    return tuple(np.frombuffer(blob, "<i4").tolist())


def unpack_logprobs(blob: bytes) -> tuple[float, ...]:
    """The logprobs that `pack_logprobs` packed, rounded to float32."""
    return tuple(np.frombuffer(blob, "<f4").tolist())


def unpack_entropies(blob: bytes) -> tuple[float, ...]:
    """The entropies that `pack_entropies` packed, rounded to float16."""
    return tuple(np.frombuffer(blob, "<f2").tolist())


def shared_prefix_length(tokens: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many leading tokens two prompts have in common.

    Halves the range by comparing slices, which runs at C speed: about a microsecond
    for prompts of a thousand tokens.
    """
    low, high = 0, min(len(tokens), len(other))
    if tokens[:high] == other[:high]:
        return high
    while low < high:  # tokens[:low] is shared, tokens[:high + 1] is not
        middle = (low + high + 1) // 2
        if tokens[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def content_hash(*parts: str) -> str:
    """128 bits of BLAKE2b over the parts, as 32 hexadecimal digits.

    The parts are kept apart: `("ab", "c")` and `("a", "bc")` differ.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.hexdigest()


LONGEST_MESSAGE = 8_200
"""Characters of an error's message that the store keeps: what a session keeps of one, which ends
with the last of what a program printed."""


def storable_message(text: str) -> str:
    """An error's message as the store keeps it: plain, and no longer than `LONGEST_MESSAGE`.

    Escape codes of a terminal, which Ray writes around what a worker raised, are left out. Of a
    longer message the beginning and the end are kept: the first says what, the last often why.
    """
    plain = storable_text(_ESCAPE_CODE.sub("", text))
    if len(plain) <= LONGEST_MESSAGE:
        return plain
    half = (LONGEST_MESSAGE - 60) // 2  # 60 hold the sign between them
    left_out = len(plain) - 2 * half
    return f"{plain[:half]} … {left_out} characters left out … {plain[-half:]}"
