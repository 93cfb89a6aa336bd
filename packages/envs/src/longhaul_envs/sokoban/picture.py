"""Sokoban's board as a picture: what `render` returns, and what the option `image` shows.

Only filled rectangles and circles are drawn, so that the pixels are the same everywhere.
"""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from longhaul_envs.sokoban.board import CELL_PIXELS, Board, Position

__all__ = ["picture_of"]

_FLOOR, _WALL, _MORTAR = (44, 44, 52), (150, 90, 60), (110, 62, 42)
_TARGET, _BOX, _HOME, _EDGE = (220, 60, 60), (226, 178, 92), (108, 190, 96), (120, 84, 30)
_PLAYER, _FACE = (80, 150, 240), (250, 250, 250)

_Box = tuple[int, int, int, int]


def picture_of(board: Board, position: Position) -> NDArray[np.uint8]:
    """The board seen from above.

    Walls are brown bricks, floor is dark, a target is a red dot, a box is a yellow crate, a box on
    a target is a green crate with a red dot, the player is blue, with a red rim on a target.

    Returns:
        Of shape (32 * rows, 32 * columns, 3), red, green and blue from 0 to 255.
    """
    side = board.size * CELL_PIXELS
    image = Image.new("RGB", (side, side), color=_FLOOR)
    draw = ImageDraw.Draw(image)
    for cell in range(board.size**2):
        row, column = divmod(cell, board.size)
        left, top = column * CELL_PIXELS, row * CELL_PIXELS

        def inner(margin: int, left: int = left, top: int = top) -> _Box:
            last = CELL_PIXELS - 1 - margin
            return (left + margin, top + margin, left + last, top + last)

        on_target = cell in board.targets
        if cell not in board.floor:
            draw.rectangle(inner(0), fill=_MORTAR)
            for brick in _bricks(left, top):
                draw.rectangle(brick, fill=_WALL)
        elif cell in position.boxes:
            draw.rectangle(inner(3), fill=_EDGE)
            draw.rectangle(inner(6), fill=_HOME if on_target else _BOX)
            if on_target:
                draw.ellipse(inner(12), fill=_TARGET)
        else:
            if on_target:
                draw.ellipse(inner(3 if cell == position.player else 10), fill=_TARGET)
            if cell == position.player:
                draw.ellipse(inner(6), fill=_PLAYER)
                draw.ellipse(inner(13), fill=_FACE)
    return np.asarray(image, dtype=np.uint8)


def _bricks(left: int, top: int) -> list[_Box]:
    """Three courses of bricks, the middle one shifted by half a brick."""
    half, course = CELL_PIXELS // 2, CELL_PIXELS // 3
    bricks: list[_Box] = []
    for number in range(3):
        upper = top + number * course
        lower = upper + course - 2
        cuts = [0, half, CELL_PIXELS] if number % 2 == 0 else [0, half // 2, 3 * half // 2]
        ends = [*cuts[1:], CELL_PIXELS] if number % 2 else cuts[1:]
        bricks += [
            (left + begin, upper, left + end - 2, lower)
            for begin, end in zip(cuts, ends, strict=False)
        ]
    return bricks
