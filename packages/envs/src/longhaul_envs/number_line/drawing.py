"""NumberLine's picture: both numbers, and where they lie on the line."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from longhaul_envs.cards.drawing import label_font
from longhaul_envs.number_line.tasks import HEIGHT, WIDTH
from longhaul_envs.pictures import png

__all__ = ["line_file", "line_picture"]

_MARGIN = 28
_INK, _BLUE, _GREEN = (40, 44, 52), (36, 98, 190), (30, 132, 73)
_FINE = 3
"""Shapes are drawn this many times as large and scaled down, which smooths their edges."""


@lru_cache(maxsize=1024)
def line_file(*, current: int, target: int, max_position: int) -> bytes:
    """`line_picture` as a PNG file. Drawing one takes 20 ms, and a line has few of them."""
    return png(line_picture(current=current, target=target, max_position=max_position))


def line_picture(*, current: int, target: int, max_position: int) -> NDArray[np.uint8]:
    """The line from 0 to `max_position`, a flag at the target, a disc at the current number.

    Returns:
        Of shape (220, 422, 3).
    """
    fine = Image.new("RGB", (WIDTH * _FINE, HEIGHT * _FINE), (252, 252, 250))
    draw = ImageDraw.Draw(fine)
    axis = 160 * _FINE
    span = (WIDTH - 2 * _MARGIN) * _FINE

    def along(number: int) -> int:
        return _MARGIN * _FINE + span * number // max_position

    draw.line([(along(0), axis), (along(max_position), axis)], fill=_INK, width=2 * _FINE)
    labelled = max(1, max_position // 12)
    for number in range(max_position + 1):
        high = 7 if number % labelled == 0 else 4
        tick = [(along(number), axis - high * _FINE), (along(number), axis + high * _FINE)]
        draw.line(tick, fill=_INK, width=_FINE)
        if number % labelled == 0:
            place = (along(number), axis + 26 * _FINE)
            draw.text(place, str(number), fill=_INK, font=label_font(15 * _FINE), anchor="mm")
    flag = along(target)
    pole = [(flag, axis), (flag, axis - 44 * _FINE)]
    draw.line(pole, fill=_GREEN, width=2 * _FINE)
    draw.polygon(
        [
            (flag, axis - 44 * _FINE),
            (flag + 18 * _FINE, axis - 36 * _FINE),
            (flag, axis - 28 * _FINE),
        ],
        fill=_GREEN,
    )
    here, radius = along(current), 8 * _FINE
    draw.ellipse((here - radius, axis - radius, here + radius, axis + radius), fill=_BLUE)
    font = label_font(30 * _FINE)
    draw.text((_MARGIN * _FINE, 18 * _FINE), f"Target: {target}", fill=_GREEN, font=font)
    draw.text((_MARGIN * _FINE, 56 * _FINE), f"Current: {current}", fill=_BLUE, font=font)
    image = fine.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
    return np.asarray(image, dtype=np.uint8)
