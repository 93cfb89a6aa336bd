"""Parameters that several routes take, each with its bounds and its description, once."""

from typing import Annotated, Literal

from fastapi import Path, Query

__all__ = ["Limit", "Offset", "OptionalPhase", "OptionalTrainingStep", "RunId", "RunStatus"]

# SQL databases hold integers of 64 bits; nothing here comes near 32.
LARGEST = 2**31 - 1

RunId = Annotated[str, Path(description="Id of a run.")]
RunStatus = Literal["running", "finished", "failed", "cancelled"]
Phase = Literal["train", "baseline", "validation", "test"]
OptionalPhase = Annotated[Phase | None, Query(description="Only this phase.")]
OptionalTrainingStep = Annotated[
    int | None, Query(ge=0, le=LARGEST, description="Only this training step.")
]
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many.")]
Offset = Annotated[int, Query(ge=0, le=LARGEST, description="Leave out so many at the beginning.")]
