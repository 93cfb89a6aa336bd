"""Tests for `longhaul_core.store.packing`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.errors import StoreError
from longhaul_core.store.packing import (
    LONGEST_MESSAGE,
    content_hash,
    pack_entropies,
    pack_logprobs,
    pack_tokens,
    shared_prefix_length,
    storable_message,
    unpack_entropies,
    unpack_logprobs,
    unpack_tokens,
)
from longhaul_core.text import storable_text

tokens = st.lists(st.integers(-(2**31), 2**31 - 1)).map(tuple)


@given(tokens)
def test_tokens_come_back(ids: tuple[int, ...]) -> None:
    assert unpack_tokens(pack_tokens(ids)) == ids


def test_tokens_are_little_endian_int32() -> None:
    # 258 = 0x0102
    assert pack_tokens((258, -1)) == b"\x02\x01\x00\x00\xff\xff\xff\xff"


def test_logprobs_are_little_endian_float32() -> None:
    # -0.5 is sign 1, exponent 126, mantissa 0: 0xBF000000
    assert pack_logprobs((-0.5,)) == b"\x00\x00\x00\xbf"


@given(st.lists(st.floats(width=32, allow_nan=False)).map(tuple))
def test_logprobs_of_an_engine_come_back_exactly(logprobs: tuple[float, ...]) -> None:
    assert unpack_logprobs(pack_logprobs(logprobs)) == logprobs


def test_entropies_are_little_endian_float16() -> None:
    # 1.5 is sign 0, exponent 15, mantissa 512: 0x3E00
    assert pack_entropies((1.5, 0.0)) == b"\x00\x3e\x00\x00"


@given(st.lists(st.floats(0, 16)).map(tuple))
def test_entropies_come_back_to_a_few_thousandths_of_a_nat(entropies: tuple[float, ...]) -> None:
    back = unpack_entropies(pack_entropies(entropies))
    assert back == pytest.approx(entropies, rel=2**-11, abs=2**-25)
    assert all(abs(a - b) <= 0.004 for a, b in zip(entropies, back, strict=True))


def test_a_token_beyond_32_bits_is_refused() -> None:
    with pytest.raises(StoreError, match="must fit in 32 bits, got up to 2147483648"):
        pack_tokens((1, 2**31))


@given(tokens, tokens, tokens)
def test_the_shared_prefix_is_what_counting_gives(
    start: tuple[int, ...], one: tuple[int, ...], other: tuple[int, ...]
) -> None:
    one, other = start + one, start + other
    counted = 0
    while counted < min(len(one), len(other)) and one[counted] == other[counted]:
        counted += 1
    assert shared_prefix_length(one, other) == counted


def test_numpy_reads_what_is_packed() -> None:
    assert np.frombuffer(pack_tokens((3, 1, 4)), "<i4").tolist() == [3, 1, 4]


def test_hashes_keep_parts_apart() -> None:
    assert content_hash("ab", "c") != content_hash("a", "bc")
    assert content_hash("ab") == content_hash("ab")
    assert len(content_hash("\ud800")) == 32


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00")))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert storable_text(text) == text


def test_what_is_not_text_becomes_visible() -> None:
    assert storable_text("a\x00b\udfffc") == "a\u2400b\ufffdc"


def test_a_message_is_kept_without_the_escape_codes_of_a_terminal() -> None:
    told = "\x1b[36mray::save()\x1b[39m: \x1b]8;;file\x07disk\x1b]8;;\x07 \x1b[1;31mfull\x1b[0m"

    assert storable_message(told) == "ray::save(): disk full"


def test_a_message_is_cut_to_the_stated_length_and_keeps_both_ends() -> None:
    whole = "first " + "x" * LONGEST_MESSAGE + " last"

    kept = storable_message(whole)

    assert kept.startswith("first ")
    assert kept.endswith(" last")
    assert LONGEST_MESSAGE - 60 < len(kept) <= LONGEST_MESSAGE
    shown = kept.count("x") + len("first  last")
    assert f" … {len(whole) - shown} characters left out … " in kept
    assert storable_message("x" * LONGEST_MESSAGE) == "x" * LONGEST_MESSAGE
