"""Values of a file one by one, each with its place: JSON's lines, array or value, Parquet's rows.

The one decision to know: a file is never read whole. A value is, and may have `MOST_BYTES`; what
is kept of a file does not grow with it, but for a group of Parquet's rows. Nothing but JSON and
Parquet is read: a pickle can run code.
"""

import json
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar, cast

from pydantic import BaseModel, ValidationError

from longhaul_core.errors import ConfigError, FormatError
from longhaul_core.text import shortened

__all__ = [
    "MOST_BYTES",
    "PARQUET",
    "Place",
    "Value",
    "data_files",
    "parquet_module",
    "read_values",
    "validated",
]

MOST_BYTES = 64 * 2**20
"""Of one JSON value: a line of JSONL, an element of an array, or the only value of a file."""
_CHUNK = 1 << 20
_SUFFIXES = (".jsonl", ".json", ".ndjson")
PARQUET = ".parquet"
_ROWS = 64
"""Of a Parquet file, read together."""
_BUFFER_BYTES = 2**20
"""Of a column of a Parquet file; without it all of a row group is held."""
_SPACE = re.compile(r"[ \t\r\n]*")
ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file something stands."""

    file: Path
    line: int
    """From 1; of Parquet, the row."""

    @property
    def words(self) -> tuple[str, str]:
        """What places and their parts are called in such a file."""
        return ("row", "column") if self.file.suffix == PARQUET else ("line", "field")

    def error(self, problem: str) -> FormatError:
        """The error that names the place."""
        return FormatError(f"{self.file}, {self.words[0]} {self.line}: {problem}")

    @contextmanager
    def errors(self) -> Generator[None]:
        """Name the place in what a `ValueError` of the block says.

        Raises:
            FormatError: The block raised a `ValueError`.
        """
        try:
            yield
        except FormatError:
            raise
        except ValueError as error:
            raise self.error(str(error)) from error


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a file."""

    place: Place
    data: Any


class _Reports(Protocol):
    def __call__(self, num_bytes: int, /) -> object: ...


def data_files(path: Path, *, parquet: bool = False) -> list[Path]:
    """The files to read, by the numbers in their names: `path` itself, or those in that folder.

    Args:
        path: A file or a folder.
        parquet: Whether they are Parquet, and not JSON.

    Raises:
        FormatError: There is none, or one is of another kind.
    """
    suffixes = (PARQUET,) if parquet else _SUFFIXES
    if path.is_dir():
        found = [file for file in path.rglob("*") if file.suffix in suffixes and file.is_file()]
        if not found:
            raise FormatError(f"{path} holds no file that ends in {', '.join(suffixes)}")
        return sorted(found, key=lambda file: _natural(str(file.relative_to(path))))
    if not path.is_file():
        raise FormatError(f"there is no file {path}")
    if path.suffix not in suffixes:
        kind = "Parquet" if parquet else "JSON"
        raise FormatError(
            f"{path} ends in {path.suffix!r}; {kind} alone is read, from {', '.join(suffixes)}"
        )
    return [path]


def _natural(name: str) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)
    ]


def read_values(file: Path, *, report: _Reports = lambda _: None) -> Iterator[Value]:
    """The values of a file: of JSONL each line's, of an array its elements, else the one there is.

    Args:
        file: UTF-8, with or without a byte order mark; or Parquet, whose values are its rows,
            without what is null.
        report: Is called with the number of bytes that were read since the call before.

    Raises:
        FormatError: A value is no JSON, or is larger than `MOST_BYTES`; or the file is no Parquet.
    """
    if file.suffix == PARQUET:
        yield from _rows(file, report)
        return
    try:
        with file.open("rb") as stream:
            if stream.read(3) != b"\xef\xbb\xbf":
                stream.seek(0)
            beginning = stream.tell()
            if _first_line_is_whole(stream):
                stream.seek(beginning)
                yield from _lines(stream, file, report)
            else:
                stream.seek(beginning)
                yield from _elements(stream, file, report)
    except OSError as error:
        raise FormatError(f"cannot read {file}: {error.strerror}") from error


def parquet_module() -> Any:  # noqa: ANN401 - pyarrow has no types
    """Pyarrow's module of Parquet files, which is slow to import.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        return import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "Parquet needs pyarrow: install longhaul-core[parquet], or take another --format"
        ) from error


def _rows(file: Path, report: _Reports) -> Iterator[Value]:
    parquet = parquet_module()
    number = read = 0
    try:
        with parquet.ParquetFile(file, buffer_size=_BUFFER_BYTES) as rows:
            total = max(1, rows.metadata.num_rows)
            for batch in rows.iter_batches(batch_size=_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield Value(Place(file, number), _without_null(row))
                done = file.stat().st_size * number // total
                report(done - read)
                read = done
    except (OSError, UnicodeDecodeError, import_module("pyarrow").ArrowException) as error:
        raise FormatError(f"cannot read {file} as Parquet: {error}") from error


def _without_null(value: object) -> object:
    """A row as JSON would have it: Parquet gives each struct all fields that any of them has."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {name: _without_null(each) for name, each in fields.items() if each is not None}
    if isinstance(value, list):
        return [_without_null(each) for each in cast("list[object]", value)]
    return value


