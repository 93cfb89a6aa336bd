"""Parquet files whose rows have `messages`, as TRL, verl and data sets of Hugging Face have them.

A row is what a line of `conversations` is, with a role and a text for each message. `tools` and
`metadata` are JSON text, since their fields differ from row to row.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, cast

from longhaul_core.errors import ConfigError
from longhaul_core.exchange.conversations import read_conversations, write_conversations
from longhaul_core.exchange.episodes import ImportedEpisode
from longhaul_core.exchange.reading import Value, parquet_module
from longhaul_core.exchange.stored import StoredEpisode

__all__ = ["ParquetPieces", "read_messages", "write_messages"]

_AS_JSON = ("tools", "metadata")


def read_messages(values: Iterable[Value]) -> Iterator[ImportedEpisode]:
    """As `read_conversations`, of rows."""
    return read_conversations(map(_with_objects, values))


def _with_objects(value: Value) -> Value:
    """A row whose columns of JSON are read."""
    row = cast("Mapping[str, Any]", value.data)
    read: dict[str, Any] = {}
    for name in _AS_JSON:
        if isinstance(text := row.get(name), str):
            try:
                read[name] = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise value.place.error(f"column {name}: no JSON: {error}") from error
    return Value(value.place, {**row, **read})


def write_messages(episode: StoredEpisode) -> Iterator[dict[str, Any]]:
    """A row for each call of the model.

    Raises:
        ConfigError: A message has pictures or calls of tools, which a text cannot have.
    """
    for line in write_conversations(episode):
        place = line["metadata"]["call"].get("step_index")
        where = f"step {place} of {episode.detail.summary.episode_id}"
        yield {
            "messages": [_message(message, where) for message in line["messages"]],
            "tools": json.dumps(line["tools"]) if "tools" in line else None,
            "reply_prefix": line.get("reply_prefix"),
            "metadata": json.dumps(line["metadata"], ensure_ascii=False),
        }


def _message(message: Mapping[str, Any], where: str) -> dict[str, str]:
    content = message["content"]
    if not isinstance(content, str) or message.get("tool_calls"):
        has = "calls of tools" if isinstance(content, str) else "pictures"
        raise ConfigError(
            f"{where}: a message has {has}, and a row of messages has a role and a text for each; "
            "export it by --format conversations"
        )
    thoughts = message.get("reasoning_content")
    text = f"<think>{thoughts}</think>{content}" if thoughts else content
    return {"role": message["role"], "content": text}


class _Sink:
    """Takes the bytes of a file that is written from its beginning to its end."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def write(self, piece: bytes) -> int:
        self._pieces.append(bytes(piece))
        self._size += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


class ParquetPieces:
    """A Parquet file of such rows, in pieces: a row group for some episodes."""

    def __init__(self) -> None:
        """Begin a file.

        Raises:
            ConfigError: pyarrow is not installed.
        """
        parquet = parquet_module()
        self._arrow = import_module("pyarrow")
        text = self._arrow.string()
        message = self._arrow.struct([("role", text), ("content", text)])
        self._schema = self._arrow.schema(
            [
                ("messages", self._arrow.list_(message)),
                *((name, text) for name in ("tools", "reply_prefix", "metadata")),
            ]
        )
        self._sink = _Sink()
        self._writer = parquet.ParquetWriter(self._sink, self._schema)

    def rows(self, rows: list[dict[str, Any]]) -> bytes:
        """What the file goes on with, after some rows, at least one."""
        self._writer.write_table(self._arrow.Table.from_pylist(rows, schema=self._schema))
        return self._sink.taken()

    def end(self) -> bytes:
        """The end of the file."""
        self._writer.close()
        return self._sink.taken()
