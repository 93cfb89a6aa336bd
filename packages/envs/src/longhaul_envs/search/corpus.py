"""Documents and questions: lines of JSON, found by their place without being loaded.

A corpus is a file of one JSON object a line with `id` and `contents`, whose first line is the
title (FlashRAG, Search-R1), or `id`, `title` and `text`. Questions are lines with `id`, `question`
and `golden_answers` (FlashRAG): one file, or a folder of `train.jsonl`, `dev.jsonl` and
`test.jsonl`.
"""

import hashlib
import json
import os
import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.built import built_once
from longhaul_envs.search.scoring import normalised
from longhaul_envs.task_lists import content_hash, shared_out

__all__ = [
    "Corpus",
    "Document",
    "Question",
    "Questions",
    "key_of",
    "read_questions",
    "write_questions",
]

_SPLIT_FILES = {Split.TEST: "test.jsonl", Split.VALIDATION: "dev.jsonl", Split.TRAIN: "train.jsonl"}
"""In the order in which a question that stands in several is kept."""


@dataclass(frozen=True, slots=True)
class Document:
    """What a search finds."""

    id: str
    title: str
    text: str


class Corpus:
    """The documents of a file, by their place in it. Threads and processes may share the file."""

    def __init__(self, file: Path, places: Path) -> None:
        """Open a corpus.

        Args:
            file: Lines of JSON.
            places: Folder where it is kept, once for all, where each line begins.

        Raises:
            ConfigError: If the file is missing, empty, or has a line that is no document.
        """
        self._file = file
        made = built_once(places, lambda folder: _find_places(file, folder))
        # A plain array over the mapped file: a memmap takes ten times as long for each place.
        self._places: NDArray[np.int64] = np.asarray(np.load(made / "places.npy", mmap_mode="r"))
        self.data_hash = (made / "data_hash").read_text("utf-8")
        """Of the file's content."""
        self._descriptor = os.open(file, os.O_RDONLY)
        weakref.finalize(self, os.close, self._descriptor)

    def __len__(self) -> int:
        return len(self._places) - 1

    def __getitem__(self, number: int) -> Document:
        begin, end = int(self._places[number]), int(self._places[number + 1])
        line = os.pread(self._descriptor, end - begin, begin)
        return _document(line, where=f"{self._file}, document {number}")

    def __iter__(self) -> Iterator[Document]:
        return map(self.__getitem__, range(len(self)))


def _find_places(file: Path, folder: Path) -> None:
    digest = hashlib.blake2b(digest_size=16)
    places = [0]
    with file.open("rb") as lines:
        for number, line in enumerate(lines):
            _document(line, where=f"{file}, line {number + 1}")
            digest.update(line)
            places.append(places[-1] + len(line))
    if len(places) == 1:
        raise ConfigError(f"{file} holds no document")
    np.save(folder / "places.npy", np.array(places, dtype=np.int64), allow_pickle=False)
    (folder / "data_hash").write_text(digest.hexdigest(), encoding="utf-8")


def _document(line: bytes, *, where: str) -> Document:
    fields = _object(line, where=where)
    title, text = fields.get("title"), fields.get("text", fields.get("contents"))
    if "id" not in fields or not isinstance(text, str) or not isinstance(title, str | None):
        raise ConfigError(
            f"{where}: a document is a JSON object with `id` and `contents`, or `id`, `title` and "
            f"`text`, got the keys {sorted(fields)}"
        )
    if title is None:
        first, _, text = text.partition("\n")
        title = first.strip().strip('"')
    return Document(str(fields["id"]), title, text)


def _object(line: bytes, *, where: str) -> Mapping[str, Any]:
    try:
        read: object = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
    if not isinstance(read, dict):
        raise ConfigError(f"{where}: not a JSON object")
    return cast("dict[str, Any]", read)


@dataclass(frozen=True, slots=True)
class Question:
    """A question and what is known of its answer."""

    id: str
    split: Split
    text: str
    answers: tuple[str, ...]
    """Any of them is right."""
    hops: tuple[tuple[str, str], ...] = ()
    """Queries and the documents that they find, which lead to the answer; empty if unknown."""


