"""Maze's picture: the whole maze, the way that was walked, the player and the goal."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from longhaul_envs.maze.layouts import Cell, Layout

__all__ = ["maze_picture"]

_CELL, _FINE = 28, 3
"""Pixels of a cell, and how many times as large shapes are drawn before they are scaled down."""
_WALL, _FLOOR, _WAY = (52, 58, 70), (244, 241, 234), (165, 190, 224)
_GOAL, _PLAYER = (30, 132, 73), (36, 98, 190)


def maze_picture(layout: Layout, walked: Sequence[Cell]) -> NDArray[np.uint8]:
    """The maze, with a line along `walked`, whose last cell is the player's.

    Returns:
        Of shape (28 rows, 28 columns, 3).
    """
    size = _CELL * _FINE
    width, height = len(layout.rows[0]), len(layout.rows)
    fine = Image.new("RGB", (width * size, height * size), _WALL)
    draw = ImageDraw.Draw(fine)

    def box(cell: Cell, inset: float) -> tuple[float, float, float, float]:
        top, left = cell[0] * size, cell[1] * size
        return (
            left + inset * size,
            top + inset * size,
            left + size - 1 - inset * size,
            top + size - 1 - inset * size,
        )

    for cell in layout.open_cells():
        draw.rectangle(box(cell, 0), fill=_FLOOR)
    draw.rectangle(box(layout.goal, 0.12), fill=_GOAL)
    centres = [(column * size + size // 2, row * size + size // 2) for row, column in walked]
    if len(centres) > 1:
        draw.line(centres, fill=_WAY, width=size // 5, joint="curve")
    draw.ellipse(box(walked[0], 0.38), fill=_WAY)
    draw.ellipse(box(walked[-1], 0.2), fill=_PLAYER)
    image = fine.resize((width * _CELL, height * _CELL), Image.Resampling.LANCZOS)
    return np.asarray(image, dtype=np.uint8)
