"""TextCraft's solver: make what is missing, deepest part first."""

from collections.abc import Mapping

from longhaul_envs.textcraft.recipes import Recipe

__all__ = ["next_action"]


def next_action(*, goal: str, needed: Mapping[str, Recipe], inventory: Mapping[str, int]) -> str:
    """The next `get` or `craft` on the way to `goal`.

    Nothing in TextCraft is ever used up for good, so there always is one.

    Args:
        goal: Item to be crafted.
        needed: Recipe of everything that has to be crafted, the goal included.
        inventory: Item to how many are held.
    """
    recipe = needed[goal]
    # An ingredient that is crafted may use up what another one needs: craft first.
    for ingredient in sorted(recipe.ingredients, key=lambda i: i.name not in needed):
        held = inventory.get(ingredient.name, 0)
        if held >= ingredient.count:
            continue
        if ingredient.name not in needed:
            return f"get {ingredient}"
        return next_action(goal=ingredient.name, needed=needed, inventory=inventory)
    return str(recipe)
