"""Routes under `/runs` about runs themselves. A route asks one query and returns its result."""

import json
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query

from longhaul_api.dependencies import ReadStore
from longhaul_api.parameters import Limit, OptionalPhase, RunId, RunStatus
from longhaul_core.store import queries
from longhaul_core.store.queries.base import Answer
from longhaul_core.store.records import RunKind
from longhaul_core.types import FailureCause

router = APIRouter(prefix="/runs", tags=["runs"])


@router.get("")
def list_runs(
    store: ReadStore,
    status: Annotated[RunStatus | None, Query(description="Only runs that say so.")] = None,
    kind: Annotated[RunKind | None, Query(description="Only runs of this kind.")] = None,
    limit: Limit = 100,
    after: Annotated[
        str | None,
        Query(max_length=128, description="Id of the last run of the page before."),
    ] = None,
) -> list[queries.RunSummary]:
    """All runs, newest first."""
    with store.reading() as session:
        return queries.list_runs(session, status=status, kind=kind, limit=limit, after=after)


@router.get("/{run_id}")
def get_run(store: ReadStore, run_id: RunId) -> queries.RunDetail:
    """One run with its configuration and attempts."""
    with store.reading() as session:
        return queries.get_run(session, run_id=run_id)


@dataclass(frozen=True, slots=True)
class RunConfiguration(Answer):
    """How a run was described, and what is needed to repeat it."""

    config: Any
    """The newest attempt's resolved configuration, without credentials."""
    provenance: list[Any]
    """Of each attempt: state of the code, hashes of model and lock, host."""


@router.get("/{run_id}/config")
def get_config(store: ReadStore, run_id: RunId) -> RunConfiguration:
    """The run's configuration and provenance, as JSON instead of text."""
    with store.reading() as session:
        run = queries.get_run(session, run_id=run_id)
    return RunConfiguration(
        config=json.loads(run.config_json),
        provenance=[json.loads(attempt.provenance_json) for attempt in run.attempts],
    )


@router.get("/{run_id}/audits")
def list_audits(store: ReadStore, run_id: RunId) -> list[queries.AuditDetail]:
    """What audits of the run checked and found, the newest first."""
    with store.reading(run_id) as session:
        return queries.list_audits(session, run_id=run_id)


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
    after: Annotated[
        queries.FailureKey | None, Query(description="`next_key` of the page before.")
    ] = None,
) -> queries.FailurePage:
    """Failed episodes with their causes, the newest training step first."""
    with store.reading(run_id) as session:
        return queries.failures(session, run_id=run_id, cause=cause, limit=limit, after=after)
