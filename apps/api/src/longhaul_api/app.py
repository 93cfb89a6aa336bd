"""Builds the application. Nothing happens on import, and no route writes."""

from fastapi import FastAPI
from sqlalchemy import Engine

from longhaul_api.episodes import routes as episodes
from longhaul_api.errors import Problem, add_error_handlers
from longhaul_api.groups import routes as groups
from longhaul_api.guard import Guard, HeadAsGet
from longhaul_api.media import routes as media
from longhaul_api.metrics import routes as metrics
from longhaul_api.reference import add_reference_page
from longhaul_api.runs import routes as runs
from longhaul_api.settings import ApiSettings

__all__ = ["create_app"]

DESCRIPTION = (
    "Runs, training metrics, groups and episodes of one trajectory store, for reading. "
    "Returns are undiscounted sums of rewards, logprobs are natural logarithms, times are in "
    "seconds. Views follow the lineage of a run: what a resume rolled back is left out "
    "unless it is asked for."
)


def create_app(engine: Engine, settings: ApiSettings) -> FastAPI:
    """Assemble the API over an open store.

    Args:
        engine: Read by every request; a read-only one keeps even a defect from writing.
        settings: Whom to answer.
    """
    app = FastAPI(
        title="Longhaul trajectory store",
        description=DESCRIPTION,
        version="1",
        docs_url=None,
        redoc_url=None,
        responses={
            404: {"model": Problem, "description": "No such run, group, episode, step or picture."},
            422: {"model": Problem, "description": "A parameter that makes no sense."},
            503: {"model": Problem, "description": "The store cannot be read now."},
        },
    )
    app.state.engine = engine
    app.add_middleware(HeadAsGet)
    app.add_middleware(Guard, settings=settings)
    add_error_handlers(app)
    for part in (runs, metrics, groups, episodes, media):
        app.include_router(part.router)
    add_reference_page(app)
    return app
