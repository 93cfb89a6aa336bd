"""Blackjack's tasks: a deal, and the cards that come after it.

A task id is `RANK-RANK/RANK/NUMBER`, e.g. `7-K/5/1`: the player's two ranks, the dealer's open
one, and which of the listed deals with these three it is. The id alone draws suits and all
later cards. The three ranks decide the split.
"""

from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from random import Random

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.cards.deck import RANKS, Card, draw_card, draw_suit
from longhaul_envs.cards.observing import (
    TABLE_PIXELS,
    refuse_unknown_observation,
    refuse_unknown_scoring,
)
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.task_lists import shared_out, stable_seed

__all__ = ["BlackjackOptions", "Deal", "deal_of", "draw_deal", "source", "tasks"]

_MAX_DEALS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BlackjackOptions(PackagedOptions):
    """What can be chosen about Blackjack."""

    environment_id = "longhaul/Blackjack-v0"
    episodes_per_process = 16
    rules = ("observation", "scoring")

    observation: str = "text"
    """`text`, or `image`: the cards are seen in a picture alone. A rule."""
    scoring: str = "rl4vlm"
    """`rl4vlm`, the authors', or `verl-agent`: what its copy of the game pays. A rule."""
    num_deals: int = 2
    """Deals that are listed of each three ranks, 1 to 1000. Chooses tasks."""

    def __post_init__(self) -> None:
        refuse_unknown_observation(self.observation)
        refuse_unknown_scoring(self.scoring)
        if not 1 <= self.num_deals <= _MAX_DEALS:
            raise ConfigError(f"num_deals must be from 1 to {_MAX_DEALS}, got {self.num_deals}")


@dataclass(frozen=True, slots=True)
class Deal:
    """The cards on the table at the start, and what draws those that follow."""

    player: tuple[Card, Card]
    dealer: Card
    """The open one."""
    later: Random
    """Draws the dealer's hidden card, and then each card as it is taken."""


def tasks(split: Split, options: BlackjackOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`: a deal of every three ranks, then a second of each."""
    task_ids = [
        f"{ranks}/{number}" for number in range(options.num_deals) for ranks in _ranks()[split]
    ]
    return tuple(
        options.task(task_id, split, goal="win at blackjack") for task_id in task_ids[:limit]
    )


def deal_of(task_id: str) -> Deal:
    """The deal of a task id.

    Raises:
        ValueError: No task has this id.
    """
    ranks, _, number = task_id.rpartition("/")
    if ranks not in _known() or not (number.isascii() and number.isdecimal()):
        raise ValueError(
            f"no Blackjack task is called {task_id!r}; ids look like '7-K/5/1' (the player's "
            "ranks, lower first, the dealer's, a number)"
        )
    player, dealer = ranks.split("/")
    random = Random(stable_seed(f"blackjack {task_id}"))
    first, second, third = (
        Card(RANKS.index(rank) + 1, draw_suit(random)) for rank in (*player.split("-"), dealer)
    )
    return Deal((first, second), third, random)


def draw_deal(seed: int) -> Deal:
    """A deal as a whole pack gives it, each card as likely; the same seed gives the same one."""
    random = Random(stable_seed(f"blackjack seed {seed}"))
    first, second, third = (draw_card(random) for _ in range(3))
    return Deal((first, second), third, random)


@cache
def _ranks() -> dict[Split, list[str]]:
    pairs = combinations_with_replacement(RANKS, 2)
    return shared_out(f"{low}-{high}/{dealer}" for low, high in pairs for dealer in RANKS)


@cache
def _known() -> frozenset[str]:
    return frozenset(ranks for split in Split for ranks in _ranks()[split])


_RULES = (
    "You play blackjack. You win if your cards come nearer to 21 than the dealer's, and lose at "
    "once above 21. An ace counts 11, or 1 where 11 would be too much; jack, queen and king count "
    "10. The action hit takes a card. The action stand ends your turn: the dealer then takes "
    "cards up to 17 or more. Every card is drawn from a whole pack."
)


def _prompt(options: BlackjackOptions) -> EnvironmentPrompt:
    where = (
        ""
        if options.observation == "text"
        else " The cards are in the picture, the dealer's above."
    )
    return EnvironmentPrompt(system=f"{_RULES}{where}", instruction="Do you hit or stand?")


source = PackagedSource(
    BlackjackOptions,
    tasks,
    lambda options: options.description(
        summary="come nearer to 21 than the dealer",
        prompt=_prompt(options),
        actions="`hit` or `stand`",
        shows_pictures=options.observation == "image",
        picture_pixels=TABLE_PIXELS[2],
    ),
)
