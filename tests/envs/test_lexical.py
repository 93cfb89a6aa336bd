"""Search by words: against BM25's definition, and the same everywhere."""

import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from longhaul_envs.lexical import LexicalIndex, best, write_lexical_index

TEXTS = [
    "Red running shoes, size 8",
    "blue running jacket",
    "a red hat",
    "running running running",
    "Tea of mint and lemon",
    "red red hat for running",
    "a red hat",
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> LexicalIndex:
    folder = tmp_path_factory.mktemp("index")
    write_lexical_index(folder, TEXTS)
    return LexicalIndex(folder)


def naive(query: str) -> list[int]:
    """BM25 with Lucene's idf, k1 = 0.9 and b = 0.4, as it is defined."""
    stop = {"a", "of", "and", "for"}

    def words(text: str) -> list[str]:
        return [word for word in re.findall(r"\w+", text.lower()) if word not in stop]

    documents = [words(text) for text in TEXTS]
    mean_length = sum(map(len, documents)) / len(documents)
    scores: list[float] = []
    for document in documents:
        counts, total = Counter(document), 0.0
        for word in words(query):
            num_holding = sum(word in other for other in documents)
            idf = math.log(1 + (len(documents) - num_holding + 0.5) / (num_holding + 0.5))
            length = 0.9 * (1 - 0.4 + 0.4 * len(document) / mean_length)
            total += idf * counts[word] / (counts[word] + length)
        scores.append(total)
    order = sorted(range(len(scores)), key=lambda place: (-scores[place], place))
    return [place for place in order if scores[place] > 0]


@pytest.mark.parametrize(
    "query", ["red hat", "RUNNING shoes!", "mint tea", "8", "hat jacket lemon", "red red running"]
)
def test_the_order_is_that_of_the_definition(index: LexicalIndex, query: str) -> None:
    assert index.search(query, limit=len(TEXTS)) == naive(query)
    assert index.search(query, limit=1) == naive(query)[:1]


@pytest.mark.parametrize("query", ["", "the of a", "xyzzy", "\x00 \u6f22 <action>", "[(" * 1000])
def test_a_query_without_a_known_word_finds_nothing(index: LexicalIndex, query: str) -> None:
    assert index.search(query, limit=5) == []


def test_equal_scores_are_in_the_order_of_the_documents(index: LexicalIndex) -> None:
    found = index.search("red hat", limit=3)
    assert found.index(2) + 1 == found.index(6)
    assert best(np.array([1, 3, 3, 2, 3], dtype=np.float32), limit=2) == [1, 2]
    assert best(np.array([1, 3, 3, 2, 3], dtype=np.float32), limit=9) == [1, 2, 4, 3, 0]


def test_the_postings_are_mapped_and_never_unpickled(tmp_path: Path) -> None:
    write_lexical_index(tmp_path, TEXTS)
    postings = tmp_path / "data.csc.index.npy"
    assert isinstance(np.load(postings, mmap_mode="r"), np.memmap)
    np.save(postings, np.array([{"any": "object"}], dtype=object), allow_pickle=True)

    with pytest.raises(ValueError, match=r"[Pp]ython objects|allow_pickle"):
        LexicalIndex(tmp_path)


def test_a_query_has_the_words_that_a_document_of_its_letters_has(tmp_path: Path) -> None:
    """Documents are divided by bm25s, queries here."""
    texts = ["İstanbul", "STRASSE ẞ", "x", "_a", "ÉTÉ", "7-8"]
    write_lexical_index(tmp_path, texts)
    index = LexicalIndex(tmp_path)

    assert [index.search(text, limit=5) for text in texts] == [[n] for n in range(len(texts))]
