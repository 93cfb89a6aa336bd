"""The route of a run's labels; those of one episode come with it."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from longhaul_api.dependencies import ReadStore
from longhaul_api.parameters import RunId
from longhaul_core.store.queries.labels import LabelKey, LabelPage, list_labels

router = APIRouter(tags=["labels"])


class LabelQuery(BaseModel):
    """Which labels. A filter that is left out does not restrict."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: str | None = Field(default=None, max_length=255)
    """Only labels of this name."""
    author: str | None = Field(default=None, max_length=255)
    """Only those of this person or judge."""
    limit: int = Field(default=100, ge=1, le=1000)
    """Rows of a page."""
    after: LabelKey | None = None
    """`next_key` of the page before."""


@router.get("/runs/{run_id}/labels")
def labels(store: ReadStore, run_id: RunId, query: Annotated[LabelQuery, Query()]) -> LabelPage:
    """Labels of the run's episodes and steps, by episode and step."""
    with store.reading(run_id) as session:
        return list_labels(
            session,
            run_id=run_id,
            name=query.name,
            author=query.author,
            limit=query.limit,
            after=query.after,
        )
