"""A catalogue on disk: products and goals in SQLite, and an index to search by words.

It is written once on a machine and opened for reading only; all sessions of a process share it.
"""

import hashlib
import json
import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random

import numpy as np
from pydantic import TypeAdapter

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.lexical import LexicalIndex, write_lexical_index
from longhaul_envs.task_lists import shared_out
from longhaul_envs.webshop.catalogue import Goal, Product

__all__ = ["MAX_RESULTS", "Shop", "write_shop"]

MAX_RESULTS = 50
"""Products that a search finds at most."""

_AUTHORS_SEED = 233
_AUTHORS_SPLITS = ((Split.TEST, 0, 500), (Split.VALIDATION, 500, 1500), (Split.TRAIN, 1500, None))
_PRODUCT, _GOAL = TypeAdapter(Product), TypeAdapter(Goal)


def write_shop(folder: Path, catalogue: Iterable[tuple[Product, Sequence[Goal]]]) -> None:
    """Write the database and the index of `catalogue` into `folder`.

    Raises:
        ConfigError: If there are fewer than three products with goals, or `bm25s` is missing.
    """
    connection = sqlite3.connect(folder / "shop.sqlite")
    try:
        connection.executescript(
            "CREATE TABLE products (place INTEGER PRIMARY KEY, asin TEXT NOT NULL UNIQUE, "
            "record TEXT NOT NULL);"
            "CREATE TABLE goals (place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, "
            "title TEXT NOT NULL, instruction TEXT NOT NULL, split TEXT, authors_split TEXT, "
            "authors_place INTEGER, record TEXT NOT NULL);"
        )
        _write_rows(connection, folder, catalogue)
        _write_splits(connection)
        _write_authors_splits(connection)
        connection.execute("CREATE INDEX by_split ON goals (split, place)")
        connection.commit()
    finally:
        connection.close()


def _write_rows(
    connection: sqlite3.Connection,
    folder: Path,
    catalogue: Iterable[tuple[Product, Sequence[Goal]]],
) -> None:
    digest = hashlib.blake2b(digest_size=16)
    searched: list[str] = []
    for product, goals in catalogue:
        record = json.dumps(asdict(product))
        digest.update(record.encode())
        connection.execute(
            "INSERT INTO products VALUES (?, ?, ?)", (len(searched), product.asin, record)
        )
        searched.append(product.searched)
        for goal in goals:
            record = json.dumps(asdict(goal))
            digest.update(record.encode())
            connection.execute(
                "INSERT INTO goals (id, title, instruction, record) VALUES (?, ?, ?, ?)",
                (goal.id, product.name.lower(), goal.instruction, record),
            )
    if not searched:
        raise ConfigError("the catalogue has no product")
    (folder / "data_hash").write_text(digest.hexdigest(), encoding="utf-8")
    (folder / "index").mkdir()
    write_lexical_index(folder / "index", searched)


def _write_splits(connection: sqlite3.Connection) -> None:
    """Goals of one title are in one split, and no instruction is in two."""
    titles = [title for (title,) in connection.execute("SELECT DISTINCT title FROM goals")]
    for split, those in shared_out(titles).items():
        connection.executemany(
            "UPDATE goals SET split = ? WHERE title = ?", [(split.value, title) for title in those]
        )
    for kept, dropped in (
        (Split.TEST, Split.VALIDATION),
        (Split.TEST, Split.TRAIN),
        (Split.VALIDATION, Split.TRAIN),
    ):
        connection.execute(
            "UPDATE goals SET split = NULL WHERE split = ? AND instruction IN "
            "(SELECT instruction FROM goals WHERE split = ?)",
            (dropped.value, kept.value),
        )


def _write_authors_splits(connection: sqlite3.Connection) -> None:
    """The authors shuffle the goals by a fixed seed and cut the list by place."""
    shuffled = [place for (place,) in connection.execute("SELECT place FROM goals ORDER BY place")]
    Random(_AUTHORS_SEED).shuffle(shuffled)
    for split, begin, end in _AUTHORS_SPLITS:
        connection.executemany(
            "UPDATE goals SET authors_split = ?, authors_place = ? WHERE place = ?",
            [(split.value, begin + n, place) for n, place in enumerate(shuffled[begin:end])],
        )


class Shop:
    """A catalogue that `write_shop` wrote. Threads may share it."""

    def __init__(self, folder: Path) -> None:
        """Open it.

        Raises:
            ConfigError: If `bm25s` is not installed.
        """
        self.data_hash = (folder / "data_hash").read_text("utf-8")
        """Of products and goals."""
        self._index = LexicalIndex(folder / "index")
        file = folder / "shop.sqlite"
        self._connection = sqlite3.connect(
            f"{file.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False
        )
        weakref.finalize(self, self._connection.close)

    def product(self, asin: str) -> Product:
        """The product of that number, which must be there."""
        (record,) = self._connection.execute(
            "SELECT record FROM products WHERE asin = ?", (asin,)
        ).fetchone()
        return _PRODUCT.validate_json(record)

    def search(self, query: str) -> tuple[str, ...]:
        """The numbers of the products that fit `query` best, at most `MAX_RESULTS`."""
        return tuple(
            self._connection.execute(
                "SELECT asin FROM products WHERE place = ?", (place,)
            ).fetchone()[0]
            for place in self._index.search(query, limit=MAX_RESULTS)
        )

    def goals(self, split: Split, *, authors: bool) -> Iterator[Goal]:
        """The goals of `split`: ours in the catalogue's order, or the authors' in theirs."""
        column, order = ("authors_split", "authors_place") if authors else ("split", "place")
        rows = self._connection.execute(
            f"SELECT record FROM goals WHERE {column} = ? ORDER BY {order}", (split.value,)
        )
        return (_GOAL.validate_json(record) for (record,) in rows.fetchall())

    def goal(self, goal_id: str) -> Goal:
        """The goal of that id.

        Raises:
            ValueError: If there is none.
        """
        row = self._connection.execute(
            "SELECT record FROM goals WHERE id = ?", (goal_id,)
        ).fetchone()
        if row is None:
            raise ValueError(f"no WebShop task is called {goal_id!r}; ids look like 'B0ABCDEFGH/0'")
        return _GOAL.validate_json(row[0])

    def drawn(self, generator: np.random.Generator, *, authors: bool) -> Goal:
        """A random goal of the training split."""
        column = "authors_split" if authors else "split"
        ids = self._connection.execute(
            f"SELECT id FROM goals WHERE {column} = ? ORDER BY place", (Split.TRAIN.value,)
        ).fetchall()
        return self.goal(ids[int(generator.integers(len(ids)))][0])
