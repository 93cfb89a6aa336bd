"""Blackjack as a Gymnasium environment of text, or of text and pictures."""

from random import Random
from typing import Any, ClassVar

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from longhaul_envs.blackjack import tasks as task_list
from longhaul_envs.blackjack.rules import (
    DEALER_STANDS,
    best_action,
    compare,
    hand_of,
)
from longhaul_envs.cards.deck import Card, draw_card
from longhaul_envs.cards.drawing import CardRow, table_picture
from longhaul_envs.packaged import PackagedEnv
from longhaul_envs.pictures import picture_space, png

__all__ = ["Blackjack"]

_ACTIONS = ("stand", "hit")
_GOAL = "Goal: come nearer to 21 than the dealer"
_VERDICTS = {1.0: "You win", 0.0: "A draw", -1.0: "You lose"}


class Blackjack(PackagedEnv[Any, task_list.BlackjackOptions]):
    """Come nearer to 21 than the dealer.

    Task:
        A deal of two cards, the dealer's open card, and all cards that come later. Each card is
        drawn from a whole pack.
    Action:
        `hit` takes a card; above 21 the game is lost. `stand` lets the dealer take cards up to 17
        or more, an ace counted 11 where it fits, and compares. Anything else changes nothing.
    Reward:
        1 for a win, 0 for a draw, -1 for a loss, at the end.
    Episode end:
        Terminated by `stand`, or above 21. Never truncated here.
    Seed:
        `options={"task_id": ...}` chooses the task, with all cards that come, and the seed then
        decides nothing. Without it the seed draws a deal as a pack gives it.
    Info:
        `admissible_actions`: always both. `anchor_state`: the deal, and all cards on the table.
        `success`: a win. `action_accepted`: False for anything but `hit` and `stand`.
    """

    packaged = task_list.source
    expert_may_lose: ClassVar[str] = "the best play loses to the cards that come"

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        super().__init__(**options)
        self._in_text = self.options.observation == "text"
        if not self._in_text:
            self.observation_space = picture_space()
        self._name = ""
        self._player: list[Card] = []
        self._dealer: list[Card] = []
        self._later = Random(0)
        self._reward: float | None = 0.0
        """Of the game, once it is over."""

    def expert_action(self) -> str:
        """The action of the highest expected reward; it knows no hidden card."""
        return best_action(hand_of(self._player), self._dealer[0].points)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if options is not None and "task_id" in options:
            self._name = str(options["task_id"])
            deal = task_list.deal_of(self._name)
        else:
            seed_of_deal = int(self.np_random.integers(2**31))
            self._name, deal = f"seed {seed_of_deal}", task_list.draw_deal(seed_of_deal)
        self._player, self._dealer, self._later = list(deal.player), [deal.dealer], deal.later
        self._dealer.append(draw_card(self._later))
        self._reward = None
        return self._observe(), self._info(accepted=True)

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._reward is not None:
            raise ResetNeeded("there is no episode, or it is over; reset before the next step")
        word, said = action.strip().lower(), ""
        if word == "hit":
            self._player.append(draw_card(self._later))
            if hand_of(self._player).is_bust:
                self._reward = -1.0
        elif word == "stand":
            while hand_of(self._dealer).total < DEALER_STANDS:
                self._dealer.append(draw_card(self._later))
            self._reward = compare(hand_of(self._player), hand_of(self._dealer))
        else:
            said = "That is no action here: the actions are hit and stand"
        is_over = self._reward is not None
        info = self._info(accepted=word in _ACTIONS)
        paid = self._reward or 0.0
        if self.options.scoring == "verl-agent":
            paid = max(paid, 0.0)
        return self._observe(said), paid, is_over, False, info

    def render(self) -> NDArray[np.uint8]:
        """The table, the dealer's cards above: (352, 422, 3), 36 higher once it is over."""
        dealer = self._dealer if self._reward is not None else [*self._dealer[:1], None]
        rows = [CardRow("Dealer", dealer), CardRow("You", self._player)]
        return table_picture(rows, note=self._verdict())

    def _verdict(self) -> str:
        return "" if self._reward is None else _VERDICTS[self._reward]

    def _observe(self, said: str = "") -> str | dict[str, Any]:
        remarks = list(filter(None, [said, self._verdict()]))
        if not self._in_text:
            return {"text": "\n".join([_GOAL, *remarks]), "picture": png(self.render())}
        if self._reward is None:
            dealer = f"Dealer: {self._dealer[0]} and a hidden card"
        else:
            dealer = f"Dealer: {_listed(self._dealer)}"
        return "\n".join([_GOAL, dealer, f"You: {_listed(self._player)}", *remarks])

    def _info(self, *, accepted: bool) -> dict[str, Any]:
        is_over = self._reward is not None
        shown = [*(self._dealer if is_over else self._dealer[:1]), *self._player]
        return {
            "admissible_actions": [] if is_over else list(_ACTIONS),
            "anchor_state": f"{self._name} {' '.join(card.code for card in shown)}"
            f"{' over' if is_over else ''}",
            "success": is_over and self._reward == 1.0,
            "action_accepted": accepted,
        }


def _listed(cards: list[Card]) -> str:
    return f"{' '.join(map(str, cards))} (total {hand_of(cards).total})"
