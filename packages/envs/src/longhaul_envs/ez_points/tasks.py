"""EZPoints' tasks: every pair of cards with a sum or a product of twelve.

A task id spells the hand: `10H-2S`. A hand and its mirror are one content; which of the two
orders is listed, a hash decides.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product

from longhaul_core.types import Split, Task
from longhaul_envs.cards.deck import RANKS, SUITS, Card
from longhaul_envs.cards.observing import refuse_unknown_observation
from longhaul_envs.cards.points_game import PointsRules
from longhaul_envs.task_lists import rules_version, shared_out, stable_seed

__all__ = ["ENVIRONMENT_ID", "RULES", "EZPointsOptions", "draw_hand", "tasks"]

ENVIRONMENT_ID = "longhaul/EZPoints-v0"
RULES = PointsRules(num_cards=2, target=12, operators="+*", parentheses=False, max_units=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class EZPointsOptions:
    """What can be chosen about EZPoints."""

    observation: str = "text"
    """`text`, or `image`: the cards are seen in a picture alone. A rule."""

    def __post_init__(self) -> None:
        refuse_unknown_observation(self.observation)

    @property
    def version(self) -> str:
        """The value of `Task.version`."""
        return rules_version("1", self, rules=("observation",))


def tasks(split: Split, options: EZPointsOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`, in order of hash."""
    return tuple(
        Task(
            environment=ENVIRONMENT_ID,
            version=options.version,
            data_hash="",
            task_id=hand,
            seed=stable_seed(hand),
            split=split,
            goal="make 12 of two cards",
        )
        for hand in _hands()[split][:limit]
    )


def draw_hand(seed: int) -> str:
    """One of all hands; the same seed draws the same one."""
    every = [hand for split in Split for hand in _hands()[split]]
    return every[stable_seed(f"ez-points {seed}") % len(every)]


@cache
def _hands() -> dict[Split, list[str]]:
    pack = [Card(rank, suit) for rank in range(1, len(RANKS) + 1) for suit in SUITS]
    pairs = {
        tuple(sorted((first.code, second.code)))
        for first, second in product(pack, repeat=2)
        if RULES.is_solvable((first, second))
    }
    shuffled = ("-".join(pair[:: (-1) ** stable_seed("".join(pair))]) for pair in pairs)
    return shared_out(shuffled)
