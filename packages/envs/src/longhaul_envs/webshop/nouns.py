"""Which words of a product's title are nouns: what the reward's title score counts.

The authors take the nouns that spaCy's `en_core_web_lg` finds (`spacy:en_core_web_lg`). The
default here needs no model: every word that is not known to be something else.
"""

import importlib
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from longhaul_core.components import find_component
from longhaul_core.errors import ConfigError

__all__ = ["NounFinder", "noun_finder", "words_but_modifiers"]

NounFinder = Callable[[str], Sequence[str]]
"""From a title to its nouns in lower case, a word as often as it stands there."""

_WORD = re.compile(r"[^\W\d_]+(?:'s)?")
_MODIFIERS_TEXT = (
    "a about after all also an and any are as at be by can each every for from has have if in "
    "into is it its more most new no non not of off on one only or other our out over per plus so "
    "than that the their this to too up us use very via was we with without you your adjustable "
    "big black blue brown clean clear cold comfortable cool cute dark deep double dry dual "
    "durable easy electric extra fast fine flat free fresh full gold good great green grey gray "
    "hard heavy high hot large light little long loose low mini modern multi natural nice old "
    "orange organic perfect pink portable pure purple quick raw real red rich round safe sheer "
    "short silver single slim small smart soft solid square stainless strong sweet thick thin "
    "tiny top ultra vintage warm white wide wild wireless yellow young"
)
_MODIFIERS = frozenset(_MODIFIERS_TEXT.split())
_ENDINGS = ("able", "ible", "ful", "less", "ous", "ical", "ly", "ish", "est", "proof", "resistant")
_MIN_LETTERS = 2
_NOUN_TAGS = frozenset(("NOUN", "PROPN"))


def noun_finder(name: str) -> NounFinder:
    """The finder that the option `nouns` names.

    Args:
        name: `words`; `spacy:MODEL`; or `package.module:name` of one's own.

    Raises:
        ConfigError: If it cannot be had.
    """
    library, _, model = name.partition(":")
    if library == "spacy" and model:
        return _spacy_finder(model)
    return find_component(name, {"words": words_but_modifiers}, setting="nouns", takes=["title"])


def words_but_modifiers(title: str) -> list[str]:
    """Words of at least two letters that are neither in a short list nor end like an adjective."""
    words = (word.removesuffix("'s") for word in _WORD.findall(title.lower()))
    return [
        word
        for word in words
        if len(word) >= _MIN_LETTERS and word not in _MODIFIERS and not word.endswith(_ENDINGS)
    ]


@cache
def _spacy_finder(model: str) -> NounFinder:
    try:
        spacy: Any = importlib.import_module("spacy")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"nouns = 'spacy:{model}' needs spaCy, which is not installed; `pip install spacy`, or "
            "leave nouns = 'words'"
        ) from error
    try:
        parse = spacy.load(model)
    except OSError as error:
        raise ConfigError(
            f"nouns = 'spacy:{model}': spaCy has no such model; `python -m spacy download {model}`"
        ) from error
    return lambda title: [token.text.lower() for token in parse(title) if token.pos_ in _NOUN_TAGS]
