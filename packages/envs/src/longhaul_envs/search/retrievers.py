"""What finds documents for a query: by words, or by the vectors of a sentence encoder."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from longhaul_core.components import find_component
from longhaul_core.errors import ConfigError
from longhaul_envs.built import built_once
from longhaul_envs.lexical import LexicalIndex, best, write_lexical_index
from longhaul_envs.search.corpus import Corpus

__all__ = ["DenseIndex", "Retriever", "dense_index", "lexical_index"]

_BATCH = 256

Encoder = Callable[..., NDArray[np.float32]]
"""Called as `encoder(texts, queries=...)`: an array of shape (texts, dimensions). `queries` is
whether the texts are queries, since some encoders put a word before them."""


class Retriever(Protocol):
    """Finds documents. Threads may share it."""

    def search(self, query: str, *, limit: int) -> list[int]:
        """The places of at most `limit` documents, best first; the same for the same query."""
        ...


def lexical_index(corpus: Corpus, folder: Path) -> LexicalIndex:
    """The index by words of `corpus`, made once in `folder`.

    Raises:
        ConfigError: If `bm25s` is not installed.
    """
    return LexicalIndex(
        built_once(
            folder,
            lambda made: write_lexical_index(
                made, [_indexed(corpus, place) for place in range(len(corpus))]
            ),
        )
    )


class DenseIndex:
    """The inner product of a query's vector with every document's, memory-mapped.

    Every search reads all vectors: right for up to some millions of documents.
    """

    def __init__(self, encoder: Encoder, vectors: NDArray[np.floating]) -> None:
        """Put an index together; `vectors` has shape (documents, dimensions)."""
        self._encoder = encoder
        self._vectors = vectors

    def search(self, query: str, *, limit: int) -> list[int]:
        """See `Retriever.search`; ties by place."""
        (vector,) = _encoded(self._encoder, [query], queries=True)
        scores: NDArray[np.float32] = (self._vectors @ vector).astype(np.float32)
        return best(scores, limit=limit)


def dense_index(corpus: Corpus, *, encoder: str, embeddings: str, folder: Path) -> DenseIndex:
    """The index by the vectors of an encoder.

    Args:
        corpus: That is searched.
        encoder: `package.module:name` of an `Encoder`.
        embeddings: File of numpy with the vector of every document, as a float array of shape
            (documents, dimensions); empty if the encoder is to make them, once, in `folder`.
        folder: Where vectors that are made here stay.

    Raises:
        ConfigError: If the encoder cannot be had, or the file does not fit the corpus.
    """
    function: Encoder = find_component(encoder, {}, setting="encoder", takes=["texts", "queries="])
    file = Path(embeddings)
    if not embeddings:
        made = built_once(folder, lambda made: _write_vectors(made, corpus, function))
        file = made / "vectors.npy"
    elif not file.is_file():
        raise ConfigError(f"no embeddings at {file}")
    vectors: NDArray[np.floating] = np.load(file, mmap_mode="r", allow_pickle=False)
    if vectors.ndim != 2 or len(vectors) != len(corpus) or vectors.dtype.kind != "f":
        raise ConfigError(
            f"{file} must be a float array of shape ({len(corpus)}, dimensions), one row a "
            f"document, is {vectors.dtype} of shape {vectors.shape}"
        )
    return DenseIndex(function, vectors)


def _write_vectors(folder: Path, corpus: Corpus, encoder: Encoder) -> None:
    num_dimensions = _encoded(encoder, [_indexed(corpus, 0)], queries=False).shape[1]
    numpy_files: Any = np.lib.format
    vectors = numpy_files.open_memmap(
        folder / "vectors.npy",
        mode="w+",
        dtype=np.float32,
        shape=(len(corpus), num_dimensions),
    )
    for begin in range(0, len(corpus), _BATCH):
        places = range(begin, min(begin + _BATCH, len(corpus)))
        texts = [_indexed(corpus, place) for place in places]
        vectors[begin : begin + len(texts)] = _encoded(encoder, texts, queries=False)
    vectors.flush()


def _encoded(encoder: Encoder, texts: Sequence[str], *, queries: bool) -> NDArray[np.float32]:
    vectors = np.asarray(encoder(list(texts), queries=queries), dtype=np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise ConfigError(
            f"the encoder must return an array of shape ({len(texts)}, dimensions) for "
            f"{len(texts)} texts, returned {vectors.shape}"
        )
    return vectors


def _indexed(corpus: Corpus, place: int) -> str:
    document = corpus[place]
    return f"{document.title}\n{document.text}"
