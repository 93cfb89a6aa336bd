"""Queries that an instruction suggests, from its words alone."""

import re

__all__ = ["proposed_queries"]

_PRICE = ", and price lower than"
_WORD = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*")
_COMMON_WORDS = (
    "a about am an and any are as at be but can for find from get has have i i'd i'm in is it let "
    "like looking me my need of on or please should show some that the to want which with would"
)
_COMMON = frozenset(_COMMON_WORDS.split())


def proposed_queries(instruction: str, count: int) -> list[str]:
    """At most `count` different queries: all words that tell something, then parts of them."""
    words = [
        word
        for word in _WORD.findall(instruction.partition(_PRICE)[0].lower())
        if word not in _COMMON
    ]
    half = (len(words) + 1) // 2
    parts = [words, words[:half], words[half:], words[:2], words[:3], words[-2:], words[-3:]]
    queries = [" ".join(part) for part in parts if part]
    return list(dict.fromkeys([*queries, *words]))[:count]
