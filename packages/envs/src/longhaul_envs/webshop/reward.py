"""WebShop's reward: how well what was bought fits what was asked for, from 0 to 1.

Source:
    Yao and others 2022, arXiv:2207.01206, appendix A.5, as the authors' code has it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longhaul_envs.extras import required
from longhaul_envs.webshop.catalogue import Goal, Product
from longhaul_envs.webshop.nouns import NounFinder

__all__ = ["Score", "alike", "mentions", "same_option", "score"]

_ALIKE_ABOVE = 85
"""Percent of likeness at which two texts count as equal."""
_WITHOUT_LATIN_1 = dict.fromkeys(range(128, 256))
"""thefuzz leaves these characters out, e.g. an é, and no others."""
_NOUNLESS_TITLE = 0.2
_SHARED_CATEGORIES = 2
_COLORS_WORDS = (
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown "
    "burgundy camel camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee "
    "cognac copper coral cranberry cream crystal dark denim eggplant elephant espresso fuchsia "
    "gold granite grape graphite grass gray green grey heather indigo ivory ivy khaki lavender "
    "lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor "
    "mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red "
    "rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower "
    "tan taupe teal tiger turquoise violet walnut wheat white wine yellow"
)
_COLORS = tuple(_COLORS_WORDS.split())
"""An option's value that holds one of them stands for the first one that it holds."""


@dataclass(frozen=True, slots=True)
class Score:
    """The reward and its parts, each from 0 to 1."""

    total: float
    type: float
    """A factor on the others: 1, 0.5, 0.1 or 0."""
    attributes: float
    """Share of the goal's attributes."""
    options: float | None
    """Share of the goal's options that were chosen; None if the goal has none."""
    price: bool
    """Whether the price is within the limit."""


def score(
    bought: Product,
    options: Mapping[str, str],
    *,
    goal: Goal,
    wanted: Product,
    nouns: NounFinder,
    option_names: Sequence[str] | None = None,
) -> Score:
    """The score of buying `bought` with `options` chosen.

    Args:
        bought: What was bought.
        options: Name of each chosen option to its value.
        goal: What was asked for.
        wanted: The product that the goal was made of.
        nouns: Finds the nouns of a title.
        option_names: Of the goal's options, in their order, where each is compared as the text of
            its name and value; None where it is compared as its value.

    Raises:
        ConfigError: If `rapidfuzz` is not installed.
    """
    type_factor = _type_factor(bought, wanted, nouns)
    num_attributes = sum(_has_attribute(bought, attribute) for attribute in goal.attributes)
    asked = goal.options
    if option_names is not None:
        asked = list(zip(option_names, goal.options, strict=True))
    num_options = _num_options(options, asked)
    within = bought.price <= goal.price_limit
    num_wanted = len(goal.attributes) + len(goal.options) + 1
    return Score(
        total=(num_attributes + num_options + within) / num_wanted * type_factor,
        type=type_factor,
        attributes=num_attributes / len(goal.attributes),
        options=num_options / len(goal.options) if goal.options else None,
        price=within,
    )


def alike(one: str, other: str) -> bool:
    """Whether the words of two texts are nearly the same set: thefuzz's `token_set_ratio` > 85."""
    fuzz: Any = required("rapidfuzz.fuzz", "search")
    process: Any = required("rapidfuzz.utils", "search").default_process
    first, second = (process(text.translate(_WITHOUT_LATIN_1)) for text in (one, other))
    if not first or not second:
        return False
    return round(fuzz.token_set_ratio(first, second)) > _ALIKE_ABOVE


def _type_factor(bought: Product, wanted: Product, nouns: NounFinder) -> float:
    bought_nouns, wanted_nouns = nouns(bought.name), nouns(wanted.name)
    if wanted_nouns:
        title = len(set(bought_nouns) & set(wanted_nouns)) / len(wanted_nouns)
    else:
        title = _NOUNLESS_TITLE
    categories = _categories(bought) & _categories(wanted)
    if title == 0:
        return 0.0
    if title < 0.1:  # this threshold and the next are the authors'
        return 0.1
    if bought.query == wanted.query or len(categories) >= _SHARED_CATEGORIES or title > 0.2:
        return 1.0
    return 0.5


def _categories(product: Product) -> set[str]:
    return {part.strip() for part in product.product_category.split("›")}


def _has_attribute(product: Product, attribute: str) -> bool:
    return any(alike(has, attribute) for has in product.attributes) or mentions(product, attribute)


def _num_options(chosen: Mapping[str, str], asked: Sequence[str | tuple[str, str]]) -> int:
    return sum(any(same_option(one, option) for one in chosen.values()) for option in asked)


def same_option(chosen: str, asked: str | tuple[str, str]) -> bool:
    """Whether a chosen value is alike to an asked one, of each the first color if it has one."""
    return alike(_color_of(chosen), _color_of(asked))


def _color_of(option: str | tuple[str, str]) -> str:
    """The first color that `option` holds, or its text. A pair holds what it is equal to."""
    return next((color for color in _COLORS if color in option), str(option))


def mentions(product: Product, text: str) -> bool:
    """Whether a text of the product has `text` in it."""
    return (
        text in product.name.lower()
        or text in " ".join(product.features).lower()
        or text in product.description.lower()
    )
