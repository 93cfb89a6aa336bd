"""Routes under `/runs/{run_id}/groups`."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from longhaul_api.dependencies import ReadStore
from longhaul_api.parameters import LARGEST, Phase, RunId
from longhaul_core.store import DiscardReason, queries

router = APIRouter(prefix="/runs/{run_id}/groups", tags=["groups"])


class GroupQuery(BaseModel):
    """Which groups. A filter that is left out does not restrict."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    phase: Phase | None = None
    training_step: int | None = Field(default=None, ge=0, le=LARGEST)
    """Only of this one, which played it."""
    environment: str | None = None
    task_id: str | None = None
    outcomes: queries.GroupOutcomes | None = None
    """How the episodes ended: not all alike in success or return, alike and solved, or neither."""
    has_signal: bool | None = None
    """False: given credit, but no step had an advantage."""
    discard_reason: DiscardReason | None = None
    """Why no update took it."""
    rolled_back: bool | None = False
    """False: the lineage; true: what a resume took back."""
    descending: bool = True
    """The newest training step first."""
    limit: int = Field(default=100, ge=1, le=1000)
    after: queries.GroupKey | None = None
    """`next_key` of the page before."""

    def where(self) -> queries.GroupFilter:
        """The store's filter."""
        return queries.GroupFilter(
            min_training_step=self.training_step,
            max_training_step=self.training_step,
            **self.model_dump(exclude={"training_step", "descending", "limit", "after"}),
        )


async def _group_id(  # async: needs no thread
    run_id: RunId,
    phase: Annotated[Phase, Path(description="When it was played.")],
    training_step: Annotated[int, Path(ge=0, le=LARGEST, description="When it was played.")],
    group_index: Annotated[int, Path(ge=0, le=LARGEST, description="Place in the batch.")],
    attempt: Annotated[
        int | None, Query(ge=0, le=LARGEST, description="Without it, the one of the lineage.")
    ] = None,
) -> queries.GroupId:
    return queries.GroupId(
        run_id=run_id,
        phase=phase,
        training_step=training_step,
        group_index=group_index,
        attempt=attempt,
    )


OneGroup = Annotated[queries.GroupId, Depends(_group_id)]


@router.get("")
def list_groups(
    store: ReadStore, run_id: RunId, query: Annotated[GroupQuery, Query()]
) -> queries.GroupPage:
    """A page of the run's groups, by training step."""
    with store.reading(run_id) as session:
        return queries.list_groups(
            session,
            run_id=run_id,
            where=query.where(),
            descending=query.descending,
            after=query.after,
            limit=query.limit,
        )


@router.get("/{phase}/{training_step}/{group_index}")
def get_group(store: ReadStore, group: OneGroup) -> queries.GroupDetail:
    """One group with all its episodes."""
    with store.reading(group.run_id) as session:
        return queries.get_group(session, group)


@router.get("/{phase}/{training_step}/{group_index}/steps")
def get_group_steps(store: ReadStore, group: OneGroup) -> queries.GroupSteps:
    """One group with every step of its episodes: what each did, and what it was credited with."""
    with store.reading(group.run_id) as session:
        return queries.group_steps(session, group)


@router.get("/{phase}/{training_step}/{group_index}/anchors")
def get_anchor_groups(store: ReadStore, group: OneGroup) -> tuple[queries.AnchorGroup, ...]:
    """The states that steps of the group share, the most visited first, with their returns."""
    with store.reading(group.run_id) as session:
        return queries.anchor_groups(session, group)


@router.get("/{phase}/{training_step}/{group_index}/graph")
def get_state_graph(store: ReadStore, group: OneGroup) -> queries.StateGraph:
    """All transitions of the group as one graph, with the distance of each state to success."""
    with store.reading(group.run_id) as session:
        return queries.state_graph(session, group)


@router.get("/{phase}/{training_step}/{group_index}/advantages")
def get_advantages(
    store: ReadStore,
    group: OneGroup,
    estimator: Annotated[
        list[str] | None, Query(description="Only by these; repeat it for several.")
    ] = None,
) -> queries.EstimatedGroup:
    """The advantage of each step by any built-in estimator, computed by the code that trains."""
    with store.reading(group.run_id) as session:
        return queries.advantages_by_estimator(session, group, names=estimator)
