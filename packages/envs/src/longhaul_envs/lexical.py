"""Search by words: a BM25 index of `bm25s` on disk, memory-mapped and shared by processes.

The scoring is Lucene's with `k1 = 0.9` and `b = 0.4`, the values of Pyserini, which WebShop and
Search-R1 search with. Words are runs of letters, digits and underscores in lower case, without
English stop words. Unlike Pyserini's, words are not stemmed.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longhaul_envs.extras import required

__all__ = ["LexicalIndex", "best", "write_lexical_index"]

_K1, _B = 0.9, 0.4
_WORD = re.compile(r"(?u)\b\w+\b")


def write_lexical_index(folder: Path, texts: Sequence[str]) -> None:
    """Write the index of `texts` into `folder`; a document is its place in `texts`.

    All texts and their index are in memory meanwhile.

    Raises:
        ConfigError: If `bm25s` is not installed.
    """
    bm25s: Any = required("bm25s", "search")
    index = bm25s.BM25(k1=_K1, b=_B, method="lucene")
    words = bm25s.tokenize(
        list(texts), token_pattern=_WORD.pattern, stopwords="english", show_progress=False
    )
    index.index(words, show_progress=False)
    index.save(folder, allow_pickle=False, show_progress=False)


class LexicalIndex:
    """An index that `write_lexical_index` wrote. Threads may share it.

    Postings are memory-mapped; the vocabulary is in memory.
    """

    def __init__(self, folder: Path) -> None:
        """Open the index in `folder`.

        Raises:
            ConfigError: If `bm25s` is not installed.
        """
        bm25s: Any = required("bm25s", "search")
        self._stopwords = frozenset(bm25s.stopwords.STOPWORDS_EN)
        self._index: Any = bm25s.BM25.load(
            folder, mmap=True, allow_pickle=False, show_progress=False
        )

    def search(self, query: str, *, limit: int) -> list[int]:
        """The documents that share words with `query`, best first, at most `limit`.

        Equal scores are in the order of the documents, so that the answer is the same everywhere.
        """
        words = [word for word in _WORD.findall(query.lower()) if word not in self._stopwords]
        known = self._index.get_tokens_ids(words)
        if not known:
            return []
        scores: NDArray[np.float32] = self._index.get_scores_from_ids(known)
        found = np.flatnonzero(scores != 0)  # numpy counts true values faster than numbers
        return [int(found[place]) for place in best(scores[found], limit=limit)]


def best(scores: NDArray[np.float32], *, limit: int) -> list[int]:
    """The places of the `limit` highest scores, of shape (documents,); ties by place."""
    limit = min(limit, len(scores))
    if limit == 0:
        return []
    lowest = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    candidates = np.flatnonzero(scores >= lowest)
    order = np.argsort(-scores[candidates], kind="stable")[:limit]
    return [int(number) for number in candidates[order]]
