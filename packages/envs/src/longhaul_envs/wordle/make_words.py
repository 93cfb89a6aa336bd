"""Makes `words.txt` of WordNet's files: `python -m longhaul_envs.wordle.make_words FOLDER`.

FOLDER is where `data.noun` and `cntlist.rev` lie, such as `/usr/share/wordnet` of Debian's
package wordnet-base. A word is a lemma of five small letters. It is common if WordNet's tagged
texts have it at least twice; common words are answers, the others are guesses alone. Words of
which WordNet says that they disparage, or are obscene or a slur, and a few more, are in neither.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

__all__ = ["words_file"]

_LEMMA = re.compile(r"[a-z]{5}")
_LEFT_OUT = frozenset({"bitch", "dildo", "gypsy", "negro", "pussy", "whore"})
"""Of which WordNet says nothing, and which nobody wants to be asked for."""
_OFFENSIVE_USES = ("disparagement", "obscenity", "ethnic_slur", "vulgarism")
_MIN_TAGS = 2


def words_file(wordnet: Path) -> str:
    """The text of `words.txt`: a line for each word in order, common ones with a `*` behind.

    Raises:
        OSError: A file of WordNet is missing.
    """
    words = {word for word, *_ in _lemmas(wordnet)} - _LEFT_OUT
    uses = _offsets_of(wordnet, _OFFENSIVE_USES)
    words -= {word for word, domains in _lemmas(wordnet) if uses & domains}
    tags = _tags(wordnet)
    header = Path(__file__).with_name("LICENSE.wordnet").read_text(encoding="ascii")
    comment = "".join(f"# {line}".rstrip() + "\n" for line in header.splitlines())
    marked = (f"{word}*" if tags[word] >= _MIN_TAGS else word for word in sorted(words))
    return comment + "\n".join(marked) + "\n"


def _synsets(wordnet: Path) -> Iterator[tuple[str, list[str], set[str]]]:
    """Offset, words, and offsets of the uses that a synset is marked with."""
    for part in ("noun", "verb", "adj", "adv"):
        for line in (wordnet / f"data.{part}").read_text(encoding="latin-1").splitlines():
            if line.startswith("  "):
                continue  # the licence
            offset, _, _, count, *rest = line.partition(" | ")[0].split()
            num_words = int(count, 16)
            words = [word.partition("(")[0] for word in rest[: 2 * num_words : 2]]
            pointers = rest[2 * num_words + 1 :]
            uses = {pointers[at + 1] for at, sign in enumerate(pointers) if sign == ";u"}
            yield offset if part == "noun" else "", words, uses


def _lemmas(wordnet: Path) -> Iterator[tuple[str, set[str]]]:
    for _, words, uses in _synsets(wordnet):
        for word in words:
            if _LEMMA.fullmatch(word):
                yield word, uses


def _offsets_of(wordnet: Path, names: tuple[str, ...]) -> set[str]:
    return {
        offset
        for offset, words, _ in _synsets(wordnet)
        if offset and not set(names).isdisjoint(words)
    }


def _tags(wordnet: Path) -> Counter[str]:
    """How often the tagged texts have a word, in any of its senses."""
    tags: Counter[str] = Counter()
    for line in (wordnet / "cntlist.rev").read_text(encoding="latin-1").splitlines():
        sense, _, count = line.split()
        tags[sense.partition("%")[0]] += int(count)
    return tags


if __name__ == "__main__":
    (folder,) = sys.argv[1:]
    Path(__file__).with_name("words.txt").write_text(words_file(Path(folder)), encoding="ascii")
