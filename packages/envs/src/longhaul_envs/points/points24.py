"""Points24: hands of four cards of which a formula makes the target.

A task id spells the hand: `AS-7H-KD-3C`. The four values decide the split, whatever their
order, suits and faces: no test hand has the formula of a training hand.
"""

from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from random import Random

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.cards.deck import Card, draw_suit
from longhaul_envs.cards.observing import TABLE_PIXELS
from longhaul_envs.packaged import PackagedSource
from longhaul_envs.points.game import PointsGame, PointsOptions, PointsRules
from longhaul_envs.task_lists import shared_out, stable_seed

__all__ = ["Points24", "Points24Options", "source", "tasks"]

_NUM_CARDS, _MAX_TARGET, _MAX_HANDS = 4, 100, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Points24Options(PointsOptions):
    """What can be chosen about Points24."""

    environment_id = "longhaul/Points24-v0"
    rules = ("observation", "scoring", "target", "face_cards_as_ten")

    target: int = 24
    """What the formula has to make, 1 to 100. A rule."""
    face_cards_as_ten: bool = True
    """Whether jack, queen and king count 10, and not 11, 12 and 13. A rule."""
    num_hands: int = 3
    """Hands that are listed of each four values, 1 to 100. Chooses tasks."""

    def __post_init__(self) -> None:
        super(Points24Options, self).__post_init__()
        if not 1 <= self.target <= _MAX_TARGET:
            raise ConfigError(f"target must be from 1 to {_MAX_TARGET}, got {self.target}")
        if not 1 <= self.num_hands <= _MAX_HANDS:
            raise ConfigError(f"num_hands must be from 1 to {_MAX_HANDS}, got {self.num_hands}")

    @property
    def game(self) -> PointsRules:
        """See `PointsOptions.game`."""
        return PointsRules(
            num_cards=_NUM_CARDS,
            target=self.target,
            operators="+-*/",
            parentheses=True,
            max_units=20,
            face_cards_as_ten=self.face_cards_as_ten,
        )


def tasks(split: Split, options: Points24Options, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`: a hand of every four values, then a second of each."""
    contents = _values(options.game)[split]
    hands = [
        hand
        for variant in range(options.num_hands)
        for content in contents
        for hand in [_hand_of(content, variant, options.game)]
    ]
    return tuple(
        options.task(hand, split, goal=f"make {options.target} of four cards")
        for hand in list(dict.fromkeys(hands))[:limit]
    )


@cache
def _values(rules: PointsRules) -> dict[Split, list[str]]:
    """The values of solvable hands, as texts such as `1 3 7 10`."""
    highest = 10 if rules.face_cards_as_ten else 13
    every = combinations_with_replacement(range(1, highest + 1), _NUM_CARDS)
    return shared_out(
        " ".join(map(str, values))
        for values in every
        if rules.is_solvable([Card(value, "S") for value in values])
    )


def _hand_of(content: str, variant: int, rules: PointsRules) -> str:
    """Cards of these values, their order, suits and faces drawn."""
    random = Random(stable_seed(f"points24 {content} {variant}"))
    values = list(map(int, content.split()))
    cards: list[Card] = []
    while values:
        value = values.pop(int(random.random() * len(values)))
        faces = 4 if value == 10 and rules.face_cards_as_ten else 1
        cards.append(Card(value + int(random.random() * faces), draw_suit(random)))
    return "-".join(card.code for card in cards)


def _prompt(options: Points24Options) -> EnvironmentPrompt:
    faces = (
        "jack, queen and king count 10"
        if options.face_cards_as_ten
        else "jack, queen and king count 11, 12 and 13"
    )
    where = "" if options.observation == "text" else " The cards are in the picture."
    return EnvironmentPrompt(
        system=(
            f"You write a formula that makes {options.target} out of four cards, one number or "
            f"sign at a time. An ace counts 1; {faces}. Each card is used once. The signs are "
            f"+, -, *, /, ( and ); the sign = ends the game.{where}"
        ),
        instruction="What comes next in the formula: the value of a card, or a sign?",
    )


source = PackagedSource(
    Points24Options,
    tasks,
    lambda options: options.description(
        summary="write a formula of four cards that makes 24",
        prompt=_prompt(options),
        actions="the value of a card, `+`, `-`, `*`, `/`, `(`, `)` or `=`",
        shows_pictures=options.observation == "image",
        picture_pixels=TABLE_PIXELS[1],
    ),
)


class Points24(PointsGame[Points24Options]):
    """Write a formula of four cards that makes the target, twenty-four by default.

    Task:
        Four cards of which such a formula exists.
    Action:
        The value of a card that the formula has not used; `+`, `-`, `*`, `/`, `(`, `)`; or `=`,
        which ends the game. A number that no card has left, and anything unreadable, writes a
        blank.
    Reward:
        10 for an `=` after a formula that uses every card and makes the target. -1 for any other
        `=`, for each blank, and for the action after a formula of more than 20 units. 0 otherwise.
    Episode end:
        Terminated by `=`. Truncated by the action after a formula of more than 20 units.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing.
        Without it the seed draws a hand of whatever split.
    Info:
        `admissible_actions`, of text observations alone: values left, and all signs.
        `anchor_state`: hand and formula. `success`. `action_accepted`: False for a blank.
    """

    packaged = source

    def draw_task(self, seed: int) -> str:
        """See `PointsGame.draw_task`."""
        rules = self.options.game
        every = [content for split in Split for content in _values(rules)[split]]
        return _hand_of(every[stable_seed(f"points24 {seed}") % len(every)], seed, rules)
