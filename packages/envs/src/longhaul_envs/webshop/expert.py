"""An expert that knows which product was meant, and buys it through the pages like anyone."""

from collections.abc import Sequence

from longhaul_envs.webshop.catalogue import Goal
from longhaul_envs.webshop.reward import alike
from longhaul_envs.webshop.shop import Shop
from longhaul_envs.webshop.site import Page, Place, links

__all__ = ["next_action"]


def next_action(
    place: Place, goal: Goal, shop: Shop, *, proposals: Sequence[str], show_attributes: bool
) -> str | None:
    """The next action of the way to the goal's product.

    Args:
        place: Where the session is.
        goal: What is to be bought.
        shop: That sells it.
        proposals: The queries that may be searched for; empty if any may.
        show_attributes: As the option.

    Returns:
        None if no query that it knows finds the product.
    """
    if place.page is Page.SEARCH:
        query = _query(goal, shop, proposals)
        return None if query is None else f"search[{query}]"
    if place.page is Page.RESULTS:
        if goal.asin not in place.results:
            return "click[back to search]"
        if goal.asin in place.on_page:
            return f"click[{goal.asin.lower()}]"
        later = goal.asin in place.results[place.results.index(place.on_page[-1]) :]
        return "click[next >]" if later else "click[< prev]"
    if place.page is Page.SUB or place.asin != goal.asin:
        return "click[< prev]"
    chosen = dict(place.options)
    ways = links(place, shop.product, show_attributes=show_attributes)
    for name, value in _wanted(goal, shop):
        following = ways[value]
        if chosen.get(name) != value and dict(following.options).get(name) == value:
            return f"click[{value}]"
    return "click[buy now]"


def _query(goal: Goal, shop: Shop, proposals: Sequence[str]) -> str | None:
    product = shop.product(goal.asin)
    queries = proposals or (product.name, product.searched)
    return next((query for query in queries if goal.asin in shop.search(query)), None)


def _wanted(goal: Goal, shop: Shop) -> list[tuple[str, str]]:
    """For each option of the goal, the product's option that is most clearly it."""
    offered = [
        (name, value)
        for name, values in shop.product(goal.asin).options.items()
        for value in values
    ]
    wanted: list[tuple[str, str]] = []
    for asked in goal.options:
        same = [one for one in offered if one[1] == asked] or [
            one for one in offered if alike(one[1], asked)
        ]
        wanted.extend(same[:1])
    return wanted
