"""Routes about episodes. An episode's id holds slashes and goes into the address as it is."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from longhaul_api.dependencies import ReadStore
from longhaul_api.parameters import EpisodeId, RunId
from longhaul_core.exchange.where import LARGEST, EpisodeWhere
from longhaul_core.store import queries
from longhaul_core.store.queries import EpisodeKey, EpisodeSort

router = APIRouter(tags=["episodes"])


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


@router.get("/runs/{run_id}/episodes")
def list_episodes(
    store: ReadStore, run_id: RunId, query: Annotated[EpisodeQuery, Query()]
) -> queries.EpisodePage:
    """A page of the run's episodes: filtered, sorted."""
    with store.reading(run_id) as session:
        return queries.list_episodes(
            session,
            where=query.filter_of(run_id),
            sort=query.sort,
            descending=query.descending,
            after=query.after,
            limit=query.limit,
            count_up_to=query.count_up_to,
        )


@router.get("/episodes/{episode_id:path}")
def get_episode(
    store: ReadStore,
    episode_id: EpisodeId,
    tokens: Annotated[bool, Query(description="Token ids and logprobs too.")] = False,
) -> queries.EpisodeDetail:
    """One episode with all its steps and calls: prompts, replies, actions, rewards, credit."""
    with store.reading() as session:
        return queries.get_episode(session, episode_id=episode_id, tokens=tokens)
