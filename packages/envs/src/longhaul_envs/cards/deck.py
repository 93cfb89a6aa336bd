"""Playing cards, drawn with replacement: every draw is from a whole pack of 52."""

from dataclasses import dataclass
from random import Random

__all__ = ["RANKS", "SUITS", "Card", "draw_card", "draw_suit", "named"]

RANKS = ("A", "2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K")
SUITS = {"S": "\u2660", "H": "\u2665", "D": "\u2666", "C": "\u2663"}
"""Letter of a suit to its sign."""


@dataclass(frozen=True, slots=True)
class Card:
    """A rank and a suit."""

    rank: int
    """From 1, the ace, to 13, the king."""
    suit: str
    """A key of `SUITS`."""

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= len(RANKS) or self.suit not in SUITS:
            raise ValueError(f"there is no card of rank {self.rank!r} and suit {self.suit!r}")

    @property
    def code(self) -> str:
        """E.g. `10H`, the ten of hearts."""
        return f"{RANKS[self.rank - 1]}{self.suit}"

    @property
    def points(self) -> int:
        """From 1, the ace, to 10: jack, queen and king count 10."""
        return min(self.rank, 10)

    def __str__(self) -> str:
        """Rank and sign of the suit."""
        return f"{RANKS[self.rank - 1]}{SUITS[self.suit]}"


def named(code: str) -> Card:
    """The card of a code.

    Raises:
        ValueError: No card has this code.
    """
    rank, suit = code[:-1], code[-1:]
    if rank not in RANKS or suit not in SUITS:
        raise ValueError(f"no card is called {code!r}; codes look like '10H', the ten of hearts")
    return Card(RANKS.index(rank) + 1, suit)


def draw_card(random: Random) -> Card:
    """A card, each of the 52 as likely; of `random` only `random()` is called, and twice."""
    return Card(1 + int(random.random() * len(RANKS)), draw_suit(random))


def draw_suit(random: Random) -> str:
    """A suit, each of the four as likely."""
    return tuple(SUITS)[int(random.random() * len(SUITS))]
