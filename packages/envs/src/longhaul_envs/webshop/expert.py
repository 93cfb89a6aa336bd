"""An expert that knows which product was meant, and buys it through the pages like anyone."""

from collections.abc import Sequence
from dataclasses import replace

from longhaul_envs.webshop.catalogue import Goal
from longhaul_envs.webshop.reward import alike, mentions, same_option
from longhaul_envs.webshop.shop import Shop
from longhaul_envs.webshop.site import Page, Place, links

__all__ = ["mistaken", "next_action", "parts_of"]


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


def parts_of(goal: Goal, shop: Shop) -> tuple[str, ...]:
    """The parts of a goal: what `mistaken` can change."""
    return ("product", *(f"option {name}" for name, _ in _wanted(goal, shop)))


def mistaken(goal: Goal, shop: Shop, part: str) -> Goal | None:
    """The goal with another `part`; None if the shop has no other.

    Another product is one of another type, found by the attributes, that lacks one of them.
    Another value of an option is one that the rules do not call alike.
    """
    product = shop.product(goal.asin)
    if part == "product":
        found = (shop.product(asin) for asin in shop.search(" ".join(goal.attributes)))
        others = (one for one in found if one.query != product.query)
        return next(
            (
                replace(goal, asin=other.asin)
                for other in others
                if not all(a in other.attributes or mentions(other, a) for a in goal.attributes)
            ),
            None,
        )
    wanted = dict(_wanted(goal, shop))
    name = part.removeprefix("option ")
    for value in product.options[name]:
        chosen = wanted | {name: value}
        if not any(same_option(one, wanted[name]) for one in chosen.values()):
            return replace(goal, options=tuple(chosen.values()))
    return None


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
