"""Pictures in a body: base64 alone, since the gateway fetches nothing."""

import base64
import binascii
import re

from longhaul_core.types import MediaType, Picture
from longhaul_trainer.gateway.dialects.fields import refusal

__all__ = ["picture_of_base64", "picture_of_url"]

_DATA_URL = re.compile(r"data:(?P<type>[^;,]*)(;[^;,]*)*?;base64,", re.IGNORECASE)
_URL_SAFE = str.maketrans("-_", "+/")
"""Of the other alphabet of base64, in which Google's client sends."""
_IMAGE = "a PNG, JPEG or WebP image"
_AS_URL = f"{_IMAGE} as a data URL, data:image/png;base64,…"
_AS_BASE64 = f"{_IMAGE} as base64"


def picture_of_url(url: str, *, place: str) -> Picture:
    """The picture that a data URL holds.

    Raises:
        ApiError: `unsupported` for an address elsewhere, `invalid_request` for no picture.
    """
    head = _DATA_URL.match(url)
    if head is None:
        raise refusal(place, url, f"{_AS_URL}: the gateway fetches nothing", kind="unsupported")
    return _picture(url[head.end() :], place=place, understood=_AS_URL)


def picture_of_base64(data: str, *, place: str) -> Picture:
    """The picture that base64 text holds. Its type is what its bytes are, whatever it is called.

    Raises:
        ApiError: It is none of PNG, JPEG and WebP.
    """
    return _picture(data, place=place, understood=_AS_BASE64)


def _picture(data: str, *, place: str, understood: str) -> Picture:
    padded = data.translate(_URL_SAFE) + "=" * (-len(data) % 4)
    try:
        decoded = base64.b64decode(padded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise refusal(place, data, f"{understood} ({error})") from error
    media_type = _media_type(decoded)
    if media_type is None:
        raise refusal(place, data, f"{understood}; its bytes are none of these")
    return Picture.of(decoded, media_type=media_type)


def _media_type(data: bytes) -> MediaType | None:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return None
