"""What an environment needs to show pictures beside its text, and to draw its text for people.

Observations with a picture are `{"text": …, "picture": …}`, the picture as the bytes of an image
file; their space is `picture_space()`. `text_picture` is the `render` of a world that is text.
"""

import textwrap
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any, TypeVar, cast

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.spaces import Dict, Text
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from longhaul_envs.text import text_space

__all__ = [
    "PNG",
    "DrawnEnv",
    "has_pictures",
    "is_observation_space",
    "picture_space",
    "png",
    "text_picture",
]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"

_COLUMNS, _MAX_LINES = 80, 120
_MARGIN, _SCALE = 4, 2
_INK, _PAPER = 32, 250
_PLAIN = str.maketrans("\u2018\u2019\u201c\u201d\u2013\u2014\u2212\u2022", "''\"\"---*")
"""Typographic characters that the font lacks, and those that read the same."""

Seen = TypeVar("Seen")


class DrawnEnv(gymnasium.Env[Seen, str], ABC):
    """An environment of text actions that draws its state for people."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012  as Gymnasium has it
    render_mode: str | None = "rgb_array"

    @abstractmethod
    def render(self) -> NDArray[np.uint8]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The state as a picture: (height, width, 3), red, green and blue."""


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


def has_pictures(space: object) -> bool:
    """Whether observations of the space, which can be read, are text with a picture."""
    return isinstance(space, Dict) and "picture" in dict(cast("Mapping[str, object]", space))


def text_picture(text: str) -> NDArray[np.uint8]:
    """`text` drawn in a monospaced font, for people; the same pixels everywhere.

    The font is the one that Pillow carries, which has the characters of Latin-1. Any other is
    drawn as its code point, `<U+6F22>`. Lines are wrapped at 80 columns; of a text of more than
    120 lines the last one drawn counts those that are left out.

    Returns:
        Of shape (height, 976, 3), 22 pixels a line and 16 for the margins.
    """
    lines = list(_wrapped(text))
    if len(lines) > _MAX_LINES:
        num_left_out = len(lines) - _MAX_LINES + 1
        lines = [*lines[: _MAX_LINES - 1], f"[{num_left_out} more lines]"]
    font = ImageFont.load_default_imagefont()
    _, _, width, height = font.getbbox("M")
    size = (int(width) * _COLUMNS + 2 * _MARGIN, int(height) * len(lines) + 2 * _MARGIN)
    image = Image.new("L", size, color=_PAPER)
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        draw.text((_MARGIN, _MARGIN + int(height) * number), line, fill=_INK, font=font)
    pixels = np.asarray(image, dtype=np.uint8).repeat(_SCALE, axis=0).repeat(_SCALE, axis=1)
    return np.stack([pixels] * 3, axis=2)


def _wrapped(text: str) -> Iterator[str]:
    """The lines that are drawn, of characters that the font has; at least one."""
    for line in text.expandtabs(4).splitlines() or [""]:
        drawable = "".join(map(_drawable, unicodedata.normalize("NFC", line).translate(_PLAIN)))
        yield from textwrap.wrap(
            drawable,
            _COLUMNS,
            replace_whitespace=False,
            drop_whitespace=False,
            break_on_hyphens=False,
        ) or [""]


def _drawable(character: str) -> str:
    code = ord(character)
    return character if 32 <= code < 127 or 160 <= code < 256 else f"<U+{code:04X}>"
