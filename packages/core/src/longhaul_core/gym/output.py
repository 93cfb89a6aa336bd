"""What an environment prints, of which a run's log takes a bounded part."""

import io
import sys
from typing import TextIO

__all__ = ["MAX_CHARACTERS_OF_A_CALL", "BoundedOutput", "bound_output"]

MAX_CHARACTERS_OF_A_CALL = 20_000
"""That a call of an environment may print."""


class BoundedOutput(io.TextIOBase):
    """A text stream that passes on the beginning of what is written between two `begin_call`."""

    def __init__(self, stream: TextIO, *, limit: int = MAX_CHARACTERS_OF_A_CALL) -> None:
        super().__init__()
        self._stream = stream
        self._limit = self._left = limit

    def begin_call(self) -> None:
        """Take the whole limit again."""
        self._left = self._limit

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, text: str, /) -> int:
        """See `TextIO.write`; what goes beyond the limit is left out, which is said once."""
        if self._left:
            self._stream.write(text[: self._left])
            self._left = max(0, self._left - len(text))
            if not self._left:
                self._stream.write("\n[the rest that this call prints is left out]\n")
        return len(text)

    def flush(self) -> None:
        """Pass it on."""
        self._stream.flush()

    def fileno(self) -> int:
        """Of the stream; what a library or a program of its own writes there is not bounded."""
        return self._stream.fileno()


def bound_output() -> BoundedOutput:
    """Put one in place of this process's standard output and error; they share its limit."""
    output = BoundedOutput(sys.stderr)
    sys.stdout = sys.stderr = output
    return output
