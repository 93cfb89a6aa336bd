"""Text that others wrote, made fit to be sent, stored and printed."""

import re

__all__ = ["shortened", "storable_text", "well_formed", "words_in"]

_HALF_PAIR = re.compile("[\ud800-\udfff]")
_WORD = re.compile(r"\w+(?:[-.']\w+)*")


def well_formed(text: str) -> str:
    r"""`text` as UTF-8 can carry it: half of a surrogate pair becomes U+FFFD.

    JSON may name such a half (`"\ud83d"`), and Python reads bytes of a file name that are not
    UTF-8 as one. Neither a socket nor a tokenizer nor a database takes it.
    """
    return text if text.isascii() else _HALF_PAIR.sub("\ufffd", text)


def shortened(text: str, limit: int) -> str:
    """The first `limit` characters of `text`, and how many there were if there were more."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters in all)"


def storable_text(text: str) -> str:
    """`text`, with what SQL text cannot hold replaced by a visible sign.

    A model can write anything: NUL, which PostgreSQL refuses, becomes U+2400, and half
    a surrogate pair, which is not UTF-8, becomes U+FFFD. The token ids keep the truth.
    """
    whole = well_formed(text)
    return whole.replace("\x00", "\u2400") if "\x00" in whole else whole


def words_in(text: str) -> list[str]:
    """Words and numbers of a text in their order, in lower case; signs are none."""
    return [word.casefold() for word in _WORD.findall(text)]
