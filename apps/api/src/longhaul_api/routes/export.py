"""The route of a file in another program's format, sent while it is read."""

from itertools import chain
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from longhaul_api.dependencies import ReadStore
from longhaul_api.parameters import RunId
from longhaul_core.exchange import EpisodeWhere, FormatName, export_episodes, format_named

router = APIRouter(tags=["export"])


class ExportQuery(EpisodeWhere):
    """Which episodes, and as what."""

    format: FormatName
    """Of the file; `docs/guides/formats.md` says what each holds."""


@router.get(
    "/runs/{run_id}/export",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "The file, sent piece by piece.",
            "content": {
                "application/jsonl": {"schema": {"type": "string"}},
                "application/json": {"schema": {"type": "array", "items": {"type": "object"}}},
                "application/vnd.apache.parquet": {
                    "schema": {"type": "string", "format": "binary"}
                },
            },
        }
    },
)
def export(
    store: ReadStore, run_id: RunId, query: Annotated[ExportQuery, Query()]
) -> StreamingResponse:
    """Episodes of the run in another program's format.

    Failed ones are left out, and those whose text the run's retention removed.
    """
    format = format_named(query.format)
    pieces = export_episodes(
        store.reading, run_id=run_id, format=format, where=query.filter_of(run_id)
    )
    first = next(pieces)  # what the format cannot hold is an answer, and no file that breaks off
    return StreamingResponse(
        chain([first], pieces),
        media_type=format.media_type,
        headers={
            "Content-Disposition": f'attachment; filename="episodes-{format.name}{format.suffix}"'
        },
    )
