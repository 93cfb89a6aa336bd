"""Routes under `/runs` about runs themselves. A route asks one query and returns its result."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from longhaul_api.dependencies import ReadStore
from longhaul_api.parameters import Limit, Offset, OptionalPhase, RunId, RunStatus
from longhaul_core.store import queries
from longhaul_core.types import FailureCause

router = APIRouter(prefix="/runs", tags=["runs"])


@router.get("")
def list_runs(
    store: ReadStore,
    status: Annotated[RunStatus | None, Query(description="Only runs that say so.")] = None,
    kind: Annotated[
        Literal["train", "evaluate"] | None, Query(description="Only runs of this kind.")
    ] = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> list[queries.RunSummary]:
    """All runs, newest first."""
    with store.reading() as session:
        return queries.list_runs(session, status=status, kind=kind, limit=limit, offset=offset)


@router.get("/{run_id}")
def get_run(store: ReadStore, run_id: RunId) -> queries.RunDetail:
    """One run with its configuration and attempts."""
    with store.reading() as session:
        return queries.get_run(session, run_id=run_id)


@router.get("/{run_id}/curve")
def training_curve(
    store: ReadStore, run_id: RunId, phase: OptionalPhase = None
) -> list[queries.CurvePoint]:
    """Mean return, success and length by training step, from the episodes of the lineage."""
    with store.reading(run_id) as session:
        return queries.training_curve(session, run_id=run_id, phase=phase)


@router.get("/{run_id}/evaluations")
def evaluations(
    store: ReadStore, run_id: RunId, split: OptionalPhase = None
) -> list[queries.EvaluationResult]:
    """Results on the run's panels, in order of training step."""
    with store.reading(run_id) as session:
        return queries.evaluations(session, run_id=run_id, split=split)


@router.get("/{run_id}/failures")
def failures(
    store: ReadStore,
    run_id: RunId,
    cause: Annotated[FailureCause | None, Query(description="Only this cause.")] = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> list[queries.Failure]:
    """Failed episodes with their causes, the newest training step first."""
    with store.reading(run_id) as session:
        return queries.failures(session, run_id=run_id, cause=cause, limit=limit, offset=offset)
