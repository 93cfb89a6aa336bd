"""Pictures of cards: every card is another picture, and the same one each time."""

import numpy as np
import pytest

from longhaul_envs.cards.deck import RANKS, SUITS, Card, named
from longhaul_envs.cards.drawing import CARD_HEIGHT, CARD_WIDTH, CardRow, table_picture

PACK = [Card(rank, suit) for rank in range(1, len(RANKS) + 1) for suit in SUITS]


def test_the_52_cards_and_the_back_are_53_pictures() -> None:
    pictures = {table_picture([CardRow("", [card])]).tobytes() for card in [*PACK, None]}

    assert len(pictures) == 53


def test_hearts_and_diamonds_are_red_and_the_others_are_not() -> None:
    for card in PACK:
        pixels = table_picture([CardRow("", [card])])[42 : 42 + CARD_HEIGHT, 16 : 16 + CARD_WIDTH]
        red = (pixels[..., 0] > 170) & (pixels[..., 1] < 80) & (pixels[..., 2] < 80)
        assert (red.sum() > 60) == (card.suit in "HD"), card


def test_many_cards_stay_on_the_table() -> None:
    few, many = (table_picture([CardRow("You", [named("AS")] * count)]) for count in (4, 11))

    assert few.shape == many.shape == (184, 422, 3)
    assert not np.array_equal(few, many)
    assert (many[:, -16:] == many[0, 0]).all()  # the margin is free


def test_a_card_has_a_code() -> None:
    assert [named(card.code) for card in PACK] == PACK
    assert str(named("10H")) == "10\u2665"
    for code in ("", "H", "1H", "11S", "10X", "10h"):
        with pytest.raises(ValueError, match="no card is called"):
            named(code)
