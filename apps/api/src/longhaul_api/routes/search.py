"""Search over what episodes say."""

from typing import Annotated

from fastapi import APIRouter, Query

from longhaul_api.dependencies import ReadStore
from longhaul_api.parameters import Limit
from longhaul_core.store import queries
from longhaul_core.store.text_index import SearchField

router = APIRouter(tags=["search"])


@router.get("/search")
def search(
    store: ReadStore,
    words: Annotated[str, Query(max_length=1000, description='Words in any order, and "phrases".')],
    run_id: Annotated[str | None, Query(description="Only this run.")] = None,
    within: Annotated[
        list[SearchField] | None, Query(description="Only where one of these has all the words.")
    ] = None,
    best_first: Annotated[
        bool, Query(description="Rank the hits where they are few; else the newest come first.")
    ] = False,
    after: Annotated[
        queries.SearchKey | None, Query(description="`next_key` of the page before.")
    ] = None,
    limit: Limit = 50,
) -> queries.SearchPage:
    """Steps of lineages whose text has all the words. What is not indexed yet is not found."""
    with store.reading() as session:
        return queries.search_steps(
            session,
            words=words,
            run_id=run_id,
            within=within,
            best_first=best_first,
            after=after,
            limit=limit,
        )
