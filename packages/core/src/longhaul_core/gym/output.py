"""What an environment prints, of which a run's log takes a bounded part."""

import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

__all__ = ["MAX_CHARACTERS_OF_A_CALL", "BoundedOutput", "bound_output"]

MAX_CHARACTERS_OF_A_CALL = 20_000
"""That a call of an environment may print."""


class BoundedOutput:
    """A text stream that passes on the beginning of what is written between two `begin_call`.

    All else that a stream has (`buffer`, `encoding`, `fileno`, …) is the other stream's: what a
    library or a program of its own writes there is not bounded.
    """

    def __init__(self, stream: TextIO, *, limit: int = MAX_CHARACTERS_OF_A_CALL) -> None:
        self._stream = stream
        self._limit = self._left = limit

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever a stream has
        return getattr(self._stream, name)

    def begin_call(self) -> None:
        """Take the whole limit again."""
        self._left = self._limit

    def write(self, text: str, /) -> int:
        """See `TextIO.write`; what goes beyond the limit is left out, which is said once."""
        if self._left >= 0:
            self._stream.write(text[: self._left])
            self._left -= len(text)
            if self._left < 0:
                self._stream.write("\n[the rest that this call prints is left out]\n")
        return len(text)

    def writelines(self, lines: Iterable[str], /) -> None:
        """See `TextIO.writelines`."""
        for line in lines:
            self.write(line)


def bound_output() -> BoundedOutput:
    """Put one in place of this process's standard output and error; they share its limit."""
    output = BoundedOutput(sys.stderr)
    sys.stdout = sys.stderr = cast(TextIO, output)
    return output
