"""Blackjack's rules, and what the best play of them is worth.

Cards are drawn with replacement, so that what was dealt says nothing of what comes, and the
best play follows from three facts: total, whether an ace counts 11, and the dealer's card.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

from longhaul_envs.cards.deck import RANKS, Card

__all__ = ["BUST", "DEALER_STANDS", "Hand", "best_action", "compare", "hand_of", "value_of_deal"]

BUST, DEALER_STANDS = 21, 17
"""A total above the first loses; the dealer takes cards below the second."""

_CHANCES: Mapping[int, float] = {
    points: (4 if points == 10 else 1) / len(RANKS) for points in range(1, 11)
}
"""Points of a card to the chance of drawing it."""


class Hand(NamedTuple):
    """What counts of cards."""

    total: int
    """With an ace at 11 where that does not exceed 21."""
    has_soft_ace: bool
    """Whether an ace counts 11."""

    def with_card(self, points: int) -> "Hand":
        """The hand after a card."""
        hard = self.total - 10 * self.has_soft_ace + points
        has_ace = self.has_soft_ace or points == 1
        # a hand that lost its soft ace to a high total never gets it back: totals only grow
        if has_ace and hard + 10 <= BUST:
            return Hand(hard + 10, has_soft_ace=True)
        return Hand(hard, has_soft_ace=False)

    @property
    def is_bust(self) -> bool:
        """Whether it lost by its own cards."""
        return self.total > BUST


def hand_of(cards: Iterable[Card]) -> Hand:
    """What counts of these cards."""
    hand = Hand(0, has_soft_ace=False)
    for card in cards:
        hand = hand.with_card(card.points)
    return hand


def compare(player: Hand, dealer: Hand) -> float:
    """1 if the player wins, 0 for a draw, -1 if the dealer does; both have stood."""
    if player.is_bust:
        return -1.0
    if dealer.is_bust or player.total > dealer.total:
        return 1.0
    return 0.0 if player.total == dealer.total else -1.0


def best_action(player: Hand, dealer_points: int) -> str:
    """The action of the highest expected reward, `stand` if both are worth the same.

    Args:
        player: Not bust.
        dealer_points: Of the dealer's open card, 1 to 10.
    """
    return (
        "hit"
        if _worth_hit(player, dealer_points) > _worth_stand(player, dealer_points)
        else ("stand")
    )


def value_of_deal(player: Hand, dealer_points: int) -> float:
    """The expected reward of the best play from here, in [-1, 1]."""
    return _value(player, dealer_points)


@cache
def _value(player: Hand, dealer_points: int) -> float:
    return max(_worth_hit(player, dealer_points), _worth_stand(player, dealer_points))


@cache
def _worth_hit(player: Hand, dealer_points: int) -> float:
    drawn = ((chance, player.with_card(points)) for points, chance in _CHANCES.items())
    return sum(
        chance * (-1.0 if hand.is_bust else _value(hand, dealer_points)) for chance, hand in drawn
    )


@cache
def _worth_stand(player: Hand, dealer_points: int) -> float:
    ends = _dealer_ends(Hand(0, has_soft_ace=False).with_card(dealer_points))
    return sum(chance * compare(player, hand) for hand, chance in ends.items())


@cache
def _dealer_ends(hand: Hand) -> Mapping[Hand, float]:
    """Every hand that the dealer may end with, to its chance."""
    if hand.total >= DEALER_STANDS:
        return {hand: 1.0}
    ends: dict[Hand, float] = {}
    for points, chance in _CHANCES.items():
        for end, share in _dealer_ends(hand.with_card(points)).items():
            ends[end] = ends.get(end, 0.0) + chance * share
    return ends
