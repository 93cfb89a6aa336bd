"""EZPoints: every pair of cards with a sum or a product of twelve.

A task id spells the hand: `10H-2S`. A hand and its mirror are one content; which of the two
orders is listed, a hash decides.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.types import Split, Task
from longhaul_envs.cards.deck import RANKS, SUITS, Card
from longhaul_envs.cards.observing import TABLE_PIXELS
from longhaul_envs.packaged import PackagedSource
from longhaul_envs.points.game import PointsGame, PointsOptions, PointsRules
from longhaul_envs.task_lists import shared_out, stable_seed

__all__ = ["EZPoints", "EZPointsOptions", "source", "tasks"]

_RULES = PointsRules(num_cards=2, target=12, operators="+*", parentheses=False, max_units=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class EZPointsOptions(PointsOptions):
    """What can be chosen about EZPoints."""

    environment_id = "longhaul/EZPoints-v0"
    rules = ("observation", "scoring")

    @property
    def game(self) -> PointsRules:
        """See `PointsOptions.game`."""
        return _RULES


def tasks(split: Split, options: EZPointsOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`, in order of hash."""
    return tuple(
        options.task(hand, split, goal="make 12 of two cards") for hand in _hands()[split][:limit]
    )


@cache
def _hands() -> dict[Split, list[str]]:
    pack = [Card(rank, suit) for rank in range(1, len(RANKS) + 1) for suit in SUITS]
    pairs = {
        tuple(sorted((first.code, second.code)))
        for first, second in product(pack, repeat=2)
        if _RULES.is_solvable((first, second))
    }
    shuffled = ("-".join(pair[:: (-1) ** stable_seed("".join(pair))]) for pair in pairs)
    return shared_out(shuffled)


def _prompt(options: EZPointsOptions) -> EnvironmentPrompt:
    where = "" if options.observation == "text" else " The cards are in the picture."
    return EnvironmentPrompt(
        system=(
            "You write a formula that makes 12 out of two cards, one number or sign at a time. An "
            "ace counts 1; jack, queen and king count 10. Each card is used once. The sign = ends "
            f"the game.{where}"
        ),
        instruction="What comes next in the formula: the value of a card, +, * or =?",
    )


source = PackagedSource(
    EZPointsOptions,
    tasks,
    lambda options: options.description(
        summary="write a formula of two cards that makes 12",
        prompt=_prompt(options),
        actions="the value of a card, `+`, `*` or `=`",
        shows_pictures=options.observation == "image",
        picture_pixels=TABLE_PIXELS[1],
    ),
)


class EZPoints(PointsGame[EZPointsOptions]):
    """Write a sum or a product of two cards that makes twelve.

    Task:
        Two cards with such a sum or product; jack, queen and king count 10.
    Action:
        `1` to `10`, the value of a card that the formula has not used; `+`; `*`; or `=`, which
        ends the game. A number that no card has left, and anything unreadable, writes a blank.
    Reward:
        10 for an `=` after a formula that uses both cards and makes 12. -1 for any other `=`, for
        each blank, and for the action after a formula of more than 5 units. 0 otherwise.
    Episode end:
        Terminated by `=`. Truncated by the action after a formula of more than 5 units.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing.
        Without it the seed draws a hand of whatever split.
    Info:
        `admissible_actions`, of text observations alone: values left, `+`, `*`, `=`.
        `anchor_state`: hand and formula. `success`. `action_accepted`: False for a blank.
    """

    packaged = source

    def draw_task(self, seed: int) -> str:
        """See `PointsGame.draw_task`."""
        every = [hand for split in Split for hand in _hands()[split]]
        return every[stable_seed(f"ez-points {seed}") % len(every)]
