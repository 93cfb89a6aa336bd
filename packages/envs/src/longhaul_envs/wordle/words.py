"""Wordle's words, and what a guess tells of an answer."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from longhaul_core.errors import ConfigError
from longhaul_envs.task_lists import content_hash

__all__ = ["NUM_LETTERS", "WordList", "mark_codes", "marks", "word_list"]

NUM_LETTERS = 5
_MIN_WORDS, _MAX_WORDS = 10, 20_000
_GUESSES_AT_ONCE = 256
"""That are compared in one array, which bounds its memory."""


@dataclass(frozen=True, slots=True)
class WordList:
    """What may be guessed, and what may have to be found."""

    guesses: tuple[str, ...]
    """In order of the alphabet; the answers are among them."""
    answers: tuple[str, ...]
    data_hash: str
    """Of both."""

    @property
    def known(self) -> frozenset[str]:
        """The guesses, as a set."""
        return _as_set(self.guesses)


@cache
def _as_set(words: tuple[str, ...]) -> frozenset[str]:
    return frozenset(words)


@cache
def word_list(path: str = "") -> WordList:
    """The words of a file, or of the package where none is named.

    Args:
        path: A text file with a word of five letters a line. Lines of other lengths are left out,
            and so are those that begin with `#`. A `*` behind a word makes it an answer; in a
            file without any, every word is one.

    Raises:
        ConfigError: There is no such file, a word has other characters than a to z, or there are
            fewer than 10 words or more than 20,000.
    """
    file = Path(path) if path else Path(__file__).with_name("words.txt")
    try:
        lines = file.read_text(encoding="utf-8").lower().splitlines()
    except OSError as error:
        raise ConfigError(f"words must name a text file that can be read, got {path!r}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"words must name a text file in UTF-8, {path!r} is none") from error
    stripped = (line.strip() for line in lines if not line.startswith("#"))
    marked = {line for line in stripped if len(line.rstrip("*")) == NUM_LETTERS}
    guesses = sorted({line.rstrip("*") for line in marked})
    strays = [word for word in guesses if not (word.isascii() and word.isalpha())]
    if strays:
        raise ConfigError(f"words must have the letters a to z alone, {path!r} has {strays[0]!r}")
    if not _MIN_WORDS <= len(guesses) <= _MAX_WORDS:
        raise ConfigError(
            f"words must be from {_MIN_WORDS} to {_MAX_WORDS} of {NUM_LETTERS} letters, {path!r} "
            f"has {len(guesses)}"
        )
    answers = sorted({line.rstrip("*") for line in marked if line.endswith("*")}) or guesses
    data = "\n".join([*guesses, "", *answers])
    return WordList(tuple(guesses), tuple(answers), content_hash(data))


def marks(guess: str, answer: str) -> str:
    """A letter for each of the guess: `g` in its place, `y` in another, `b` in none.

    A letter is marked at most as often as the answer has it, places first, then from the left.
    """
    unplaced = Counter(a for g, a in zip(guess, answer, strict=True) if g != a)
    marked: list[str] = []
    for g, a in zip(guess, answer, strict=True):
        if g == a:
            marked.append("g")
        elif unplaced[g] > 0:
            unplaced[g] -= 1
            marked.append("y")
        else:
            marked.append("b")
    return "".join(marked)


def mark_codes(guesses: Sequence[str], answers: Sequence[str]) -> NDArray[np.uint8]:
    """`marks` of every guess with every answer, as numbers in base 3: b is 0, y 1, g 2.

    Returns:
        Of shape (guesses, answers).
    """
    codes = np.empty((len(guesses), len(answers)), dtype=np.uint8)
    answer_letters = _letters(answers)[None]
    for start in range(0, len(guesses), _GUESSES_AT_ONCE):
        guess_letters = _letters(guesses[start : start + _GUESSES_AT_ONCE])[:, None]
        placed = answer_letters == guess_letters
        code = np.zeros(placed.shape[:2], dtype=np.uint8)
        for at in range(NUM_LETTERS):
            letter = guess_letters[..., at, None]
            # of this letter: what the answer has left over, less what earlier places took of it
            left_over = ((answer_letters == letter) & ~placed).sum(axis=2)
            taken = ((guess_letters == letter) & ~placed)[..., :at].sum(axis=2)
            elsewhere = ~placed[..., at] & (taken < left_over)
            code = code * 3 + 2 * placed[..., at] + elsewhere
        codes[start : start + _GUESSES_AT_ONCE] = code
    return codes


def _letters(words: Sequence[str]) -> NDArray[np.uint8]:
    return np.array([list(word.encode("ascii")) for word in words], dtype=np.uint8)
