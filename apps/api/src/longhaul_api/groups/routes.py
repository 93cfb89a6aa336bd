"""Routes under `/runs/{run_id}/groups`."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from longhaul_api.dependencies import ReadStore
from longhaul_api.parameters import (
    LARGEST,
    Limit,
    Offset,
    OptionalPhase,
    OptionalTrainingStep,
    Phase,
    RunId,
)
from longhaul_core.store import queries

router = APIRouter(prefix="/runs/{run_id}/groups", tags=["groups"])


@router.get("")
def list_groups(
    store: ReadStore,
    run_id: RunId,
    phase: OptionalPhase = None,
    training_step: OptionalTrainingStep = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> queries.GroupPage:
    """A page of the groups of the run's lineage, the newest training step first."""
    with store.reading(run_id) as session:
        return queries.list_groups(
            session,
            run_id=run_id,
            phase=phase,
            training_step=training_step,
            limit=limit,
            offset=offset,
        )


@router.get("/{phase}/{training_step}/{group_index}")
def get_group(
    store: ReadStore,
    run_id: RunId,
    phase: Annotated[Phase, Path(description="When it was played.")],
    training_step: Annotated[int, Path(ge=0, le=LARGEST, description="When it was played.")],
    group_index: Annotated[int, Path(ge=0, le=LARGEST, description="Place in the batch.")],
    attempt: Annotated[
        int | None, Query(ge=0, le=LARGEST, description="Without it, the one of the lineage.")
    ] = None,
) -> queries.GroupDetail:
    """One group with all its episodes."""
    with store.reading(run_id) as session:
        return queries.get_group(
            session,
            run_id=run_id,
            phase=phase,
            training_step=training_step,
            group_index=group_index,
            attempt=attempt,
        )
