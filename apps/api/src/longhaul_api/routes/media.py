"""The route of a picture, which is known by its content and so never changes."""

from typing import Annotated, get_args

from fastapi import APIRouter, Path, Response

from longhaul_api.dependencies import ReadStore
from longhaul_core.store import queries
from longhaul_core.types import MediaType

router = APIRouter(tags=["media"])

HEADERS = {
    "Cache-Control": "private, max-age=31536000, immutable",
    "X-Content-Type-Options": "nosniff",
}


@router.get(
    "/media/{content_hash}",
    response_class=Response,
    responses={200: {"content": {media_type: {} for media_type in get_args(MediaType)}}},
)
def get_media(
    store: ReadStore,
    content_hash: Annotated[str, Path(description="SHA-256 of the bytes, as hexadecimal text.")],
) -> Response:
    """The bytes of a picture: PNG, JPEG or WebP."""
    with store.reading() as session:
        media = queries.get_media(session, content_hash=content_hash)
    if media.media_type not in get_args(MediaType):
        raise LookupError(f"{content_hash!r} is of type {media.media_type!r}, which is no picture")
    return Response(media.data, media_type=media.media_type, headers=HEADERS)
