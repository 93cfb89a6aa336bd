"""Items drawn by `Random.random`, the one method whose values Python promises never to change."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

__all__ = ["draw", "draw_several"]

_Item = TypeVar("_Item")


def draw(items: Sequence[_Item], random: Random) -> _Item:
    """One of them."""
    return items[int(random.random() * len(items))]


def draw_several(items: Sequence[_Item], count: int, random: Random) -> list[_Item]:
    """`count` different ones, in the order in which they were drawn."""
    remaining = list(items)
    return [remaining.pop(int(random.random() * len(remaining))) for _ in range(count)]
