"""Wordle's picture: a board of tiles."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from longhaul_envs.wordle.words import NUM_LETTERS

__all__ = ["board_picture"]

_TILE, _GAP, _FINE = 56, 6, 3
"""Pixels of a tile and between two; how many times as large shapes are drawn before scaling."""
_PAPER, _EMPTY = (255, 255, 255), (211, 214, 218)
_COLOURS = {"g": (83, 141, 78), "y": (201, 160, 55), "b": (120, 124, 126)}


def board_picture(rows: Sequence[tuple[str, str]], num_rows: int) -> NDArray[np.uint8]:
    """A row of tiles for each guess.

    Args:
        rows: Guesses with their marks; both empty for a guess that was no word.
        num_rows: Of the board.

    Returns:
        Of shape (62 rows + 6, 316, 3).
    """
    step, tile = (_TILE + _GAP) * _FINE, _TILE * _FINE
    size = (NUM_LETTERS * step + _GAP * _FINE, num_rows * step + _GAP * _FINE)
    fine = Image.new("RGB", size, _PAPER)
    draw = ImageDraw.Draw(fine)
    font = ImageFont.load_default(size=34 * _FINE)
    for row in range(num_rows):
        guess, marked = rows[row] if row < len(rows) else ("", "")
        is_refused = row < len(rows) and not guess
        for column in range(NUM_LETTERS):
            left, top = _GAP * _FINE + column * step, _GAP * _FINE + row * step
            box = (left, top, left + tile, top + tile)
            if not guess:
                draw.rounded_rectangle(box, 4 * _FINE, outline=_EMPTY, width=2 * _FINE)
                if is_refused:
                    draw.line((left, top + tile, left + tile, top), fill=_EMPTY, width=2 * _FINE)
                continue
            draw.rounded_rectangle(box, 4 * _FINE, fill=_COLOURS[marked[column]])
            middle = (left + tile / 2, top + tile / 2)
            draw.text(middle, guess[column].upper(), fill="white", font=font, anchor="mm")
    image = fine.resize((size[0] // _FINE, size[1] // _FINE), Image.Resampling.LANCZOS)
    return np.asarray(image, dtype=np.uint8)
