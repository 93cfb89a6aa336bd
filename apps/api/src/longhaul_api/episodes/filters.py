"""Query parameters of the list of episodes."""

from pydantic import BaseModel, ConfigDict, Field

from longhaul_api.parameters import LARGEST, Phase
from longhaul_core.store.queries import EpisodeFilter, EpisodeSort
from longhaul_core.types import StopReason

__all__ = ["EpisodeQuery"]


class EpisodeQuery(BaseModel):
    """Which episodes, in which order. A filter that is left out does not restrict."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    phase: Phase | None = None
    min_training_step: int | None = Field(default=None, ge=0, le=LARGEST)
    max_training_step: int | None = Field(default=None, ge=0, le=LARGEST)
    group_index: int | None = Field(default=None, ge=0, le=LARGEST)
    failed: bool | None = None
    """True: only failed episodes; false: only those that ended."""
    success: bool | None = None
    trained: bool | None = None
    """Whether they were in the loss."""
    stop_reason: StopReason | None = None
    environment: str | None = None
    task_id: str | None = None
    min_return: float | None = None
    max_return: float | None = None
    rolled_back: bool | None = False
    """False: the lineage; true: what a resume took back."""
    sort: EpisodeSort = "training_step"
    """Episodes without a value come last in either direction."""
    descending: bool = True
    limit: int = Field(default=50, ge=1, le=1000)
    offset: int = Field(default=0, ge=0, le=LARGEST)

    def where(self, run_id: str) -> EpisodeFilter:
        """The store's filter for the episodes of one run."""
        order_and_page = {"sort", "descending", "limit", "offset"}
        return EpisodeFilter(run_id=run_id, **self.model_dump(exclude=order_and_page))
