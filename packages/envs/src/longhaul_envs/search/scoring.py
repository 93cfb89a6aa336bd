"""How an answer is compared with those that are right: as SQuAD and Search-R1 do."""

import re
import string
from collections import Counter
from collections.abc import Collection, Iterable

__all__ = ["contains_answer", "exact_match", "f1", "normalised"]

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """`text` in lower case, without ASCII punctuation and English articles, single spaces between.

    Source:
        The evaluation script of SQuAD (Rajpurkar and others 2016, arXiv:1606.05250).
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def exact_match(answer: str, right: Collection[str]) -> bool:
    """Whether `answer` is one of `right`, both normalised. White space alone never is.

    `A` and `$` are answers too, though nothing is left of them: they are right if nothing is left
    of a right one.
    """
    return bool(answer.strip()) and normalised(answer) in map(normalised, right)


def f1(answer: str, right: Collection[str]) -> float:
    """The highest F1 of shared words with one of `right`, from 0 to 1, both normalised.

    1 for an exact match, also of answers without words.
    """
    if exact_match(answer, right):
        return 1.0
    given = Counter(normalised(answer).split())
    best = 0.0
    for one in right:
        wanted = Counter(normalised(one).split())
        shared = (given & wanted).total()
        if shared:
            best = max(best, 2 * shared / (given.total() + wanted.total()))
    return best


def contains_answer(text: str, right: Iterable[str]) -> bool:
    """Whether one of `right` stands in `text` as whole words, both normalised."""
    words = f" {normalised(text)} "
    return any(f" {normalised(one)} " in words for one in right)
