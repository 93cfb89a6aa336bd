"""What an environment needs to show pictures beside its text.

Its observations are `{"text": …, "picture": …}`, the picture as the bytes of an image file, and its
observation space is `picture_space()`.
"""

from collections.abc import Mapping
from io import BytesIO
from typing import Any, cast

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Dict, Text
from numpy.typing import NDArray
from PIL import Image

from longhaul_envs.text import text_space

__all__ = ["PNG", "is_observation_space", "picture_space", "png"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png(pixels: NDArray[np.uint8]) -> bytes:
    """An image as a PNG file, the same bytes for the same pixels.

    Args:
        pixels: Of shape (height, width, 3), red, green and blue from 0 to 255.

    Raises:
        ValueError: The array has another shape or type.
    """
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise ValueError(
            f"pixels must be uint8 of shape (height, width, 3), got {pixels.dtype} of shape "
            f"{pixels.shape}"
        )
    file = BytesIO()
    Image.fromarray(pixels, mode="RGB").save(file, format="PNG")
    return file.getvalue()


class PNG(Space[bytes]):
    """The space of PNG files; a sample is one of a few random pixels."""

    def sample(self, mask: Any = None, probability: Any = None) -> bytes:  # noqa: ANN401 Gymnasium's
        """A small random picture."""
        del mask, probability
        return png(self.np_random.integers(0, 256, size=(2, 2, 3), dtype=np.uint8))

    def contains(self, x: object) -> bool:
        """Whether `x` are bytes that begin like a PNG file."""
        return isinstance(x, bytes) and x.startswith(_SIGNATURE)

    @property
    def is_np_flattenable(self) -> bool:
        """Never: files have no fixed length."""
        return False


def picture_space() -> Dict:
    """The space of observations with a text and a picture."""
    return Dict({"text": text_space(), "picture": PNG()})


def is_observation_space(space: object) -> bool:
    """Whether observations of the space can be read: text, or text with a picture."""
    if isinstance(space, Dict):
        inner = dict(cast("Mapping[str, object]", space))
        return isinstance(inner.pop("text", None), Text) and all(
            name == "picture" and isinstance(one, PNG) for name, one in inner.items()
        )
    return isinstance(space, Text)
