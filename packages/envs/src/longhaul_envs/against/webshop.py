"""WebShop's reward beside its authors' `get_reward`: random purchases in the generated shop."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from longhaul_core.types import Split
from longhaul_envs.against.originals import Pair, original_module
from longhaul_envs.webshop.catalogue import Goal, Product
from longhaul_envs.webshop.reward import score
from longhaul_envs.webshop.tasks import WebShopOptions, open_shop

__all__ = ["as_theirs", "pairs"]

_OTHER_PRODUCT = 0.3
"""Share of purchases of another product."""


def pairs(folder: Path, random: Random) -> Iterator[Pair]:
    """The reward of purchases, with the nouns that their spaCy model finds on both sides."""
    authors = original_module(folder, "web_agent_site.engine", "goal")
    shop = open_shop(WebShopOptions())
    goals = [goal for split in Split for goal in shop.goals(split, authors=False)]

    def nouns(title: str) -> list[str]:
        tags = ("NOUN", "PROPN")
        return [token.text.lower() for token in authors.nlp(title) if token.pos_ in tags]

    while True:
        goal = random.choice(goals)
        wanted = bought = shop.product(goal.asin)
        if random.random() < _OTHER_PRODUCT:
            bought = shop.product(random.choice(goals).asin)
        chosen = {name: random.choice(values) for name, values in bought.options.items()}
        as_dict = random.random() < 0.5
        ours = score(
            bought,
            chosen,
            goal=goal,
            wanted=wanted,
            nouns=nouns,
            option_names=list(wanted.options) if as_dict else None,
        )
        theirs = authors.get_reward(
            as_theirs(bought), _their_goal(goal, wanted, as_dict=as_dict), bought.price, chosen
        )
        form = "a dictionary" if as_dict else "a list"
        case = f"{bought.asin} with {chosen} for {goal.id}, options as {form}"
        yield Pair("reward", case, round(ours.total, 9), round(float(theirs), 9))


def as_theirs(product: Product) -> dict[str, Any]:
    """The fields of a product that the authors' functions read."""
    return {
        "name": product.name,
        "Title": product.name,
        "query": product.query,
        "product_category": product.product_category,
        "Description": product.description,
        "BulletPoints": list(product.features),
        "Attributes": list(product.attributes),
    }


def _their_goal(goal: Goal, wanted: Product, *, as_dict: bool) -> dict[str, Any]:
    options = dict(zip(wanted.options, goal.options, strict=True))
    return as_theirs(wanted) | {
        "attributes": list(goal.attributes),
        "price_upper": goal.price_limit,
        "goal_options": options if as_dict else list(goal.options),
    }
