"""Parameters that several routes take, each with its bounds and its description, once."""

from typing import Annotated

from fastapi import Path, Query

from longhaul_core.exchange.where import LARGEST
from longhaul_core.store.records import Phase, RunStatus

__all__ = [
    "LARGEST",
    "EpisodeId",
    "Limit",
    "OptionalPhase",
    "Phase",
    "RunId",
    "RunStatus",
]

RunId = Annotated[str, Path(description="Id of a run.")]
EpisodeId = Annotated[
    str, Path(description="`run/attempt/phase/training step/group/sample_index/retry`.")
]
OptionalPhase = Annotated[Phase | None, Query(description="Only this phase.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many.")]
