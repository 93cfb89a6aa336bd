"""Pages by key: a page begins after the last row of the one before, however far that is.

Nothing is counted or left out by an offset, so the hundredth page costs what the first does, and
rows that arrive meanwhile move no other row to another page.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, cast

from sqlalchemy import ColumnElement, and_, or_, tuple_

from longhaul_core.errors import ConfigError
from longhaul_core.text import storable_text

__all__ = ["after_key", "decoded_key", "encoded_key", "key_order"]


def encoded_key(*values: str | float | None) -> str:
    """A key as text for an address: letters, digits, `-` and `_` only."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decoded_key(text: str, *types: type[str] | type[int] | type[float]) -> list[Any]:
    """What `encoded_key` made a text of.

    Args:
        text: From an address.
        types: Of the values, in order; a float may be None.

    Raises:
        ConfigError: It is no such text, or of other types.
    """
    try:
        padded = text + "=" * (-len(text) % 4)
        values: Any = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error):
        values = None
    found = cast("list[object]", values) if isinstance(values, list) else []
    if len(found) != len(types) or not all(map(_is_of, found, types)):
        raise ConfigError(f"after: {text[:80]!r} is no key of this list: take one that a page gave")
    return found


def _is_of(value: object, kind: type) -> bool:
    if kind is float:
        return value is None or isinstance(value, float) or _is_of(value, int)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return isinstance(value, str) and storable_text(value) == value


def key_order(columns: Sequence[ColumnElement[Any]], *, descending: bool) -> tuple[Any, ...]:
    """ORDER BY all columns in one direction, so that an index is read forwards or backwards."""
    return tuple(column.desc() if descending else column.asc() for column in columns)


def after_key(
    columns: Sequence[ColumnElement[Any]],
    values: Sequence[str | float | None],
    *,
    descending: bool,
) -> ColumnElement[bool]:
    """Rows behind the one with `values`, where NULL in the first column comes last either way.

    Args:
        columns: That order the rows and tell each from any other; only the first may hold NULL.
        values: Theirs, of the last row of a page.
        descending: Of the order.
    """
    first, *others = columns
    value, *rest = values
    if value is None:
        return and_(first.is_(None), _beyond(others, rest, descending=descending))
    beyond = _beyond(columns, values, descending=descending)
    return or_(beyond, first.is_(None)) if _nullable(first) else beyond


def _beyond(
    columns: Sequence[ColumnElement[Any]], values: Sequence[Any], *, descending: bool
) -> ColumnElement[bool]:
    left, right = tuple_(*columns), tuple_(*values)
    return left < right if descending else left > right


def _nullable(column: ColumnElement[Any]) -> bool:
    return bool(getattr(column, "nullable", True))
