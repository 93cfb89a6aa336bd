"""A corpus, its retriever and its questions, opened together."""

from dataclasses import dataclass
from pathlib import Path

from longhaul_core.errors import ConfigError
from longhaul_envs import data
from longhaul_envs.built import built_once
from longhaul_envs.search import wordnet
from longhaul_envs.search.corpus import (
    Corpus,
    Question,
    Questions,
    key_of,
    read_questions,
    write_questions,
)
from longhaul_envs.search.retrievers import Retriever, dense_index, lexical_index
from longhaul_envs.task_lists import content_hash

__all__ = ["Holdings", "Library"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What a library is made of; the options of the same names explain them."""

    corpus: str
    questions: str
    wordnet: str
    retriever: str
    encoder: str
    embeddings: str


class Library:
    """Opened for reading. What is missing is made in the data folder first, once on a machine.

    Threads may share it (`longhaul_envs.built.shared`).
    """

    def __init__(self, holdings: Holdings) -> None:
        """Open it.

        Raises:
            ConfigError: If a file or a package is missing, or a file is not what it should be.
        """
        self._root = data.folder("search")
        if holdings.corpus:
            file = Path(holdings.corpus)
            key = key_of(file)
        else:
            key = wordnet.data_key(Path(holdings.wordnet))
            made = built_once(
                self._root / f"wordnet-{key}",
                lambda folder: wordnet.write_corpus(
                    Path(holdings.wordnet), folder / "documents.jsonl"
                ),
            )
            file = made / "documents.jsonl"
        self.corpus = Corpus(file, self._root / f"places-{key}")
        self.questions = self._questions(holdings, key)
        self.retriever: Retriever
        if holdings.retriever == "bm25":
            self.retriever = lexical_index(self.corpus, self._root / f"bm25-{key}")
        else:
            self.retriever = dense_index(
                self.corpus,
                encoder=holdings.encoder,
                embeddings=holdings.embeddings,
                folder=self._root / f"dense-{key}-{content_hash(holdings.encoder)[:8]}",
            )

    @property
    def data_hash(self) -> str:
        """Of the documents and the questions."""
        return content_hash(f"{self.corpus.data_hash} {self.questions.data_hash}")

    def question(self, question_id: str) -> Question:
        """The question of that id.

        Raises:
            ValueError: If there is none.
        """
        return self.questions[question_id]

    def _questions(self, holdings: Holdings, corpus_key: str) -> Questions:
        if holdings.questions:
            path = Path(holdings.questions)
            files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
            if not files:
                raise ConfigError(f"no questions in {path}: no name in it ends in .jsonl")
            key = content_hash(" ".join(map(key_of, files)))[:16]
            folder = built_once(
                self._root / f"questions-{key}",
                lambda made: write_questions(made, read_questions(path)),
            )
        else:
            bm25 = self._root / f"bm25-{corpus_key}"
            folder = built_once(
                self._root / f"questions-{corpus_key}",
                lambda made: write_questions(
                    made,
                    wordnet.two_hop_questions(
                        Path(holdings.wordnet), self.corpus, lexical_index(self.corpus, bm25)
                    ),
                ),
            )
        return Questions(folder)
