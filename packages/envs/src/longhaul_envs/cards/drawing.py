"""Cards on a green table, drawn here: no picture file, and no font but the one that Pillow carries.

Shapes are drawn four times as large and scaled down, which smooths their edges.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from longhaul_envs.cards.deck import RANKS, Card

__all__ = ["CARD_HEIGHT", "CARD_WIDTH", "CardRow", "label_font", "table_picture"]

CARD_WIDTH, CARD_HEIGHT = 90, 126
_FINE = 4
"""Fine pixels along a pixel."""
_MARGIN, _GAP, _LABEL_HEIGHT = 16, 10, 26
_WIDTH = 4 * CARD_WIDTH + 3 * _GAP + 2 * _MARGIN
_FELT, _PAPER, _EDGE = (45, 106, 79), (253, 252, 247), (120, 125, 120)
_BLACK, _RED, _BACK = (30, 30, 36), (193, 32, 48), (38, 70, 120)

_Point = tuple[float, float]

_COLUMN = {"left": 0.375, "middle": 0.5, "right": 0.625}
_FOUR_CORNERS = [("left", 0.2), ("right", 0.2), ("left", 0.8), ("right", 0.8)]
_SIDES = [("left", 0.5), ("right", 0.5)]
_EIGHT_SIDES = [("left", 0.4), ("right", 0.4), ("left", 0.6), ("right", 0.6)]
_PIPS: dict[int, list[tuple[str, float]]] = {
    1: [("middle", 0.5)],
    2: [("middle", 0.2), ("middle", 0.8)],
    3: [("middle", 0.2), ("middle", 0.5), ("middle", 0.8)],
    4: _FOUR_CORNERS,
    5: [*_FOUR_CORNERS, ("middle", 0.5)],
    6: [*_FOUR_CORNERS, *_SIDES],
    7: [*_FOUR_CORNERS, *_SIDES, ("middle", 0.35)],
    8: [*_FOUR_CORNERS, *_SIDES, ("middle", 0.35), ("middle", 0.65)],
    9: [*_FOUR_CORNERS, *_EIGHT_SIDES, ("middle", 0.5)],
    10: [*_FOUR_CORNERS, *_EIGHT_SIDES, ("middle", 0.3), ("middle", 0.7)],
}
"""Rank to the places of its pips: a column, and a share of the height."""


@dataclass(frozen=True, slots=True)
class CardRow:
    """Cards side by side, with a line of text above."""

    label: str
    cards: Sequence[Card | None]
    """None lies face down."""


def label_font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The font of all labels, `size` pixels high."""
    return ImageFont.load_default(size=size)


