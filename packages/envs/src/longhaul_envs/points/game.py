"""The game of EZPoints and Points24: write a formula of card values, unit by unit."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from longhaul_envs.cards.deck import Card, named
from longhaul_envs.cards.drawing import CardRow, table_picture
from longhaul_envs.cards.observing import refuse_unknown_observation, refuse_unknown_scoring
from longhaul_envs.packaged import PackagedEnv, PackagedOptions
from longhaul_envs.pictures import picture_space, png
from longhaul_envs.points.formulas import can_make, formulas, value_of

__all__ = ["PointsGame", "PointsOptions", "PointsRules"]

_BLANK = "_"
"""Stands in the formula for an action that was refused; it takes a place and means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointsRules:
    """What sets one points game apart from another."""

    num_cards: int
    target: int
    operators: str
    """Of `+-*/`."""
    parentheses: bool
    max_units: int
    """Units of a formula, refused ones included, after which the next action ends the episode."""
    face_cards_as_ten: bool = True

    def value(self, card: Card) -> int:
        """What a card counts."""
        return card.points if self.face_cards_as_ten else card.rank

    def is_solvable(self, cards: Sequence[Card]) -> bool:
        """Whether a formula of these cards comes to the target."""
        return can_make(map(self.value, cards), self.target, self.operators)

    @property
    def signs(self) -> tuple[str, ...]:
        """All units but numbers."""
        return (*self.operators, *("()" if self.parentheses else ""), "=")


@dataclass(frozen=True, slots=True, kw_only=True)
class PointsOptions(PackagedOptions, ABC):
    """What can be chosen about either game."""

    episodes_per_process = 16

    observation: str = "text"
    """`text`, or `image`: the cards are seen in a picture alone. A rule."""
    scoring: str = "rl4vlm"
    """`rl4vlm`, the authors', or `verl-agent`: what its copy of the game pays. A rule."""

    def __post_init__(self) -> None:
        refuse_unknown_observation(self.observation)
        refuse_unknown_scoring(self.scoring)

    @property
    @abstractmethod
    def game(self) -> PointsRules:
        """The rules under these options."""


Game = TypeVar("Game", bound=PointsOptions)


