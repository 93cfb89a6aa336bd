"""Text as the index keeps it, and what people type as the same terms.

Both databases get text that is already cut into terms, so that they find the same: words in lower
case without accents, and each character of a script that puts no spaces between words (Chinese,
Japanese, Thai …) by itself. A word of such a script is then a phrase of its characters, found
within a longer run of them, at any length; trigrams would find none of two characters, and take
three times the space.
"""

import re
import unicodedata
from typing import NamedTuple

from longhaul_core.text import storable_text

__all__ = ["Place", "find_terms", "query_phrases", "search_terms"]

_ASCII = "".join(chr(n).lower() if chr(n).isalnum() else " " for n in range(128))
_ACCENTS = re.compile("[\u0300-\u036f]")
_WITHOUT_SPACES = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u30ff"
    "\u3105-\u312f\u3131-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, Chinese, Japanese; and Korean, whose particles stick to the word."""
# A vowel sign or a tone mark by itself is no term: neither database would take it for a word.
_TERM = re.compile(f"(?=[^\\W_])[{_WITHOUT_SPACES}]|(?:(?![{_WITHOUT_SPACES}])[^\\W_])+")
_QUERY = re.compile(r'"([^"]*)"|(\S+)')


class Place(NamedTuple):
    """Characters of a text, from `first` to before `last`."""

    first: int
    last: int


def search_terms(text: str) -> str:
    """The terms of a text, with spaces between."""
    if text.isascii():
        return text.translate(_ASCII)
    return " ".join(_TERM.findall(_plain(text)))


def query_phrases(words: str) -> list[list[str]]:
    """What a person typed: each word, or what stands between double quotes, as a phrase of terms.

    A word of several terms (`sign-in`, 地图) is found where these follow each other.
    """
    found = [quoted or word for quoted, word in _QUERY.findall(storable_text(words))]
    phrases = [search_terms(each).split() for each in found]
    return [phrase for phrase in phrases if phrase]


def find_terms(text: str, phrases: list[list[str]]) -> list[Place]:
    """Where phrases stand in a text, in order; those that overlap an earlier one are left out."""
    terms: list[str] = []
    places: list[Place] = []
    for match in _TERM.finditer(text):
        of_match = search_terms(match[0]).split()  # ½ has two
        terms += of_match
        places += [Place(*match.span())] * len(of_match)
    found: list[Place] = []
    for number, (first, _) in enumerate(places):
        if found and first < found[-1].last:
            continue
        for phrase in phrases:
            if terms[number : number + len(phrase)] == phrase:
                found.append(Place(first, places[number + len(phrase) - 1].last))
                break
    return found


def _plain(text: str) -> str:
    """In lower case, without accents, every character in its usual form."""
    taken_apart = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFC", taken_apart).lower()
