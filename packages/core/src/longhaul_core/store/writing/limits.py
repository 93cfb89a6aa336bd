"""What a column can hold, the same on both databases.

SQLite takes an integer of 64 bits and a text of any length in every column, and makes NaN null;
PostgreSQL refuses the first two and keeps NaN. What one of them would refuse or change is refused
before either sees it, by the type that `models` gives the column; so is an infinity, but for a
metric's.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from sqlalchemy import BigInteger, Double, Integer, String

from longhaul_core.errors import StoreError
from longhaul_core.store.models import INFINITE, LONGEST, Base
from longhaul_core.store.rows import Row
from longhaul_core.text import storable_text

__all__ = ["require_storable"]


class _Limits(NamedTuple):
    """By column of a table."""

    integers: dict[str, int]
    """The first power of two that is too large."""
    numbers: tuple[str, ...]
    """Those that must be finite."""
    texts: dict[str, int]
    """Most characters; columns without a limit are not here."""


def require_storable(model: type[Base], new: Sequence[Row], *, prefix: str = "") -> None:
    """Check every value of rows before they are written.

    Args:
        model: Their table.
        new: Rows with equal keys.
        prefix: What precedes a column's name in a key.

    Raises:
        StoreError: An integer or a text is too large for its column, a number is not finite, or a
            name holds what no text in SQL can.
    """
    if not new:
        return
    limits = _limits(model)
    integers = _present(limits.integers, new[0], prefix)
    numbers = [prefix + name for name in limits.numbers if prefix + name in new[0]]
    texts = _present(limits.texts, new[0], prefix)
    for row in new:
        for key, end in integers:
            value = row[key]
            if value is not None and not -end <= value < end:  # pyright: ignore[reportOperatorIssue]  # a column of integers
                must = f"must lie in [{-end}, {end - 1}], got {value}"
                raise StoreError(f"{_described(model, key, row, prefix)} {must}")
        for key in numbers:
            value = row[key]
            if isinstance(value, float) and not math.isfinite(value):
                must = f"must be a finite number, got {value}"
                raise StoreError(f"{_described(model, key, row, prefix)} {must}")
        for key, most in texts:
            value = row[key]
            if not isinstance(value, str):
                continue
            if len(value) > most:
                must = f"may have {most} characters, got {len(value)}: {value[:40]!r}…"
                raise StoreError(f"{_described(model, key, row, prefix)} {must}")
            if storable_text(value) != value:
                must = f"may hold neither NUL nor half a surrogate pair, got {value!r}"
                raise StoreError(f"{_described(model, key, row, prefix)} {must}")


@cache
def _limits(model: type[Base]) -> _Limits:
    columns = Base.metadata.tables[model.__tablename__].columns
    return _Limits(
        integers={
            column.name: 2**63 if isinstance(column.type, BigInteger) else 2**31
            for column in columns
            if isinstance(column.type, Integer)
        },
        numbers=tuple(
            column.name
            for column in columns
            if isinstance(column.type, Double) and not column.info.get(INFINITE)
        ),
        texts={
            column.name: most
            for column in columns
            if isinstance(column.type, String)
            and (most := column.type.length or column.info.get(LONGEST))
        },
    )


def _present(limits: dict[str, int], row: Row, prefix: str) -> list[tuple[str, int]]:
    return [(prefix + name, limit) for name, limit in limits.items() if prefix + name in row]


def _described(model: type[Base], key: str, row: Row, prefix: str) -> str:
    """The column, and the row by its key."""

    def place() -> Iterator[str]:
        primary = {column.name for column in Base.metadata.tables[model.__tablename__].primary_key}
        for name, value in row.items():
            if name != key and (name in primary or name.startswith("of_")):
                yield f"{name.removeprefix('of_')} {value!r}"

    where = ", ".join(place())
    column = f"{model.__tablename__}.{key.removeprefix(prefix)}"
    return f"{column} ({where})" if where else column
