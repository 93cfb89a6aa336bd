"""The route of the store's size."""

from fastapi import APIRouter

from longhaul_api.dependencies import ReadStore
from longhaul_core.store import queries

router = APIRouter(tags=["storage"])


@router.get("/storage")
def storage(store: ReadStore) -> queries.StorageStats:
    """Bytes of the store on disk, and what is in it."""
    with store.reading() as session:
        return queries.storage_stats(session)
