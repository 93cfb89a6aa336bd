"""Routes about results on panels."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from longhaul_api.dependencies import ReadStore
from longhaul_api.parameters import RunId
from longhaul_core.store import queries

router = APIRouter(tags=["comparison"])

Result = Annotated[
    str,
    Query(
        description="`RUN@TRAINING_STEP`: what the weights of that training step did.",
        max_length=256,
    ),
]


@router.get("/runs/{run_id}/results")
def list_results(store: ReadStore, run_id: RunId) -> list[queries.PanelResult]:
    """The run's results on its panels, by training step; equal panel hashes can be compared."""
    with store.reading(run_id) as session:
        return queries.panel_results(session, run_id=run_id)


@router.get("/comparison")
def compare(
    store: ReadStore,
    a: Result,
    b: Result,
    panel: Annotated[str | None, Query(description="Name of a panel in the run of a.")] = None,
    split: Annotated[Literal["validation", "test"] | None, Query(description="Of it.")] = None,
) -> queries.Comparison:
    """Two results on one panel: tasks that flipped, and the paired difference of b less a.

    Results on panels that differ are refused, with what differs.
    """
    with store.reading() as session:
        return queries.compare(
            session,
            a=queries.Checkpoint.parse(a),
            b=queries.Checkpoint.parse(b),
            panel=panel,
            split=split,
        )
