"""KeyDoor's picture: both rooms, the key, the door, the goal and the agent."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from longhaul_envs.key_door.rooms import Cell, Rooms

__all__ = ["rooms_picture"]

_CELL = 28
"""Pixels of a cell."""
_WALL, _FLOOR, _GRID = (52, 58, 70), (244, 241, 234), (222, 217, 205)
_KEY, _GOAL, _AGENT = (201, 138, 4), (30, 132, 73), (36, 98, 190)


def rooms_picture(rooms: Rooms) -> NDArray[np.uint8]:
    """The rooms from above; a locked door is filled, an open one is a frame.

    Returns:
        Of shape (28 size, 28 (2 size + 1), 3).
    """
    image = Image.new("RGB", ((2 * rooms.size + 1) * _CELL, rooms.size * _CELL), _WALL)
    draw = ImageDraw.Draw(image)

    def box(cell: Cell, inset: int) -> tuple[int, int, int, int]:
        top, left = cell[0] * _CELL, cell[1] * _CELL
        return left + inset, top + inset, left + _CELL - 1 - inset, top + _CELL - 1 - inset

    for row in range(rooms.size):
        for column in range(2 * rooms.size + 1):
            if column != rooms.size:
                draw.rectangle(box((row, column), 0), fill=_FLOOR, outline=_GRID)
    draw.rectangle(box(rooms.door, 2), fill=_KEY if rooms.is_shut else _FLOOR, outline=_KEY)
    draw.rectangle(box(rooms.goal, 4), fill=_GOAL)
    if rooms.key is not None:
        draw.regular_polygon((*_middle(rooms.key), 9), 4, rotation=45, fill=_KEY)
    draw.ellipse(box(rooms.at, 7), fill=_AGENT)
    return np.asarray(image, dtype=np.uint8)


def _middle(cell: Cell) -> tuple[int, int]:
    return cell[1] * _CELL + _CELL // 2, cell[0] * _CELL + _CELL // 2
