"""Query parameters of the list of episodes."""

from pydantic import Field

from longhaul_core.exchange.where import LARGEST, EpisodeWhere
from longhaul_core.store.queries import EpisodeKey, EpisodeSort

__all__ = ["EpisodeQuery"]


class EpisodeQuery(EpisodeWhere):
    """Which episodes, in which order. A filter that is left out does not restrict."""

    sort: EpisodeSort = "training_step"
    """Episodes without a value come last in either direction."""
    descending: bool = True
    """Largest first."""
    after: EpisodeKey | None = None
    """`next_key` of the page before."""
    limit: int = Field(default=50, ge=1, le=1000)
    """Rows of a page."""
    count_up_to: int | None = Field(default=None, ge=0, le=LARGEST)
    """Count what matches, but no further; without it nothing is counted."""
