"""TextCraft's tasks: a goal item, and the recipes that are shown for it.

A task id is `DEPTH/GOAL/VARIANT`, e.g. `2/oak_sign/3`, and names its content completely:
any instance can play any task of its rules. The splits share no goal item. Choices that
vary a task (which wood, which distractors, in what order) are made by ranking hashes, so
that no version of a random generator can change them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.task_lists import content_hash, shared_out, stable_seed
from longhaul_envs.textcraft.recipes import Ingredient, Recipe, RecipeBook, load_recipe_book

__all__ = [
    "MAX_DEPTH",
    "Assignment",
    "TextCraftOptions",
    "assign",
    "draw",
    "source",
    "tasks",
]

MAX_DEPTH = 4
MAX_DISTRACTORS = 10

_Item = TypeVar("_Item", str, Recipe)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCraftOptions(PackagedOptions):
    """What can be chosen about TextCraft."""

    environment_id = "longhaul/TextCraft-v0"
    episodes_per_process = 16
    rules = ("distractors", "show_inventory", "subgoal_reward")

    depth: int = 1
    """Craftings in a row that a goal takes at least, 1 to 4. Chooses tasks."""
    num_variants: int = 8
    """Tasks per goal item that are listed. Chooses tasks."""
    distractors: int = 2
    """Shown recipes that the goal does not need, 0 to 10. A rule."""
    show_inventory: bool = True
    """Whether observations show it; otherwise the action `inventory` shows it. A rule."""
    subgoal_reward: float = 0.0
    """Paid the first time each part that the goal needs is crafted. A rule."""

    def __post_init__(self) -> None:
        if not 1 <= self.depth <= MAX_DEPTH:
            raise ConfigError(f"depth must be from 1 to {MAX_DEPTH}, got {self.depth}")
        if self.num_variants < 1:
            raise ConfigError(f"num_variants must be at least 1, got {self.num_variants}")
        if not 0 <= self.distractors <= MAX_DISTRACTORS:
            raise ConfigError(
                f"distractors must be from 0 to {MAX_DISTRACTORS}, got {self.distractors}"
            )
        if not 0 <= self.subgoal_reward <= 1:
            raise ConfigError(f"subgoal_reward must lie in [0, 1], got {self.subgoal_reward}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a task id stands for."""

    goal: str
    needed: Mapping[str, Recipe]
    """Everything to be crafted on the way, the goal included, to its recipe."""
    shown: tuple[Recipe, ...]
    """Needed and distracting recipes, mixed."""


