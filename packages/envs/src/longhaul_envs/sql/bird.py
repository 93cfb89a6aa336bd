"""BIRD-SQL's folders, as they are fetched: `train/` and `dev/`, or one of them.

In each, `NAME.json` lists questions (`db_id`, `question`, `evidence`, `SQL`, and in dev
`question_id` and `difficulty`), and `NAME_databases/DB/DB.sqlite` are the databases.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter, ValidationError

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.task_lists import content_hash, shared_out

__all__ = ["Bird", "BirdQuestion", "load_bird", "schema_of"]

_PARTS = ("train", "dev")


class _Row(BaseModel):
    """A question as its file has it; other keys are not read."""

    db_id: str
    question: str
    evidence: str = ""
    SQL: str
    difficulty: str = ""


_ROWS = TypeAdapter(list[_Row])


@dataclass(frozen=True, slots=True)
class BirdQuestion:
    """A question, and the database that it is asked of."""

    text: str
    evidence: str
    """A hint on how the question's words stand in the data; may be empty."""
    gold: str
    file: Path
    difficulty: str


@dataclass(frozen=True, slots=True)
class Bird:
    """Every question of a folder."""

    questions: dict[str, BirdQuestion]
    """By task id, `PART/NUMBER`: the place in the file, from 0."""
    splits: dict[Split, tuple[str, ...]]
    data_hash: str
    """Of the question files, and of the names and sizes of the databases."""


@cache
def load_bird(folder: Path) -> Bird:
    """The questions of a folder, in three splits that share no database.

    Where there is `dev`, it is the test split, as BIRD means it; `train` gives training and
    validation. `dev` alone is shared out over all three.

    Raises:
        ConfigError: The folder has neither part, a file has another form, a database is missing,
            or there are too few databases to share out.
    """
    found = {part: folder / part for part in _PARTS if (folder / part / f"{part}.json").is_file()}
    if not found:
        raise ConfigError(
            f"{str(folder)!r} has no BIRD-SQL: there must be train/train.json or dev/dev.json. Its "
            "train.zip and dev.zip are at bird-bench.github.io; unpack each so that the folder "
            "train or dev holds its json file and its folder of databases"
        )
    questions: dict[str, BirdQuestion] = {}
    hashed: list[str] = []
    for part, root in found.items():
        text = (root / f"{part}.json").read_text(encoding="utf-8")
        rows = _rows(text, root / f"{part}.json")
        hashed.append(content_hash(text))
        for number, row in enumerate(rows):
            file = root / f"{part}_databases" / row.db_id / f"{row.db_id}.sqlite"
            questions[f"{part}/{number}"] = BirdQuestion(
                row.question, row.evidence, row.SQL, file, row.difficulty
            )
    files = sorted({question.file for question in questions.values()})
    for file in files:
        if not file.is_file():
            raise ConfigError(f"{str(folder)!r} lacks the database {str(file)!r}; unpack it there")
        hashed.append(f"{file.name} {file.stat().st_size}")
    splits = {split: tuple(ids) for split, ids in _split(questions).items()}
    return Bird(questions, splits, content_hash("\n".join(hashed)))


def _rows(text: str, file: Path) -> list[_Row]:
    try:
        return _ROWS.validate_json(text)
    except ValidationError as error:
        raise ConfigError(f"{str(file)!r} is no list of BIRD-SQL's questions: {error}") from error


def _split(questions: dict[str, BirdQuestion]) -> dict[Split, list[str]]:
    by_part: dict[str, dict[str, list[str]]] = {part: {} for part in _PARTS}
    for task_id, question in questions.items():
        databases = by_part[task_id.partition("/")[0]]
        databases.setdefault(question.file.stem, []).append(task_id)
    trained, developed = by_part["train"], by_part["dev"]
    if not (trained and developed):
        alone = trained or developed
        return {
            split: [task_id for name in names for task_id in alone[name]]
            for split, names in shared_out(alone).items()
        }
    names = shared_out(trained.keys() - developed.keys())
    training = [*names[Split.TRAIN], *names[Split.TEST]]
    return {
        Split.TRAIN: [task_id for name in training for task_id in trained[name]],
        Split.VALIDATION: [i for name in names[Split.VALIDATION] for i in trained[name]],
        Split.TEST: [task_id for task_ids in developed.values() for task_id in task_ids],
    }


@cache
def schema_of(file: Path) -> tuple[str, ...]:
    """A line for each table of a database: its name, columns with types, and foreign keys.

    Raises:
        RuntimeError: The file is no database that can be read.
    """
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as connection:
            names = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            ).fetchall()
            return tuple(_table_line(connection, name) for (name,) in names)
    except sqlite3.Error as error:
        raise RuntimeError(f"the database {str(file)!r} cannot be read: {error}") from error


def _table_line(connection: sqlite3.Connection, table: str) -> str:
    columns = connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (table,))
    parts = [
        f"{_quoted(name)} {kind}".rstrip() + " PRIMARY KEY" * bool(key)
        for name, kind, key in columns
    ]
    foreign = connection.execute(
        'SELECT "from", "table", "to" FROM pragma_foreign_key_list(?)', (table,)
    )
    parts += [
        f"FOREIGN KEY ({_quoted(mine)}) REFERENCES {_quoted(other)}"
        + (f"({_quoted(theirs)})" if theirs else "")
        for mine, other, theirs in foreign
    ]
    return f"{_quoted(table)}({', '.join(parts)})"


def _quoted(name: str) -> str:
    """A name as a statement has to write it."""
    if name.isidentifier() and name.isascii():
        return name
    return '"' + name.replace('"', '""') + '"'
