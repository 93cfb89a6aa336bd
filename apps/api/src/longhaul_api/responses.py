"""Answers of the replay: JSON written once, and not sent again to whoever has it.

Credit is the last thing that training writes of an episode. From then on an answer has an ETag,
made of what may still change it: a roll back, retention, pruning, a label, and the code that
answers, since a browser keeps what another release gave it.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from fastapi import Request, Response
from pydantic import TypeAdapter
from sqlalchemy.orm import Session

import longhaul_api
import longhaul_core
from longhaul_api.dependencies import Store
from longhaul_core.store.queries import replay

__all__ = ["CODE", "NOT_MODIFIED", "answered", "code_version"]

_HEADERS = {"Cache-Control": "private, no-cache"}
"""To be kept by a browser, and asked about each time."""

NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "What you have (If-None-Match) is still right: the episode is credited."}
}


CODE = tuple(Path(package.__path__[0]) for package in (longhaul_api, longhaul_core))
"""Folders of the code that answers."""
_building = Lock()
"""One adapter at a time: pydantic parses docstrings, and ast.parse of 3.11 fails in two threads."""


class _Kind(NamedTuple):
    """A type that answers are of, which `cache` can keep."""

    type: Any


def answered(
    request: Request,
    store: Store,
    *,
    episode_id: str,
    kind: Any,  # noqa: ANN401  # a type, or a generic alias
    read: Callable[[Session], object],
) -> Response:
    """What `read` finds of an episode, or that it is as it was.

    Args:
        request: Its If-None-Match is compared.
        store: Where to read.
        episode_id: Whose.
        kind: The type of what `read` returns.
        read: Asks the store; not called if the caller has the answer.
    """
    with store.reading() as session:
        version = replay.outline_version(session, episode_id=episode_id)
        headers = dict(_HEADERS)
        if version is not None:
            headers["ETag"] = f'"{version}-{request.app.state.code_version}"'
            if headers["ETag"] in request.headers.get("if-none-match", ""):
                return Response(status_code=304, headers=headers)
        found = read(session)
    with _building:
        adapter = _adapter(_Kind(kind))
    body = adapter.dump_json(found)
    return Response(body, media_type="application/json", headers=headers)


def code_version(packages: tuple[Path, ...]) -> str:
    """A name for the Python code of these folders: another one for each change of it."""
    digest = hashlib.blake2b(digest_size=8)
    for package in packages:
        for file in sorted(package.rglob("*.py")):
            for part in (file.relative_to(package).as_posix().encode(), file.read_bytes()):
                digest.update(f"{len(part)}:".encode() + part)
    return digest.hexdigest()


@cache
def _adapter(kind: _Kind) -> TypeAdapter[Any]:
    return TypeAdapter(kind.type)
