"""Episodes of a store as a file of another program's format, in pieces."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from longhaul_core.errors import ConfigError
from longhaul_core.exchange.formats import Format
from longhaul_core.exchange.messages import ParquetPieces
from longhaul_core.exchange.stored import ReplyPrefixes, StoredEpisode
from longhaul_core.store import queries
from longhaul_core.store.queries import EpisodeFilter, EpisodeKey

__all__ = ["export_episodes"]

EPISODES_PER_PIECE = 20


def export_episodes(
    reading: Callable[[], AbstractContextManager[Session]],
    *,
    run_id: str,
    format: Format,
    where: EpisodeFilter | None = None,
    report: Callable[[int], object] = lambda _: None,
) -> Iterator[bytes]:
    """The file in pieces of some episodes, by training step, phase, group and place in it.

    Failed episodes are left out: they have no return, and no format could tell them from others.
    So are those whose prompts and replies the run's retention removed.
    Between two pieces no session is open, so that nobody waits for a slow reader, and each piece
    may be asked for by another thread.

    Args:
        reading: Opens a session for a block.
        run_id: The run's.
        format: Of the file.
        where: Which episodes; its `run_id` and `failed` are set here.
        report: Is called with how many episodes each piece was made of.

    Raises:
        LookupError: There is no such run; before the first piece.
        ConfigError: `where` asks for failed episodes, or Parquet is not installed; before the first
            piece. An episode that the format cannot hold; names it.
    """
    asked = where or EpisodeFilter()
    if asked.failed:
        raise ConfigError("failed episodes have no return, and are not exported: leave out failed")
    asked = replace(asked, run_id=run_id, failed=False)
    with reading() as session:
        prefixes = ReplyPrefixes.of_run(queries.get_run(session, run_id=run_id).config_json)
    file = ParquetPieces() if format.is_parquet else _JsonPieces(format.is_array)
    return _pieces(
        reading, format=format, where=asked, prefixes=prefixes, report=report, written=file
    )


def _pieces(
    reading: Callable[[], AbstractContextManager[Session]],
    *,
    format: Format,
    where: EpisodeFilter,
    prefixes: ReplyPrefixes,
    report: Callable[[int], object],
    written: "ParquetPieces | _JsonPieces",
) -> Iterator[bytes]:
    key: EpisodeKey | None = None
    while True:
        with reading() as session:
            page = queries.list_episodes(
                session,
                where=where,
                sort="training_step",
                descending=False,
                after=key,
                limit=EPISODES_PER_PIECE,
            )
            objects = [
                each
                for row in page.rows
                if row.retention != "removed"  # a reply that is gone is no empty one
                for each in format.write(
                    _stored(session, row.episode_id, prefixes, tokens=format.with_tokens)
                )
            ]
        report(len(page.rows))
        if objects:
            yield written.rows(objects)
        key = page.next_key
        if key is None:
            break
    yield written.end()


class _JsonPieces:
    """A file of JSON: an array, or a line for each object."""

    def __init__(self, is_array: bool) -> None:
        self._is_array = is_array
        self._before = b"["

    def rows(self, rows: list[dict[str, Any]]) -> bytes:
        lines = [json.dumps(row, ensure_ascii=False, allow_nan=False).encode() for row in rows]
        if not self._is_array:
            return b"".join(line + b"\n" for line in lines)
        before, self._before = self._before, b","
        return before + b"\n" + b",\n".join(lines)

    def end(self) -> bytes:
        if not self._is_array:
            return b""
        return (b"[" if self._before == b"[" else b"") + b"\n]\n"


def _stored(
    session: Session, episode_id: str, prefixes: ReplyPrefixes, *, tokens: bool
) -> StoredEpisode:
    return StoredEpisode(
        detail=queries.get_episode(session, episode_id=episode_id, tokens=tokens),
        prefixes=prefixes,
        media=lambda content_hash: queries.get_media(session, content_hash=content_hash).data,
    )
