"""Queries that a person keeps: a file of SQL each, in the person's configuration folder.

The store is not the place: what reads it must not write to it, and one person's queries are of
use in every store.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from longhaul_core.errors import QueryError

__all__ = [
    "SavedQuery",
    "delete_query",
    "load_query",
    "save_query",
    "saved_folder",
    "saved_queries",
]

_NAME = re.compile(r"[\w][\w .-]{0,63}")
LONGEST = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedQuery:
    """One of them."""

    name: str
    sql: str


def saved_folder() -> Path:
    """`$XDG_CONFIG_HOME/longhaul/queries`, else `~/.config/longhaul/queries`."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "longhaul" / "queries"


def saved_queries() -> tuple[SavedQuery, ...]:
    """By name."""
    folder = saved_folder()
    if not folder.is_dir():
        return ()
    return tuple(
        SavedQuery(name=file.stem, sql=file.read_text("utf-8"))
        for file in sorted(folder.glob("*.sql"))
        if _NAME.fullmatch(file.stem)
    )


def load_query(name: str) -> SavedQuery:
    """One of them.

    Raises:
        QueryError: There is none of that name.
    """
    found = {query.name: query for query in saved_queries()}
    if name not in found:
        known = ", ".join(found) or "none yet"
        raise QueryError(
            f"there is no saved query {name!r} in {saved_folder()}; there are: {known}"
        )
    return found[name]


def save_query(query: SavedQuery) -> Path:
    """Write it, over one of the same name.

    Raises:
        QueryError: The name cannot be a file's, or the folder cannot be written.
    """
    file = _file(query.name)
    if not query.sql.strip() or len(query.sql) > LONGEST:
        raise QueryError(f"a saved query has 1 to {LONGEST:,} characters, got {len(query.sql):,}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(query.sql.rstrip() + "\n", "utf-8")
    except OSError as error:
        raise QueryError(f"{file} cannot be written: {error.strerror}") from error
    return file


def delete_query(name: str) -> None:
    """Remove it; nothing happens if there is none."""
    _file(name).unlink(missing_ok=True)


def _file(name: str) -> Path:
    if not _NAME.fullmatch(name) or name.endswith("."):
        raise QueryError(
            f"a saved query's name has 1 to 64 letters, digits, spaces and _ . -, got {name!r}"
        )
    return saved_folder() / f"{name}.sql"
