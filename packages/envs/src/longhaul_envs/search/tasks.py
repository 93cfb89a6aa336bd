"""Search's tasks: a question each, under the id that the question has.

The default questions are shared out over the splits by the document in their middle, those of a
user's file by their text; a user's folder of splits keeps them, without what stands in two.
"""

from dataclasses import dataclass

import numpy as np

from longhaul_core.environment import Determinism, EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.built import shared
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.search.corpus import Question
from longhaul_envs.search.library import Holdings, Library

__all__ = ["SearchOptions", "draw", "open_library", "source", "tasks"]

_MAX_RESULTS = 50
_RETRIEVERS = ("bm25", "dense")
_REWARDS = ("exact_match", "f1")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions(PackagedOptions):
    """What can be chosen about Search."""

    environment_id = "longhaul/Search-v0"
    episodes_per_process = 16
    rules = ("retriever", "encoder", "embeddings", "top_k", "max_answers", "reward")

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
        options.task(question.id, split, goal=question.text, data_hash=data_hash)
        for place, question in enumerate(library.questions.of(split))
        if limit is None or place < limit
    )


def draw(options: SearchOptions, generator: np.random.Generator) -> Question:
    """A random training question."""
    return open_library(options).questions.drawn(generator)


def _prompt(options: SearchOptions) -> EnvironmentPrompt:
    most = options.max_answers
    answers = "one answer" if most == 1 else f"at most {most} answers"
    return EnvironmentPrompt(
        system=(
            "You answer a question by looking things up in a collection of documents. "
            "search[QUERY] shows the documents that fit a few words best; what one document names "
            "may need a search of its own. answer[TEXT] gives the answer, in as few words as it "
            f"takes. You have {answers}."
        ),
        instruction="Search, or answer?",
    )


source = PackagedSource(
    SearchOptions,
    tasks,
    lambda options: options.description(
        summary="answer a question by searching a collection of documents",
        prompt=_prompt(options),
        actions="`search[QUERY]` or `answer[TEXT]`",
        # what an encoder computes may differ between machines in the last digits, and its order so
        determinism=(
            Determinism.EXACT if options.retriever == "bm25" else Determinism.FIRST_OBSERVATION
        ),
    ),
)