def tasks(split: Split, options: TextCraftOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`: every goal once, then every goal's next variant.

    Returns:
        Fewer than goals times variants where variants of a goal come out equal.
    """
    book = load_recipe_book()
    goals = shared_out(book.goals(options.depth))[split]
    seen: set[tuple[str, frozenset[Recipe]]] = set()
    found: list[Task] = []
    for variant in range(options.num_variants):
        for goal in goals:
            if limit is not None and len(found) >= limit:
                return tuple(found)
            task_id = f"{options.depth}/{goal.replace(' ', '_')}/{variant}"
            content = (goal, frozenset(assign(task_id, options.distractors).shown))
            if content in seen:
                continue
            seen.add(content)
            found.append(
                options.task(task_id, split, goal=f"craft {goal}", data_hash=book.data_hash)
            )
    return tuple(found)


def draw(options: TextCraftOptions, generator: np.random.Generator) -> str:
    """The id of a random training task."""
    goals = shared_out(load_recipe_book().goals(options.depth))[Split.TRAIN]
    goal = goals[int(generator.integers(len(goals)))].replace(" ", "_")
    return f"{options.depth}/{goal}/{int(generator.integers(options.num_variants))}"


def assign(task_id: str, distractors: int) -> Assignment:
    """The goal and the recipes of a task.

    Raises:
        ValueError: No task has this id.
    """
    book = load_recipe_book()
    parts = task_id.split("/")
    goal = parts[1].replace("_", " ") if len(parts) == len(("depth", "goal", "variant")) else ""
    if goal not in book.recipes or parts[0] != str(book.depths[goal]) or not parts[2].isdecimal():
        raise ValueError(
            f"no TextCraft task is called {task_id!r}; ids look like '2/oak_sign/0' "
            "(depth, goal item, variant)"
        )
    needed = _needed(goal, book, salt=task_id)
    distracting = _distracting(needed, book, salt=task_id)[:distractors]
    shown = _by_hash([*needed.values(), *distracting], f"{task_id} order")
    return Assignment(goal=goal, needed=needed, shown=tuple(shown))


def _distracting(needed: Mapping[str, Recipe], book: RecipeBook, *, salt: str) -> list[Recipe]:
    """Recipes that `needed` can do without: those that share an input with it come first."""
    inputs = {i.name for recipe in needed.values() for i in recipe.ingredients}
    sharing = {
        _concrete(recipe, book, salt=salt)
        for name in inputs
        for recipe in book.uses[name]
        if recipe.output not in needed
    }
    outputs = list(book.recipes)
    drawn = [outputs[stable_seed(f"{salt} {n}") % len(outputs)] for n in range(2 * MAX_DISTRACTORS)]
    unrelated = {
        _concrete(book.recipes[output][0], book, salt=salt)
        for output in drawn
        if output not in needed
    }
    return [*_by_hash(sharing, salt), *_by_hash(unrelated - sharing, salt)]


def _needed(goal: str, book: RecipeBook, *, salt: str) -> dict[str, Recipe]:
    """A recipe for `goal` and, in turn, for all that it takes, as shallow as possible."""
    needed: dict[str, Recipe] = {}
    open_items = [goal]
    while open_items:
        item = open_items.pop()
        if item in needed or item not in book.recipes:
            continue
        ways = [_concrete(recipe, book, salt=salt) for recipe in book.recipes[item]]
        shallow = [way for way in ways if _depth(way, book) < book.depths[item]]
        needed[item] = min(shallow, key=lambda way: (len(way.ingredients), str(way)))
        open_items.extend(i.name for i in needed[item].ingredients)
    return needed


def _depth(recipe: Recipe, book: RecipeBook) -> int:
    return max(book.depths.get(i.name, 0) for i in recipe.ingredients)


def _concrete(recipe: Recipe, book: RecipeBook, *, salt: str) -> Recipe:
    """`recipe` with one member named for each ingredient class: `oak planks` for `planks`."""

    def member(name: str) -> str:
        if name not in book.classes:
            return name
        shallowest = [m for m in book.classes[name] if book.depths[m] == book.depths[name]]
        return _by_hash(shallowest, f"{salt} {name}")[0]

    named = tuple(Ingredient(member(i.name), i.count) for i in recipe.ingredients)
    return Recipe(recipe.output, recipe.output_count, named)


def _by_hash(items: Iterable[_Item], salt: str) -> list[_Item]:
    return sorted(items, key=lambda item: content_hash(f"{salt} {item}"))


_PROMPT = EnvironmentPrompt(
    system=(
        "You craft items. Get raw materials, craft the parts a recipe asks for, then craft the "
        "goal. Not every recipe is needed."
    ),
    instruction="What is the next action?",
    actions=(
        "Actions: `get 2 oak logs` fetches a raw material, 1 to 64 at once; `craft 4 oak planks "
        "using 1 oak logs` follows a recipe, with its numbers; `inventory` shows what you hold."
    ),
)


source = PackagedSource(
    TextCraftOptions,
    tasks,
    lambda options: options.description(
        summary="craft a goal item out of raw materials and crafted parts",
        prompt=_PROMPT,
        actions="`get N ITEM`, `craft N ITEM using N ITEM, N ITEM` or `inventory`",
    ),
)
