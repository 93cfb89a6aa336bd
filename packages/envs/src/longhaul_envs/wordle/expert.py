"""Wordle's expert: the guess that parts the answers still possible into the most even lots.

It knows the list of answers, and of this one only what the guesses told.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from longhaul_envs.wordle.words import WordList, mark_codes, marks

__all__ = ["next_guess"]

_MAX_POOL = 1500
"""Guesses that are compared at the start, where every answer is possible."""


def next_guess(words: WordList, told: Sequence[tuple[str, str]], *, guesses_left: int) -> str:
    """What to guess next.

    Args:
        words: Of the game.
        told: Guesses so far, each with its marks.
        guesses_left: At least 1; the last one is spent on a word that may be the answer.

    Returns:
        A word of `words.guesses`: the first in the alphabet among equally good ones.
    """
    possible = [
        word for word in words.answers if all(marks(guess, word) == told_ for guess, told_ in told)
    ]
    if len(possible) <= 2 or guesses_left == 1:
        return possible[0]
    if not told:
        stride = -(-len(words.answers) // _MAX_POOL)
        return _most_telling(words.answers[::stride], words.answers)
    return _most_telling(words.guesses, tuple(possible))


@lru_cache(maxsize=1024)
def _most_telling(pool: tuple[str, ...], possible: tuple[str, ...]) -> str:
    """The word of `pool` whose marks have the highest entropy over `possible`.

    Among equals a possible answer comes first.
    """
    codes = mark_codes(pool, possible)
    answers = frozenset(possible)

    def worth(row: int) -> tuple[float, bool]:
        counts = np.bincount(codes[row])
        shares = counts[counts > 0] / len(possible)
        return round(float(-(shares * np.log2(shares)).sum()), 9), pool[row] in answers

    return pool[max(range(len(pool)), key=worth)]
