"""Where in a statement a mistake is, and what was meant. For messages: it guards nothing."""

import difflib
import re
import sqlite3
from collections.abc import Iterable

__all__ = [
    "code_of",
    "did_you_mean",
    "line_and_column",
    "pointed_at",
    "position_of",
    "position_of_syntax_error",
]

_NOT_CODE = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?(?:\*/|$)", re.DOTALL)
_NAMED = re.compile(
    r"no such (?:column|table|function): (?:\w+\.)*(?P<missing>\w+)"
    r"|ambiguous column name: (?P<twice>[\w.]+)"
    r"|the table '(?P<table>[^']+)'|the function (?P<function>\w+)\("
    r"|misuse of .*?(?P<misused>\w+)\(\)"
    r"|wrong number of arguments to function (?P<arguments>\w+)"
)
_NEAR = re.compile(r'near "(?P<token>.*)": syntax error', re.DOTALL)
_MISSING = re.compile(
    r"(?:no such (?P<kind>column|table): (?:\w+\.)*(?P<name>\w+)"
    r'|(?P<kind_pg>column|relation) "?(?:\w+\.)*(?P<name_pg>\w+)"? does not exist)'
)


def position_of(message: str, sql: str) -> int | None:
    """0-based place of the word that SQLite's message is about; None if it names none."""
    named = _NAMED.search(message)
    if named is None:
        return None
    word = next(group for group in named.groups() if group is not None)
    found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", code_of(sql), re.IGNORECASE)
    return found.start() if found else None


def position_of_syntax_error(message: str, sql: str, connection: sqlite3.Connection) -> int | None:
    """0-based place of the token that SQLite's message says a syntax error is near.

    Its parser stops at the first token that cannot follow those before it: of the places where the
    token stands, the first one up to which the statement gives the same error.

    Args:
        message: SQLite's.
        sql: The statement.
        connection: Asked for plans of beginnings of the statement; none of them is carried out.
    """
    near = _NEAR.search(message)
    if near is None:
        return len(sql.rstrip()) if message == "incomplete input" else None
    token = near["token"]
    for place in re.finditer(re.escape(token), code_of(sql)):
        try:
            connection.execute(f"EXPLAIN {sql[: place.end()]}").close()
        except (sqlite3.Error, sqlite3.Warning) as error:
            if str(error) == message:
                return place.start()
    return None


def code_of(sql: str) -> str:
    """The statement with its texts and comments blanked out, every place as it was."""
    return _NOT_CODE.sub(lambda found: " " * len(found.group()), sql)


def line_and_column(sql: str, position: int) -> tuple[int, int]:
    """Where a place is, both from 1."""
    before = sql[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1


def pointed_at(sql: str, position: int) -> str:
    """The line of a place, and below it a mark under the place."""
    line, column = line_and_column(sql, position)
    shown = sql.split("\n")[line - 1]
    first = max(0, column - 61)
    return f"{shown[first : first + 100]}\n{' ' * (column - 1 - first)}^"


def did_you_mean(message: str, *, columns: Iterable[str], relations: Iterable[str]) -> str:
    """An end for a message that some name does not exist: the names most like it, or nothing."""
    missing = _MISSING.search(message)
    if missing is None:
        return ""
    of_columns = "column" in {missing["kind"], missing["kind_pg"]}
    word = str(missing["name"] or missing["name_pg"]).lower()
    names = sorted(set(columns if of_columns else relations))
    if not of_columns and word in names:  # no slip: this store lacks it
        return ""
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""
