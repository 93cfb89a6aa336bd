"""Routes of one episode's parts. They stand before that of the episode, whose id has slashes."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from longhaul_api.dependencies import ReadStore
from longhaul_api.parameters import LARGEST, EpisodeId
from longhaul_api.responses import NOT_MODIFIED, answered
from longhaul_core.store import queries
from longhaul_core.store.queries import replay

router = APIRouter(prefix="/episodes/{episode_id:path}", tags=["replay"], responses=NOT_MODIFIED)

StepIndex = Annotated[int, Path(ge=0, le=LARGEST, description="0-based.")]
FirstStep = Annotated[int, Query(alias="from", ge=0, le=LARGEST, description="First step.")]
StopStep = Annotated[
    int, Query(alias="to", ge=0, le=LARGEST, description="Step after the last one.")
]


@router.get("/outline", response_model=replay.EpisodeOutline)
def get_outline(request: Request, store: ReadStore, episode_id: EpisodeId) -> Response:
    """Numbers of all steps and calls in columns: rewards, credit, times, counts of tokens."""
    return answered(
        request,
        store,
        episode_id=episode_id,
        kind=replay.EpisodeOutline,
        read=lambda session: replay.episode_outline(session, episode_id=episode_id),
    )


@router.get("/texts", response_model=replay.EpisodeTexts)
def get_texts(
    request: Request,
    store: ReadStore,
    episode_id: EpisodeId,
    first: FirstStep = 0,
    stop: StopStep = LARGEST,
    tokens: Annotated[bool, Query(description="The tokens of the replies too.")] = True,
) -> Response:
    """Observations, prompts and replies of some steps; each message once, prompts as numbers."""
    return answered(
        request,
        store,
        episode_id=episode_id,
        kind=replay.EpisodeTexts,
        read=lambda session: replay.step_texts(
            session, episode_id=episode_id, first=first, stop=stop, tokens=tokens
        ),
    )


@router.get("/changes", response_model=list[replay.PromptChanges])
def get_changes(
    request: Request,
    store: ReadStore,
    episode_id: EpisodeId,
    first: FirstStep = 0,
    stop: StopStep = LARGEST,
) -> Response:
    """What each prompt kept, dropped and added since the one before of its agent and purpose."""
    return answered(
        request,
        store,
        episode_id=episode_id,
        kind=tuple[replay.PromptChanges, ...],
        read=lambda session: replay.prompt_changes(
            session, episode_id=episode_id, first=first, stop=stop
        ),
    )


@router.get("/transcript", response_model=list[replay.TranscriptStep])
def get_transcript(request: Request, store: ReadStore, episode_id: EpisodeId) -> Response:
    """The whole episode in order: each message where it was first read, and every reply."""
    return answered(
        request,
        store,
        episode_id=episode_id,
        kind=tuple[replay.TranscriptStep, ...],
        read=lambda session: replay.episode_transcript(session, episode_id=episode_id),
    )


@router.get("/neighbours")
def get_neighbours(store: ReadStore, episode_id: EpisodeId) -> replay.Neighbours:
    """The other episodes of its group, and an episode of the groups before and after."""
    with store.reading() as session:
        return replay.neighbours(session, episode_id=episode_id)


@router.get("/truth")
def get_truth(store: ReadStore, episode_id: EpisodeId) -> tuple[queries.SampledTruth, ...]:
    """What its steps were worth, by the continuations of each policy that the store has."""
    with store.reading() as session:
        return queries.sampled_truth(session, episode_id=episode_id)


@router.get("/steps/{step_index}/calls/{call_index}/tokens", response_model=replay.CallTokenSlice)
def get_tokens(
    request: Request,
    store: ReadStore,
    episode_id: EpisodeId,
    step_index: StepIndex,
    call_index: Annotated[int, Path(ge=0, le=LARGEST, description="0-based place in the step.")],
    first: Annotated[
        int, Query(alias="from", ge=0, le=LARGEST, description="Place of the first token.")
    ] = 0,
    stop: Annotated[
        int | None,
        Query(alias="to", ge=0, le=LARGEST, description="Place after the last; without it, all."),
    ] = None,
) -> Response:
    """Tokens of a call with their text: the prompt's, then the reply's, counted through."""
    return answered(
        request,
        store,
        episode_id=episode_id,
        kind=replay.CallTokenSlice,
        read=lambda session: replay.call_tokens(
            session,
            episode_id=episode_id,
            step_index=step_index,
            call_index=call_index,
            first=first,
            stop=stop,
        ),
    )


@router.get("/steps/{step_index}", response_model=queries.StepDetail)
def get_step(
    request: Request, store: ReadStore, episode_id: EpisodeId, step_index: StepIndex
) -> Response:
    """One step with all its calls, their tokens and logprobs."""
    return answered(
        request,
        store,
        episode_id=episode_id,
        kind=queries.StepDetail,
        read=lambda session: replay.get_step(session, episode_id=episode_id, step_index=step_index),
    )
