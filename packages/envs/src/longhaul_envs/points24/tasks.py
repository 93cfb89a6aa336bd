"""Points24's tasks: hands of four cards of which a formula makes the target.

A task id spells the hand: `AS-7H-KD-3C`. The four values decide the split, whatever their
order, suits and faces: no test hand has the formula of a training hand.
"""

from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from random import Random

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.cards.deck import Card, draw_suit
from longhaul_envs.cards.observing import refuse_unknown_observation
from longhaul_envs.cards.points_game import PointsRules
from longhaul_envs.task_lists import rules_version, shared_out, stable_seed

__all__ = ["ENVIRONMENT_ID", "Points24Options", "draw_hand", "tasks"]

ENVIRONMENT_ID = "longhaul/Points24-v0"
_NUM_CARDS, _MAX_TARGET, _MAX_HANDS = 4, 100, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Points24Options:
    """What can be chosen about Points24."""

    observation: str = "text"
    """`text`, or `image`: the cards are seen in a picture alone. A rule."""
    target: int = 24
    """What the formula has to make, 1 to 100. A rule."""
    face_cards_as_ten: bool = True
    """Whether jack, queen and king count 10, and not 11, 12 and 13. A rule."""
    num_hands: int = 3
    """Hands that are listed of each four values, 1 to 100. Chooses tasks."""

    def __post_init__(self) -> None:
        refuse_unknown_observation(self.observation)
        if not 1 <= self.target <= _MAX_TARGET:
            raise ConfigError(f"target must be from 1 to {_MAX_TARGET}, got {self.target}")
        if not 1 <= self.num_hands <= _MAX_HANDS:
            raise ConfigError(f"num_hands must be from 1 to {_MAX_HANDS}, got {self.num_hands}")

    @property
    def version(self) -> str:
        """The value of `Task.version`."""
        return rules_version("1", self, rules=("observation", "target", "face_cards_as_ten"))

    @property
    def rules(self) -> PointsRules:
        """Of the game."""
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
    contents = _values(options.rules)[split]
    hands = [
        hand
        for variant in range(options.num_hands)
        for content in contents
        for hand in [_hand_of(content, variant, options.rules)]
    ]
    return tuple(
        Task(
            environment=ENVIRONMENT_ID,
            version=options.version,
            data_hash="",
            task_id=hand,
            seed=stable_seed(hand),
            split=split,
            goal=f"make {options.target} of four cards",
        )
        for hand in list(dict.fromkeys(hands))[:limit]
    )


def draw_hand(options: Points24Options, seed: int) -> str:
    """A hand of any split; the same seed draws the same one."""
    every = [content for split in Split for content in _values(options.rules)[split]]
    content = every[stable_seed(f"points24 {seed}") % len(every)]
    return _hand_of(content, seed, options.rules)


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
