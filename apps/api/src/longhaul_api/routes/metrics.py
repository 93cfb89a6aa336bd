"""Routes under `/runs/{run_id}/metrics`."""

from typing import Annotated

from fastapi import APIRouter, Query

from longhaul_api.dependencies import ReadStore
from longhaul_api.parameters import RunId
from longhaul_core.store import queries

router = APIRouter(prefix="/runs/{run_id}/metrics", tags=["metrics"])


@router.get("")
def metric_names(store: ReadStore, run_id: RunId) -> list[str]:
    """Names of all metrics of the run, in alphabetical order."""
    with store.reading(run_id) as session:
        return queries.metric_names(session, run_id=run_id)


@router.get("/series")
def metric_series(
    store: ReadStore,
    run_id: RunId,
    name: Annotated[
        list[str] | None,
        Query(max_length=200, description="Which; may be repeated. Without it, all."),
    ] = None,
) -> dict[str, list[queries.MetricPoint]]:
    """Values by training step, for each name; a name without values has an empty list."""
    with store.reading(run_id) as session:
        return queries.metric_series(session, run_id=run_id, names=name)
