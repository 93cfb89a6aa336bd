"""What the child process writes: JSON, one line each of columns, rows, and how it ended."""

import datetime
import json
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import cast

from longhaul_core.sql_box.limits import Fence

__all__ = ["Answer", "Refused", "cell"]


class Refused(Exception):
    """The statement is wrong, or a fence stopped it."""

    def __init__(
        self, message: str, *, fence: Fence | None = None, position: int | None = None
    ) -> None:
        super().__init__(message)
        self.fence = fence
        self.position = position
        """0-based place in the statement, in characters."""


class Answer:
    """Writes rows as they come, until there are enough."""

    def __init__(
        self, *, max_rows: float, max_bytes: float, begins: Callable[[], None] | None = None
    ) -> None:
        """Nothing is written yet.

        Args:
            max_rows: No more are written.
            max_bytes: Of all rows.
            begins: Is called when the statement begins.
        """
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._begins = begins
        self._rows = self._bytes = 0
        self.truncated: Fence | None = None

    def begin(self) -> None:
        """The store is open, and the statement begins now: its time is counted from here."""
        if self._begins is not None:
            self._begins()
        _line({"begun": True})
        sys.stdout.flush()

    def columns(self, names: Sequence[str]) -> None:
        """What each row holds."""
        _line({"columns": list(names)})

    def row(self, row: Sequence[object]) -> bool:
        """Write a row. False if it did not fit: then there is no need of more."""
        if self._rows >= self._max_rows:
            self.truncated = Fence.ROWS
            return False
        text = json.dumps([cell(value) for value in row], ensure_ascii=False)
        size = len(text.encode("utf-8", "replace"))
        if self._bytes + size > self._max_bytes:
            self.truncated = Fence.BYTES
            return False
        self._rows += 1
        self._bytes += size
        sys.stdout.write(f'{{"row": {text}}}\n')
        return True

    def end(self, seconds: float) -> None:
        """All went well."""
        _line({"end": {"truncated": self.truncated, "seconds": seconds, "bytes": self._bytes}})


def refuse(error: Refused) -> None:
    """Say why there is no answer."""
    _line({"error": {"message": str(error), "fence": error.fence, "position": error.position}})


def cell(value: object) -> object:
    """A value of a database in JSON; bytes as `{"hex": …}`."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Decimal():
            # PostgreSQL sums and averages integers as numeric; SQLite gives integers and floats.
            return (
                int(value)
                if value == value.to_integral_value() and not _scaled(value)
                else float(value)
            )
        case bytes() | bytearray() | memoryview():
            return {"hex": bytes(cast("bytes", value)).hex()}
        case datetime.datetime():
            return value.isoformat(sep=" ")
        case list() | dict():
            return json.dumps(value, ensure_ascii=False, default=str)
        case _:
            return str(value)


def _scaled(value: Decimal) -> bool:
    exponent = value.as_tuple().exponent
    return not isinstance(exponent, int) or exponent < 0


def _line(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message, ensure_ascii=False) + "\n")
