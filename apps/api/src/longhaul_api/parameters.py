"""Parameters that several routes take, each with its bounds and its description, once."""

from typing import Annotated, Literal

from fastapi import Depends, Path, Query

from longhaul_api.dependencies import ReadSession
from longhaul_core.store import queries

__all__ = ["Limit", "Offset", "OptionalPhase", "OptionalTrainingStep", "RunId", "RunStatus"]

# SQL databases hold integers of 64 bits; nothing here comes near 32.
LARGEST = 2**31 - 1


def known_run(
    session: ReadSession, run_id: Annotated[str, Path(description="Id of a run.")]
) -> str:
    """The id, if there is such a run; `LookupError` otherwise, instead of an empty list."""
    return queries.get_run(session, run_id=run_id).summary.run_id


RunId = Annotated[str, Depends(known_run)]
RunStatus = Literal["running", "finished", "failed", "cancelled"]
Phase = Literal["train", "baseline", "validation", "test"]
OptionalPhase = Annotated[Phase | None, Query(description="Only this phase.")]
OptionalTrainingStep = Annotated[
    int | None, Query(ge=0, le=LARGEST, description="Only this training step.")
]
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many.")]
Offset = Annotated[int, Query(ge=0, le=LARGEST, description="Leave out so many at the beginning.")]
