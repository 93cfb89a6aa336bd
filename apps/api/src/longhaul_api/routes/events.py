"""Server-sent events of a run: what was committed since a cursor, then what is, until it ends.

No thread is held for a client: between two looks at the store there is only a timer.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool

from longhaul_api.dependencies import ReadStore, Store
from longhaul_core.errors import ConfigError
from longhaul_core.store import queries

router = APIRouter(tags=["events"])

LARGEST_CURSOR = 2**63 - 1
SECONDS_BETWEEN_LOOKS = 1.0
"""Of one client at the store, a query of an index."""
SECONDS_BETWEEN_SIGNS = 15.0
"""After so long without an event a comment is sent, lest a proxy close the connection."""
CHANGES_PER_EVENT = 500

_changes = TypeAdapter(queries.Changes)

EXAMPLE = """id: 7
event: changes
data: {"cursor":7,"more":false,"rows":[{"commit_number":7,"kind":"episode","training_step":3,\
"episode_id":"run/0/train/3/0/1/0"}],"status":"running","heartbeat_at":1760000000.0}

event: end
data: {"status":"finished"}

"""


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": (
                "Events `changes`, each with `Changes` as data and its cursor as id, then one "
                "event `end` with the status of a run that is over."
            ),
            "content": {"text/event-stream": {"schema": {"type": "string"}, "example": EXAMPLE}},
        }
    },
)
async def follow_run(
    store: ReadStore,
    run: Annotated[str, Query(description="Id of the run to follow.")],
    cursor: Annotated[
        int | None,
        Query(
            ge=0,
            le=LARGEST_CURSOR,
            description="Of what was seen last; 0 begins with the first commit; without it, "
            "with what comes from now on.",
        ),
    ] = None,
    last_event_id: Annotated[
        str | None,
        Header(description="What a browser sends when it connects again; counts before `cursor`."),
    ] = None,
) -> StreamingResponse:
    """Follow a run: every change once, in the order of the commits, as server-sent events."""
    begin = _place(last_event_id, cursor)
    first = await run_in_threadpool(_look, store, run, begin)
    return StreamingResponse(
        _events(store, run, first, known=begin is not None),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def _place(last_event_id: str | None, cursor: int | None) -> int | None:
    if last_event_id is None:
        return cursor
    if not (last_event_id.isascii() and last_event_id.isdecimal() and len(last_event_id) < 19):
        raise ConfigError(f"Last-Event-ID is a cursor, a number; got {last_event_id[:40]!r}")
    return int(last_event_id)


def _look(store: Store, run_id: str, cursor: int | None) -> queries.Changes:
    with store.reading() as session:
        return queries.changes_since(session, run_id=run_id, cursor=cursor, limit=CHANGES_PER_EVENT)


async def _events(
    store: Store, run_id: str, changes: queries.Changes, *, known: bool
) -> AsyncGenerator[bytes]:
    """Begins with `changes`; where the client had no cursor, even without any, to give one."""
    status = ""
    told = 0.0
    while True:
        if changes.rows or not known or changes.status != status:
            known, status, told = True, changes.status, time.monotonic()
            yield b"id: %d\nevent: changes\ndata: %b\n\n" % (
                changes.cursor,
                _changes.dump_json(changes),
            )
        elif time.monotonic() - told > SECONDS_BETWEEN_SIGNS:
            told = time.monotonic()
            yield b": still here\n\n"
        if not changes.more:
            if changes.status != "running":
                yield b'event: end\ndata: {"status":"%b"}\n\n' % changes.status.encode()
                return
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
        try:
            changes = await run_in_threadpool(_look, store, run_id, changes.cursor)
        except LookupError:  # it was deleted
            yield b'event: end\ndata: {"status":"deleted"}\n\n'
            return