def _first_line_is_whole(stream: BinaryIO) -> bool:
    """Whether the first line that is not empty is an object, as each of JSONL is."""
    while (first := stream.read(1)).isspace():
        pass
    if first != b"{":
        return False  # and an array may be one line, which is not read here
    text = first + stream.readline(MOST_BYTES + 1).rstrip()
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text.endswith(b"}")
    return True


def _lines(stream: BinaryIO, file: Path, report: _Reports) -> Iterator[Value]:
    number = 0
    while line := stream.readline(MOST_BYTES + 1):
        number += 1
        report(len(line))
        place = Place(file, number)
        if len(line) > MOST_BYTES:
            raise _too_large(place)
        if text := line.strip():
            yield Value(place, _parsed(lambda text=text: _decoder.decode(text.decode()), place))


def _elements(stream: BinaryIO, file: Path, report: _Reports) -> Iterator[Value]:
    """Elements of an array, or the only value; the buffer doubles until a value is whole."""
    text = _Text(stream, file, report)
    text.skip_space()
    if text.at_end:
        return
    if not text.next_is("["):
        yield text.value()
        text.skip_space()
        if not text.at_end:
            raise text.place.error("more follows the JSON value; put one value on each line")
        return
    text.skip(1)
    text.skip_space()
    while not text.next_is("]"):
        yield text.value()
        text.skip_space()
        if text.next_is(","):
            text.skip(1)
            text.skip_space()
        elif not text.next_is("]"):
            raise text.place.error("the array has neither ',' nor ']' here")
    text.skip(1)
    text.skip_space()
    if not text.at_end:
        raise text.place.error("more follows the end of the array")


class _Text:
    """The text of a file from a place on that moves forwards."""

    def __init__(self, stream: BinaryIO, file: Path, report: _Reports) -> None:
        self._stream, self._file, self._report = stream, file, report
        self._buffer, self._rest, self._position, self._line = "", b"", 0, 1
        self._ended = False

    @property
    def place(self) -> Place:
        return Place(self._file, self._line)

    @property
    def at_end(self) -> bool:
        return not self._has(1)

    def next_is(self, character: str) -> bool:
        return self._has(1) and self._buffer[self._position] == character

    def skip(self, count: int) -> None:
        self._line += self._buffer.count("\n", self._position, self._position + count)
        self._position += count

    def skip_space(self) -> None:
        while self._has(1):
            found = _SPACE.match(self._buffer, self._position)
            assert found is not None  # it may be empty
            self.skip(found.end() - self._position)
            if self._position < len(self._buffer):
                return

    def value(self) -> Value:
        place = self.place
        wanted = _CHUNK
        while True:
            whole = not self._has(wanted)
            try:
                data, end = _decoder.raw_decode(self._buffer, self._position)
            except RecursionError as error:
                raise place.error("is nested too deeply") from error
            except ValueError as error:
                if whole:
                    problem = getattr(error, "msg", str(error))
                    raise place.error(f"no JSON: {problem}") from error
            else:
                # a number at the end of the buffer may go on
                if whole or end < len(self._buffer):
                    self.skip(end - self._position)
                    return Value(place, data)
            wanted *= 2
            if wanted > MOST_BYTES:
                raise _too_large(place)

    def _has(self, count: int) -> bool:
        """Whether so many characters are left, which are then in the buffer."""
        while len(self._buffer) - self._position < count and not self._ended:
            read = self._stream.read(max(_CHUNK, count))
            self._report(len(read))
            self._ended = not read
            raw = self._rest + read
            cut = len(raw) if self._ended else _whole_characters(raw)
            text = _parsed(lambda raw=raw, cut=cut: raw[:cut].decode(), self.place)
            self._rest = raw[cut:]
            self._buffer = self._buffer[self._position :] + text
            self._position = 0
        return len(self._buffer) - self._position >= count


def _whole_characters(raw: bytes) -> int:
    """How many bytes of UTF-8 end with a whole character."""
    for back in range(1, min(4, len(raw)) + 1):
        byte = raw[-back]
        if byte < 0x80:
            return len(raw)
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(raw) if back >= length else len(raw) - back
    return len(raw)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


_decoder = json.JSONDecoder(parse_constant=_no_number)
ParsedT = TypeVar("ParsedT")


def _parsed(parse: Callable[[], ParsedT], place: Place) -> ParsedT:
    try:
        return parse()
    except RecursionError as error:
        raise place.error("is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise place.error(f"is not UTF-8: {error.reason} at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise place.error(f"no JSON: {error.msg} at character {error.pos + 1}") from error
    except ValueError as error:  # a number of too many digits, NaN
        raise place.error(f"no JSON: {error}") from error


def _too_large(place: Place) -> FormatError:
    return place.error(f"a value is larger than {MOST_BYTES:,} bytes, the most that is read")


def validated(model: type[ModelT], value: Value) -> ModelT:
    """The value as a `model`.

    Raises:
        FormatError: It is none; names line and field.
    """
    try:
        return model.model_validate(value.data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        got = shortened(repr(first["input"]), 80)
        field = f"{value.place.words[1]} {where}: " if where else ""
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise value.place.error(f"{field}{first['msg']}, got {got}{more}") from error