def read_questions(path: Path) -> Iterator[Question]:
    """The questions of a file or of a folder of splits.

    A file is shared out over the splits by content. A folder keeps its splits, except that a
    question which stands in several, but for case and punctuation, stays in test before
    validation and in validation before train. A question that stands twice in a split is read once.

    Raises:
        ConfigError: If there is none, or a line is no question.
    """
    if path.is_dir():
        listed = [
            (split, question)
            for split, name in _SPLIT_FILES.items()
            for question in _questions_of(path / name)
        ]
        splits = {}
    else:
        listed = [(Split.TRAIN, question) for question in _questions_of(path)]
        contents = shared_out(normalised(question["question"]) for _, question in listed)
        splits = {content: split for split, those in contents.items() for content in those}
    met: set[str] = set()
    for split, fields in listed:
        content = normalised(fields["question"])
        if content in met:
            continue
        met.add(content)
        split = splits.get(content, split)
        answers = tuple(map(str, fields["golden_answers"]))
        yield Question(f"{split.value}/{fields['id']}", split, fields["question"], answers)


def _questions_of(file: Path) -> list[Mapping[str, Any]]:
    if not file.is_file():
        raise ConfigError(
            f"no file of questions at {file}; give a JSONL file, or a folder with "
            f"{', '.join(_SPLIT_FILES.values())}"
        )
    found: list[Mapping[str, Any]] = []
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{file}, line {number}"
            fields = _object(line, where=where)
            answers = fields.get("golden_answers")
            if (
                not isinstance(fields.get("question"), str)
                or "id" not in fields
                or not isinstance(answers, list)
                or not answers
            ):
                raise ConfigError(
                    f"{where}: a question is a JSON object with `id`, `question` and "
                    f"`golden_answers`, a list, got the keys {sorted(fields)}"
                )
            found.append(fields)
    return found


def write_questions(folder: Path, questions: Iterable[Question]) -> None:
    """Write `questions` into `folder`, with the hash of all of them.

    Raises:
        ConfigError: If two have the same id.
    """
    digest = hashlib.blake2b(digest_size=16)
    connection = sqlite3.connect(folder / "questions.sqlite")
    try:
        connection.execute(
            "CREATE TABLE questions (place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, "
            "split TEXT NOT NULL, text TEXT NOT NULL, answers TEXT NOT NULL, hops TEXT NOT NULL)"
        )
        for question in questions:
            row = (
                question.id,
                question.split.value,
                question.text,
                json.dumps(question.answers),
                json.dumps(question.hops),
            )
            digest.update(json.dumps(row).encode())
            connection.execute(
                "INSERT INTO questions (id, split, text, answers, hops) VALUES (?, ?, ?, ?, ?)", row
            )
        connection.execute("CREATE INDEX by_split ON questions (split, place)")
        connection.commit()
    except sqlite3.IntegrityError as error:
        raise ConfigError(f"two questions of one split have the same id: {error}") from error
    finally:
        connection.close()
    (folder / "data_hash").write_text(digest.hexdigest(), encoding="utf-8")


class Questions:
    """Questions that `write_questions` wrote. Threads may share it."""

    def __init__(self, folder: Path) -> None:
        self.data_hash = (folder / "data_hash").read_text("utf-8")
        """Of all questions."""
        file = folder / "questions.sqlite"
        self._connection = sqlite3.connect(
            f"{file.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False
        )
        weakref.finalize(self, self._connection.close)

    def of(self, split: Split) -> Iterator[Question]:
        """The questions of `split`, in order."""
        return map(_question, self._select("split = ? ORDER BY place", split.value))

    def drawn(self, generator: np.random.Generator) -> Question:
        """A random question of the training split."""
        rows = self._select("split = ? ORDER BY place", Split.TRAIN.value)
        return _question(rows[int(generator.integers(len(rows)))])

    def __getitem__(self, question_id: str) -> Question:
        rows = self._select("id = ?", question_id)
        if not rows:
            raise ValueError(f"no question has the id {question_id!r}")
        return _question(rows[0])

    def _select(self, condition: str, value: str) -> list[tuple[str, str, str, str, str]]:
        query = f"SELECT id, split, text, answers, hops FROM questions WHERE {condition}"
        return self._connection.execute(query, (value,)).fetchall()


def _question(row: tuple[str, str, str, str, str]) -> Question:
    question_id, split, text, answers, hops = row
    return Question(
        question_id,
        Split(split),
        text,
        tuple(json.loads(answers)),
        tuple((query, document) for query, document in json.loads(hops)),
    )


def key_of(file: Path) -> str:
    """What names the indexes that are built of `file`: its place, size and time of change.

    Raises:
        ConfigError: If it is missing.
    """
    if not file.is_file():
        raise ConfigError(f"no corpus at {file}")
    stat = file.stat()
    return content_hash(f"{file.resolve()} {stat.st_size} {stat.st_mtime_ns}")[:16]