class PointsGame(PackagedEnv[Any, Game]):
    """A hand of cards, and a formula that grows by a unit a step. Subclasses say which hands."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        super().__init__(**options)
        self.rules = self.options.game
        self._in_text = self.options.observation == "text"
        if not self._in_text:
            self.observation_space = picture_space()
        self._cards: tuple[Card, ...] = ()
        self._formula: list[str] = []
        self._is_over = True
        self._solved = False

    def hand_of(self, task_id: str) -> tuple[Card, ...]:
        """The cards of a task id, such as `AS-7H-KD-3C`.

        Raises:
            ValueError: It names no cards, or another number of them.
        """
        cards = tuple(named(code) for code in task_id.split("-"))
        if len(cards) != self.rules.num_cards:
            raise ValueError(
                f"a task of this game names {self.rules.num_cards} cards, {task_id!r} names "
                f"{len(cards)}"
            )
        return cards

    @abstractmethod
    def draw_task(self, seed: int) -> str:
        """The id of a solvable hand; the same seed draws the same one."""

    def expert_action(self) -> str | None:
        """The next unit of the shortest solution that begins as the formula does.

        None if no solution does, or its end would come too late.
        """
        return self._next_unit(map(self.rules.value, self._cards), self.rules.target)

    def goal_parts(self) -> tuple[str, ...]:
        """What the formula makes, and of which cards."""
        return ("target", "cards")

    def mistaken_action(self, part: str) -> str | None:
        """The next unit of a formula of another number, or of the target without a card."""
        values = sorted(map(self.rules.value, self._cards))
        if part == "target":
            target = self.rules.target
            others = ((values, target + by) for n in range(1, target) for by in (n, -n))
        else:
            fewer = ([*values[:n], *values[n + 1 :]] for n in range(len(values)))
            others = ((some, self.rules.target) for some in fewer)
        units = (self._next_unit(some, target) for some, target in others)
        return next(filter(None, units), None)

    def _next_unit(self, values: Iterable[int], target: int) -> str | None:
        written = tuple(unit for unit in self._formula if unit != _BLANK)
        room = self.rules.max_units - len(self._formula)
        for units in formulas(tuple(sorted(values)), target, self.rules.operators):
            rest = units[len(written) :]
            if units[: len(written)] == written and len(rest) <= room:
                return rest[0] if rest else "="
        return None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """See the subclass."""
        super().reset(seed=seed)
        if options is not None and "task_id" in options:
            task_id = str(options["task_id"])
        else:
            task_id = self.draw_task(int(self.np_random.integers(2**31)))
        self._cards, self._formula = self.hand_of(task_id), []
        self._is_over = self._solved = False
        return self._observe(), self._info(accepted=True)

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """See the subclass."""
        if self._is_over:
            raise ResetNeeded("there is no episode, or it is over; reset before the next step")
        unit = action.strip()
        as_verl_agent = self.options.scoring == "verl-agent"
        lost = 0.0 if as_verl_agent else -1.0
        if len(self._formula) > self.rules.max_units:
            self._is_over = not as_verl_agent  # its worker plays on, and nothing counts any more
            said = "The formula is too long" + ": the game is over" * self._is_over
            seen = self._observe(said)
            return seen, lost, False, self._is_over, self._info(accepted=not self._refusal(unit))
        if unit == "=":
            self._is_over = True
            self._solved = self._is_solution()
            seen = self._observe(self._verdict())
            return seen, 10.0 if self._solved else lost, True, False, self._info(accepted=True)
        refusal = self._refusal(unit)
        if not (refusal and as_verl_agent):  # there, what is refused leaves the formula as it is
            self._formula.append(_BLANK if refusal else unit)
        seen = self._observe(refusal)
        return seen, lost if refusal else 0.0, False, False, self._info(accepted=not refusal)

    def render(self) -> NDArray[np.uint8]:
        """The cards and the formula: (220, 422, 3), red, green and blue."""
        label = f"Make {self.rules.target}"
        return table_picture([CardRow(label, self._cards)], note=self._formula_line())

    def _numbers_left(self) -> Counter[str]:
        """The values of cards that the formula has not used."""
        return Counter(str(self.rules.value(card)) for card in self._cards) - Counter(self._formula)

    def _refusal(self, unit: str) -> str:
        """Why a unit cannot be written; empty if it can."""
        if unit in self.rules.signs or self._numbers_left()[unit]:
            return ""
        if len(unit) <= 2 and unit.isascii() and unit.isdecimal():
            return f"No card of value {unit} is left"
        signs = ", ".join(self.rules.signs)
        return f"That is no action here: write the value of a card, or one of {signs}"

    def _is_solution(self) -> bool:
        written = [unit for unit in self._formula if unit != _BLANK]
        return not self._numbers_left() and value_of(written) == self.rules.target

    def _verdict(self) -> str:
        if self._solved:
            return f"That is {self.rules.target}"
        if self._numbers_left():
            return "Not every card was used"
        return f"That is not {self.rules.target}"

    def _formula_line(self) -> str:
        return f"Formula: {' '.join(self._formula)}".rstrip()

    def _cards_line(self) -> str:
        values = ", ".join(str(self.rules.value(card)) for card in self._cards)
        return f"Cards: {' '.join(map(str, self._cards))} (worth {values})"

    def _observe(self, said: str = "") -> str | dict[str, Any]:
        goal = f"Goal: write a formula that makes {self.rules.target}, each card used once"
        lines = [goal, self._formula_line(), *filter(None, [said])]
        if self._in_text:
            return "\n".join([goal, self._cards_line(), *lines[1:]])
        return {"text": "\n".join(lines), "picture": png(self.render())}

    def _info(self, *, accepted: bool) -> dict[str, Any]:
        hand = "-".join(card.code for card in self._cards)
        # a blank takes time and a place, and is no part of what the formula says
        formula = " ".join(unit for unit in self._formula if unit != _BLANK)
        info: dict[str, Any] = {
            "anchor_state": f"{hand} {formula}{' over' if self._is_over else ''}",
            "success": self._solved,
            "action_accepted": accepted,
        }
        if self._in_text:  # a list of numbers would tell what only the picture shows
            numbers = sorted(self._numbers_left(), key=int)
            info["admissible_actions"] = [] if self._is_over else [*numbers, *self.rules.signs]
        return info
