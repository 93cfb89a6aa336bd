"""Builds the application. Nothing happens on import, and no route writes."""

import anyio
from fastapi import Depends, FastAPI
from sqlalchemy import Engine
from starlette.middleware.gzip import GZipMiddleware

from longhaul_api.caching import ETags
from longhaul_api.errors import Problem, add_error_handlers
from longhaul_api.guard import Guard, HeadAsGet
from longhaul_api.openapi import TAGS, describe
from longhaul_api.reference import add_reference_page
from longhaul_api.responses import CODE, code_version
from longhaul_api.routes import (
    comparisons,
    episodes,
    events,
    export,
    groups,
    labels,
    media,
    metrics,
    replay,
    runs,
    search,
    sql,
    storage,
)
from longhaul_api.settings import ApiSettings
from longhaul_api.strictness import refuse_unknown_parameters
from longhaul_core.sql_box.box import MOST_AT_ONCE

__all__ = ["create_app"]

DESCRIPTION = (
    "Runs, training metrics, groups and episodes of one trajectory store, for reading. "
    "Returns are undiscounted sums of rewards, logprobs are natural logarithms, times are in "
    "seconds. Views follow the lineage of a run: what a resume rolled back is left out "
    "unless it is asked for."
)


ERRORS: dict[int | str, str] = {
    400: "The request names another host than this one.",
    401: "The server asks for a token, and this is none or another.",
    403: "The request comes from a page of another host.",
    404: "No such run, group, episode, step or picture.",
    422: "A parameter that makes no sense, or that is unknown here.",
    503: "The store cannot be read now; Retry-After says when to ask again, where that helps.",
}
SMALLEST_COMPRESSED = 1_000
"""Bytes; less is as small as its compressed form."""


def create_app(engine: Engine, settings: ApiSettings, *, compress: bool = True) -> FastAPI:
    """Assemble the API over an open store.

    Args:
        engine: Read by every request; a read-only one keeps even a defect from writing.
        settings: Whom to answer.
        compress: False leaves that to a server that this is a part of.
    """
    app = FastAPI(
        title="Longhaul trajectory store",
        description=DESCRIPTION,
        version="1",
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(refuse_unknown_parameters)],
        generate_unique_id_function=lambda route: route.name,
        openapi_tags=TAGS,
        responses={code: {"model": Problem, "description": text} for code, text in ERRORS.items()},
    )
    app.state.engine = engine
    app.state.sql_store = settings.sql_store
    app.state.sql_places = anyio.CapacityLimiter(MOST_AT_ONCE)
    app.state.code_version = code_version(CODE)  # an update may change the files later
    app.add_middleware(ETags)
    if compress:
        app.add_middleware(GZipMiddleware, minimum_size=SMALLEST_COMPRESSED, compresslevel=5)
    app.add_middleware(HeadAsGet)
    app.add_middleware(Guard, settings=settings)
    add_error_handlers(app)
    # The replay's routes begin with an episode's id, which the route of the episode would swallow.
    parts = (runs, metrics, groups, comparisons, replay, episodes, search, labels, events, export)
    for part in (*parts, media, storage, sql):
        app.include_router(part.router)
    add_reference_page(app)
    describe(app)
    return app
