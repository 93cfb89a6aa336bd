# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# (transformers annotates little of what it returns)
"""Text to token ids, by the fastest program that finds the same ones.

`fastokens` reads the same `tokenizer.json` as transformers' own backend, and takes about an eighth
of its time. Whether it finds the same tokens is tried on each tokenizer; one that it does not read,
or reads otherwise, stays with transformers (docs/decisions/0033-prompts-as-tokens.md).
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple, cast

import fastokens
from transformers import PreTrainedTokenizerBase, TokenizersBackend

from longhaul_trainer.rendering.syntax import Tokenizer

__all__ = ["Encode", "TextEncoder", "backend_of", "first_difference", "probes"]

logger = logging.getLogger(__name__)

Encode = Callable[[str], Sequence[int]]
"""Tokens of a text."""

_PIECES = (
    "You are in a room. Go north, then take 3 of the 12345 lamps.",
    "I'd say it's WE'LL or they've; don't, DON'T, O'Neill's",
    "  two,   three,\ttab,\n\nlines\r\n \n  and the end  ",
    '{"name": "move", "arguments": {"where": [1.5e-3, null, true]}}',
    "```python\ndef f(x):\n    return x[::-1] != None\n```",
    "https://example.org/a-b_c?d=%20e&f=g#h user@host.example C:\\path\\to $HOME --flag=0x1F",
    "Grüße, naïve, ÅNGSTRÖM, İstanbul, ſtraße, ﬁne, Ａｂｃ, ½ ² Ⅷ ١٢٣ १२",
    "e\u0301 and \u00e9, \u1112\u1161\u11ab and \ud55c, A\u030a and \u212b",
    "汉字かなカナ한국어, العربية עברית हिन्दी ไทย Ελληνικά русский",
    "😀👩‍👩‍👧‍👦🇩🇪👍🏽 → ∑ ≤ € — … “quoted” ‘so’ «too»",
    "\u200b\u200d\ufeff\u00a0\u2028\u3000\x00\x1f\x7f\ufffd\U0010ffff",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa================--------........!!!!????",
    "<|im_start|>user <think>\n</think><tool_call></s>[INST]<|im_|>end|>",
)
"""What tokenizers treat differently: spaces, numbers, cases, forms of a letter, scripts, marks."""
_LONG_CHARACTERS = 100_000
"""From some length on `fastokens` divides a text among threads."""


class _Tried(NamedTuple):
    """What came of comparing the two programs on one tokenizer."""

    program: fastokens.Tokenizer | None
    """None where transformers tokenizes, for this reason, which is logged at this level."""
    reason: str = ""
    level: int = logging.INFO


_TRYING = threading.Lock()
_MOST_TRIED = 4
_TRIED: dict[bytes, _Tried] = {}
"""By a hash of the tokenizer's file, of those that were tried last."""


class TextEncoder:
    """Makes text into a tokenizer's tokens, as its `encode` does without special tokens.

    What is added to the tokenizer afterwards is not known.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Of one tokenizer; to compare the two programs takes some tenths of a second, once."""
        self._tokenizer = tokenizer
        self._fast: fastokens.Tokenizer | None = None
        backend = backend_of(tokenizer)
        if backend is None or backend.truncation is not None or backend.padding is not None:
            return
        written = backend.to_str()
        digest = hashlib.blake2b(written.encode()).digest()
        with _TRYING:
            tried = _TRIED.get(digest)
            if tried is None:
                tried = self._try(written, backend)
                if len(_TRIED) == _MOST_TRIED:
                    del _TRIED[next(iter(_TRIED))]
                _TRIED[digest] = tried
        self._fast = tried.program
        if tried.program is None:
            name = str(tokenizer.name_or_path or "the model")
            logger.log(
                tried.level, "prompts of %s are tokenized by transformers: %s", name, tried.reason
            )

    def _try(self, written: str, backend: Tokenizer) -> _Tried:
        """Read the tokenizer's file with `fastokens`, and compare the two programs."""
        try:
            self._fast = fastokens.Tokenizer.from_json_str(written)
        except ValueError as error:
            return _Tried(None, str(error), logging.INFO)

        def known(text: str) -> list[int]:
            return backend.encode(text, add_special_tokens=False).ids

        different = first_difference(self, known, texts=probes(self._tokenizer))
        if different is None:
            return _Tried(self._fast)
        return _Tried(None, f"fastokens reads {different[:80]!r} otherwise", logging.WARNING)

    @property
    def uses_fastokens(self) -> bool:
        """Whether `fastokens` reads the tokenizer, and as transformers does."""
        return self._fast is not None

    def __call__(self, text: str) -> list[int]:
        """The tokens of a text; names of special tokens are those."""
        if self._fast is not None:
            try:
                return self._fast.encode(text).ids
            except ValueError:  # a byte that the vocabulary lacks; transformers leaves it out
                pass
        return self._tokenizer.encode(text, add_special_tokens=False)


def first_difference(one: Encode, other: Encode, *, texts: Iterable[str]) -> str | None:
    """The first text of which two programs make different tokens."""
    return next((text for text in texts if one(text) != other(text)), None)


def probes(tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    """Texts by which two programs for one tokenizer are compared, the last one long."""
    yield from _PIECES
    added = [piece.content for piece in tokenizer.added_tokens_decoder.values()]
    for name in added:
        yield f"{name}a {name} {name}\n{name}{name[:-1]}"
    whole = "\n".join((*_PIECES, *added))
    yield (whole * (_LONG_CHARACTERS // len(whole) + 1))[:_LONG_CHARACTERS]


def backend_of(tokenizer: PreTrainedTokenizerBase) -> Tokenizer | None:
    """The Rust tokenizer that `encode` calls; None where there is none, or `encode` does more."""
    if not isinstance(tokenizer, TokenizersBackend):
        return None
    kinds = takewhile(lambda kind: kind is not TokenizersBackend, type(tokenizer).mro())
    has_own = any({"encode", "_encode_plus"} & vars(kind).keys() for kind in kinds)
    return None if has_own else cast("Tokenizer", tokenizer).backend_tokenizer
