"""What a shop has: products, and goals that name what is to be bought."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from longhaul_envs.task_lists import content_hash

__all__ = ["NO_PRICE_LIMIT", "Goal", "Product", "Review", "price_limit"]

NO_PRICE_LIMIT = 1_000_000.0
_LIMITS = tuple(10.0 * tens for tens in range(1, 100))
"""Dollars that an instruction may name as a limit."""


@dataclass(frozen=True, slots=True)
class Review:
    """What a buyer wrote."""

    title: str
    score: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One product, as its pages show it and the reward reads it."""

    asin: str
    """Its number, in upper case."""
    name: str
    query: str
    """Words by which the data set found it: its type."""
    category: str
    product_category: str
    """Path of categories, `›` between them."""
    description: str
    features: tuple[str, ...]
    price: float
    """Dollars, that the reward compares."""
    price_tag: str
    """As shown, e.g. `$12.5` or `$10.0 to $20.0`."""
    options: Mapping[str, tuple[str, ...]]
    """Name to values, in lower case."""
    attributes: tuple[str, ...]
    rating: str = "N.A."
    reviews: tuple[Review, ...] = ()

    @property
    def searched(self) -> str:
        """The text by which a search finds it: name, description, first feature, options."""
        options = ", and ".join(
            f"{name}: {', '.join(values)}" for name, values in self.options.items()
        )
        return " ".join([self.name, self.description, *self.features[:1], options]).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What an instruction asks for."""

    id: str
    """`ASIN/N`, the N-th goal of the product from which it was made."""
    asin: str
    instruction: str
    attributes: tuple[str, ...]
    """At least one."""
    options: tuple[str, ...]
    """Values that are to be chosen."""
    price_limit: float
    """Dollars; `NO_PRICE_LIMIT` for none."""


def price_limit(price: float, *, key: str) -> float:
    """A limit above `price`, or `NO_PRICE_LIMIT` if the product is too dear for one.

    As WebShop draws it: the higher of two of the next four multiples of 10 dollars. `key` decides
    which two, so that every machine has the same.
    """
    above = [limit for limit in _LIMITS if limit > price][:4]
    if len(above) < 2:  # two are drawn
        return NO_PRICE_LIMIT
    return max(_by_hash(above, key)[:2])


def _by_hash(limits: Iterable[float], key: str) -> list[float]:
    return sorted(limits, key=lambda limit: content_hash(f"{key} {limit}"))
