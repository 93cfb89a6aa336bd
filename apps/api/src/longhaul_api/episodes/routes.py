"""Routes about episodes. An episode's id holds slashes and goes into the address as it is."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from longhaul_api.dependencies import ReadStore
from longhaul_api.episodes.filters import EpisodeQuery
from longhaul_api.parameters import LARGEST, RunId
from longhaul_core.store import queries

router = APIRouter(tags=["episodes"])
EpisodeId = Annotated[
    str, Path(description="`run/attempt/phase/training step/group/sample_index/retry`.")
]


@router.get("/runs/{run_id}/episodes")
def list_episodes(
    store: ReadStore, run_id: RunId, query: Annotated[EpisodeQuery, Query()]
) -> queries.EpisodePage:
    """A page of the run's episodes: filtered, sorted."""
    with store.reading(run_id) as session:
        return queries.list_episodes(
            session,
            where=query.where(run_id),
            sort=query.sort,
            descending=query.descending,
            limit=query.limit,
            offset=query.offset,
        )


# Before the route of the whole episode, whose id would swallow "/steps/3".
@router.get("/episodes/{episode_id:path}/steps/{step_index}")
def get_step(
    store: ReadStore,
    episode_id: EpisodeId,
    step_index: Annotated[int, Path(ge=0, le=LARGEST, description="0-based.")],
) -> queries.StepDetail:
    """One step with all its calls, their tokens and logprobs."""
    with store.reading() as session:
        steps = queries.get_episode(session, episode_id=episode_id).steps
    if step_index >= len(steps):
        raise LookupError(
            f"episode {episode_id!r} has {len(steps)} steps, so no step {step_index} (0-based)"
        )
    return steps[step_index]


@router.get("/episodes/{episode_id:path}")
def get_episode(
    store: ReadStore,
    episode_id: EpisodeId,
    tokens: Annotated[bool, Query(description="Token ids and logprobs too.")] = False,
) -> queries.EpisodeDetail:
    """One episode with all its steps and calls: prompts, replies, actions, rewards, credit."""
    with store.reading() as session:
        return queries.get_episode(session, episode_id=episode_id, tokens=tokens)