def table_picture(rows: Sequence[CardRow], *, note: str = "") -> NDArray[np.uint8]:
    """A table with rows of cards, and a line of text below them.

    Cards that are too many for the table's width overlap; each one's corner stays in sight.

    Returns:
        Of shape (height, 422, 3), the height by the number of rows.
    """
    row_height = _LABEL_HEIGHT + CARD_HEIGHT + _MARGIN
    height = _MARGIN + row_height * len(rows) + (_LABEL_HEIGHT + _GAP if note else 0)
    table = Image.new("RGB", (_WIDTH, height), _FELT)
    draw = ImageDraw.Draw(table)
    for number, row in enumerate(rows):
        top = _MARGIN + number * row_height
        draw.text((_MARGIN, top - 4), row.label, fill="white", font=label_font(19))
        room = _WIDTH - 2 * _MARGIN - CARD_WIDTH
        step = min(CARD_WIDTH + _GAP, room // max(1, len(row.cards) - 1))
        for place, card in enumerate(row.cards):
            image = _card_back() if card is None else _card_front(card)
            table.paste(image, (_MARGIN + place * step, top + _LABEL_HEIGHT), _card_shape())
    if note:
        place = (_MARGIN, height - _LABEL_HEIGHT - _GAP)
        draw.text(place, note, fill="white", font=label_font(22))
    return np.asarray(table, dtype=np.uint8)


@cache
def _card_shape() -> Image.Image:
    """The mask of a card: rounded corners."""
    fine = Image.new("L", (CARD_WIDTH * _FINE, CARD_HEIGHT * _FINE), 0)
    box = (0, 0, CARD_WIDTH * _FINE - 1, CARD_HEIGHT * _FINE - 1)
    ImageDraw.Draw(fine).rounded_rectangle(box, radius=8 * _FINE, fill=255)
    return fine.resize((CARD_WIDTH, CARD_HEIGHT), Image.Resampling.LANCZOS)


def _fine_card(colour: tuple[int, int, int]) -> Image.Image:
    fine = Image.new("RGB", (CARD_WIDTH * _FINE, CARD_HEIGHT * _FINE), colour)
    box = (0, 0, CARD_WIDTH * _FINE - 1, CARD_HEIGHT * _FINE - 1)
    ImageDraw.Draw(fine).rounded_rectangle(box, radius=8 * _FINE, outline=_EDGE, width=_FINE)
    return fine


@cache
def _card_back() -> Image.Image:
    """Blue, with a lattice in a white frame."""
    fine = _fine_card(_PAPER)
    left, top, right, bottom = 6, 6, CARD_WIDTH - 7, CARD_HEIGHT - 7
    field = Image.new("RGB", ((right - left) * _FINE, (bottom - top) * _FINE), _BACK)
    draw = ImageDraw.Draw(field)
    for start in range(-field.height, field.width, 10 * _FINE):
        line = [(start, 0), (start + field.height, field.height)]
        draw.line(line, fill=(120, 152, 205), width=_FINE)
        mirrored = [(field.width - x, y) for x, y in line]
        draw.line(mirrored, fill=(120, 152, 205), width=_FINE)
    fine.paste(field, (left * _FINE, top * _FINE))
    return fine.resize((CARD_WIDTH, CARD_HEIGHT), Image.Resampling.LANCZOS)


@cache
def _card_front(card: Card) -> Image.Image:
    fine = _fine_card(_PAPER)
    colour = _RED if card.suit in "HD" else _BLACK
    if card.rank > 10:
        _draw_court(fine, card, colour)
    else:
        for column, share in _PIPS[card.rank]:
            size = 42 if card.rank == 1 else 18
            _paste_suit(
                fine,
                card.suit,
                centre=(_COLUMN[column] * CARD_WIDTH, share * CARD_HEIGHT),
                size=size,
                colour=colour,
                upside_down=share > 0.5,
            )
    corner = Image.new("RGB", (21 * _FINE, 40 * _FINE), _PAPER)
    letters = ImageDraw.Draw(corner)
    rank = RANKS[card.rank - 1]
    font = label_font((17 if rank == "10" else 21) * _FINE)
    letters.text((10.5 * _FINE, 1 * _FINE), rank, fill=colour, font=font, anchor="ma")
    _paste_suit(corner, card.suit, centre=(10.5, 30), size=13, colour=colour)
    fine.paste(corner, (2 * _FINE, 5 * _FINE))
    turned = corner.rotate(180)
    place = (fine.width - turned.width - 2 * _FINE, fine.height - turned.height - 5 * _FINE)
    fine.paste(turned, place)
    return fine.resize((CARD_WIDTH, CARD_HEIGHT), Image.Resampling.LANCZOS)


def _draw_court(fine: Image.Image, card: Card, colour: tuple[int, int, int]) -> None:
    """A framed letter under a crown, a hat for the jack, over the suit."""
    draw = ImageDraw.Draw(fine)
    tint = (252, 240, 214)
    left, top, right, bottom = (25, 14, CARD_WIDTH - 26, CARD_HEIGHT - 15)
    box = tuple(_FINE * edge for edge in (left, top, right, bottom))
    draw.rectangle(box, fill=tint, outline=colour, width=_FINE)
    gold = (214, 160, 32)
    crowns: dict[int, list[_Point]] = {
        11: [(33, 38), (33, 30), (45, 22), (57, 30), (57, 38)],
        12: [(31, 38), (29, 24), (38, 31), (45, 20), (52, 31), (61, 24), (59, 38)],
        13: [
            (30, 38),
            (28, 22),
            (34, 30),
            (39, 19),
            (45, 29),
            (51, 19),
            (56, 30),
            (62, 22),
            (60, 38),
        ],
    }
    crown = [(x * _FINE, y * _FINE) for x, y in crowns[card.rank]]
    draw.polygon(crown, fill=gold, outline=colour, width=_FINE)
    font = label_font(44 * _FINE)
    centre = (CARD_WIDTH * _FINE // 2, 62 * _FINE)
    draw.text(centre, RANKS[card.rank - 1], fill=colour, font=font, anchor="mm")
    _paste_suit(fine, card.suit, centre=(CARD_WIDTH / 2, 94), size=22, colour=colour)


def _paste_suit(
    fine: Image.Image,
    suit: str,
    *,
    centre: _Point,
    size: int,
    colour: tuple[int, int, int],
    upside_down: bool = False,
) -> None:
    """A suit's sign, `size` pixels wide and high, on an image of fine pixels."""
    mask = _suit_shape(suit, size * _FINE)
    if upside_down:
        mask = mask.rotate(180)
    left, top = (round(middle * _FINE - mask.width / 2) for middle in centre)
    fine.paste(colour, (left, top, left + mask.width, top + mask.height), mask)


@cache
def _suit_shape(suit: str, size: int) -> Image.Image:
    """The mask of a suit's sign, a square of `size`."""
    mask = Image.new("L", (size, size), 0)
    draw = ImageDraw.Draw(mask)

    def disc(x: float, y: float, radius: float) -> None:
        box = tuple(size * edge for edge in (x - radius, y - radius, x + radius, y + radius))
        draw.ellipse(box, fill=255)

    def shape(points: Sequence[_Point]) -> None:
        draw.polygon([(size * x, size * y) for x, y in points], fill=255)

    _SHAPES[suit](disc, shape)
    return mask


_Disc = Callable[[float, float, float], None]
_Shape = Callable[[Sequence[_Point]], None]


def _heart_outline(*, upside_down: bool) -> list[_Point]:
    """The heart curve, in a unit square."""
    points: list[_Point] = []
    for number in range(120):
        angle = 2 * math.pi * number / 120
        across = 16 * math.sin(angle) ** 3 / 34
        waves = (13, 5, 2, 1)
        up = sum(
            (1 if order == 1 else -1) * weight * math.cos(order * angle)
            for order, weight in enumerate(waves, start=1)
        )
        down = -(up + 2.5) / 30
        points.append((0.5 + across, 0.5 - down if upside_down else 0.5 + down))
    return points


def _stem(shape: _Shape) -> None:
    shape([(0.46, 0.55), (0.54, 0.55), (0.57, 0.8), (0.68, 0.98), (0.32, 0.98), (0.43, 0.8)])


def _heart(disc: _Disc, shape: _Shape) -> None:
    del disc
    shape(_heart_outline(upside_down=False))


def _spade(disc: _Disc, shape: _Shape) -> None:
    del disc
    shape([(x, 0.02 + 0.82 * y) for x, y in _heart_outline(upside_down=True)])
    _stem(shape)


def _diamond(disc: _Disc, shape: _Shape) -> None:
    del disc
    shape([(0.5, 0.0), (0.88, 0.5), (0.5, 1.0), (0.12, 0.5)])


def _club(disc: _Disc, shape: _Shape) -> None:
    disc(0.5, 0.24, 0.22)
    disc(0.25, 0.58, 0.22)
    disc(0.75, 0.58, 0.22)
    disc(0.5, 0.5, 0.14)
    _stem(shape)


_SHAPES: dict[str, Callable[[_Disc, _Shape], None]] = {
    "H": _heart,
    "S": _spade,
    "D": _diamond,
    "C": _club,
}
