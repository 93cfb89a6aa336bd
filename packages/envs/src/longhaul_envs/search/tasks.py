"""Search's tasks: a question each, under the id that the question has.

The default questions are shared out over the splits by the document in their middle, those of a
user's file by their text; a user's folder of splits keeps them, without what stands in two.
"""

from dataclasses import dataclass

import numpy as np

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.built import shared
from longhaul_envs.search.corpus import Question
from longhaul_envs.search.library import Holdings, Library
from longhaul_envs.task_lists import rules_version, stable_seed

__all__ = ["ENVIRONMENT_ID", "SearchOptions", "draw", "open_library", "tasks"]

ENVIRONMENT_ID = "longhaul/Search-v0"
_MAX_RESULTS = 50
_RETRIEVERS = ("bm25", "dense")
_REWARDS = ("exact_match", "f1")
_RULES = ("retriever", "encoder", "embeddings", "top_k", "max_answers", "reward")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """What can be chosen about Search."""

    corpus: str = ""
    """JSONL file of documents; empty for the one made of WordNet. Chooses tasks."""
    questions: str = ""
    """JSONL file or folder of questions; needed with `corpus`. Chooses tasks."""
    wordnet: str = "/usr/share/wordnet"
    """Folder of a WordNet 3 database, for the default corpus. Chooses tasks."""
    retriever: str = "bm25"
    """`bm25` or `dense`. A rule."""
    encoder: str = ""
    """`package.module:name` of the encoder of `dense`. A rule."""
    embeddings: str = ""
    """File of the documents' vectors for `dense`; empty to have the encoder make them. A rule."""
    top_k: int = 3
    """Documents that a search shows, 1 to 50. A rule."""
    max_answers: int = 1
    """Answers that may be given, 1 to 10. A rule."""
    reward: str = "exact_match"
    """`exact_match` or `f1`. A rule."""

    def __post_init__(self) -> None:
        if bool(self.corpus) != bool(self.questions):
            raise ConfigError(
                "corpus and questions are given together or not at all, got "
                f"corpus={self.corpus!r} and questions={self.questions!r}"
            )
        for name, known in (("retriever", _RETRIEVERS), ("reward", _REWARDS)):
            if getattr(self, name) not in known:
                raise ConfigError(
                    f"{name} must be {' or '.join(known)}, got {getattr(self, name)!r}"
                )
        if (self.retriever == "dense") != bool(self.encoder):
            raise ConfigError(
                "encoder, package.module:name, is given with retriever = 'dense' and not "
                f"otherwise, got retriever={self.retriever!r} and encoder={self.encoder!r}"
            )
        if self.embeddings and self.retriever != "dense":
            raise ConfigError("embeddings are for retriever = 'dense'")
        for name, most in (("top_k", _MAX_RESULTS), ("max_answers", 10)):
            if not 1 <= getattr(self, name) <= most:
                raise ConfigError(f"{name} must be from 1 to {most}, got {getattr(self, name)}")

    @property
    def version(self) -> str:
        """The value of `Task.version`."""
        return rules_version("1", self, rules=_RULES)

    @property
    def holdings(self) -> Holdings:
        """What the library is made of."""
        return Holdings(
            corpus=self.corpus,
            questions=self.questions,
            wordnet=self.wordnet,
            retriever=self.retriever,
            encoder=self.encoder,
            embeddings=self.embeddings,
        )


def open_library(options: SearchOptions) -> Library:
    """The library under `options`, opened once in a process."""
    return shared(Library, options.holdings)


def tasks(split: Split, options: SearchOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`, or all, in the order of the questions."""
    library = open_library(options)
    data_hash = library.data_hash
    return tuple(
        Task(
            environment=ENVIRONMENT_ID,
            version=options.version,
            data_hash=data_hash,
            task_id=question.id,
            seed=stable_seed(question.id),
            split=split,
            goal=question.text,
        )
        for place, question in enumerate(library.questions.of(split))
        if limit is None or place < limit
    )


def draw(options: SearchOptions, generator: np.random.Generator) -> Question:
    """A random training question."""
    return open_library(options).questions.drawn(generator)
