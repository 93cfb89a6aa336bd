"""WebShop's own files of products and goals, read as its loader reads them.

Where the authors draw prices and price limits from a random generator, here the product's number
decides them.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from longhaul_core.errors import ConfigError
from longhaul_envs.task_lists import stable_seed
from longhaul_envs.webshop.catalogue import (
    NO_PRICE_LIMIT,
    Goal,
    Product,
    Review,
    price_limit,
)

__all__ = ["Files", "read_catalogue"]

_CHUNK = 1 << 20
_DEFAULT_PRICE = 100.0
_NO_ATTRIBUTES = ("DUMMY_ATTR",)
_NOT_A_NUMBER = re.compile(r"[^\d.]")
_MAX_ASIN = 10
_BETWEEN = frozenset(" \t\r\n,")


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Paths of the files; an empty one is not there."""

    products: str
    """`items_shuffle.json` or `items_shuffle_1000.json`."""
    attributes: str
    """`items_ins_v2.json` or `items_ins_v2_1000.json`."""
    human_goals: str
    """`items_human_ins.json`; without it, goals are made of attributes and options."""
    reviews: str
    """`reviews.json`."""
    num_products: int
    """How many products of the file are read; 0 for all."""


def read_catalogue(files: Files) -> Iterator[tuple[Product, Sequence[Goal]]]:
    """Every product with its goals, in the order of the file, which is not loaded as a whole.

    Raises:
        ConfigError: If a file is missing or is not what it should be.
    """
    attributes = _table(files.attributes)
    human = _table(files.human_goals) if files.human_goals else None
    reviews = _reviews(files.reviews)
    met: set[str] = set()
    for number, fields in enumerate(_array(Path(files.products))):
        if files.num_products and number >= files.num_products:
            break
        asin = str(fields.get("asin", "nan"))
        if asin == "nan" or len(asin) > _MAX_ASIN or asin in met:
            continue
        met.add(asin)
        try:
            product = _product(fields, attributes.get(asin, {}), reviews.get(asin, {}))
            if human is None:
                goals = _goals_of_options(product, attributes.get(asin, {}))
            else:
                goals = _human_goals(product, cast("list[Any]", human.get(asin, [])))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"{files.products}: product {asin!r} is not as WebShop has it: "
                f"{type(error).__name__}: {error}"
            ) from error
        yield product, goals


def _product(
    fields: Mapping[str, Any], attributes: Mapping[str, Any], reviews: Mapping[str, Any]
) -> Product:
    asin = str(fields["asin"])
    small: object = fields["small_description"]
    features = cast("list[object]", small) if isinstance(small, list) else [small]
    price, tag = _price(fields.get("pricing"), asin=asin)
    return Product(
        asin=asin,
        name=_text(fields["name"]),
        query=_text(fields["query"]).lower().strip(),
        category=_text(fields["category"]),
        product_category=_text(fields["product_category"]),
        description=_text(fields["full_description"]),
        features=tuple(map(_text, features)),
        price=price,
        price_tag=tag,
        options=_options(fields["customization_options"]),
        attributes=tuple(map(_text, attributes.get("attributes", _NO_ATTRIBUTES))),
        rating=_text(reviews.get("average_rating", "N.A.")),
        reviews=tuple(
            Review(
                _text(one.get("title")),
                _text(one.get("score", one.get("stars"))),
                _text(one.get("body", one.get("review"))),
            )
            for one in reviews.get("reviews", ())
        ),
    )


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _price(written: str | None, *, asin: str) -> tuple[float, str]:
    """Dollars, and how they are shown, of e.g. `$12.50` or `$10.00 - $20.00`."""
    prices = [float(_NOT_A_NUMBER.sub("", part)) for part in (written or "").split("$")[1:]]
    if not prices:
        return _DEFAULT_PRICE, f"${_DEFAULT_PRICE}"
    if len(prices) == 1:
        return prices[0], f"${prices[0]}"
    low, high = prices[:2]
    price = low + (high - low) * stable_seed(f"price of {asin}") / 2**31
    return price, f"${low} to ${high}"


def _options(written: Mapping[str, Any] | None) -> dict[str, tuple[str, ...]]:
    return {
        name.lower(): tuple(
            str(one["value"]).strip().replace("/", " | ").lower() for one in contents
        )
        for name, contents in (written or {}).items()
        if contents is not None
    }


def _goals_of_options(product: Product, fields: Mapping[str, Any]) -> list[Goal]:
    """A goal for every combination of the product's options."""
    instruction = fields.get("instruction")
    attributes = tuple(map(str, fields.get("instruction_attributes") or ()))
    if instruction is None or not attributes:
        return []
    limit = price_limit(product.price, key=product.asin)
    names = sorted(product.options)
    goals: list[Goal] = []
    for number, values in enumerate(itertools.product(*(product.options[n] for n in names))):
        chosen = ", and ".join(f"{n}: {value}" for n, value in zip(names, values, strict=True))
        goals.append(
            Goal(
                id=f"{product.asin}/{number}",
                asin=product.asin,
                instruction=f"{instruction}{' with ' if chosen else ''}{chosen}{_limited(limit)}",
                attributes=attributes,
                options=values,
                price_limit=limit,
            )
        )
    return goals


def _human_goals(product: Product, written: Sequence[Mapping[str, Any]]) -> list[Goal]:
    """A goal for every instruction that a person wrote of the product."""
    goals: list[Goal] = []
    for number, fields in enumerate(written):
        attributes = tuple(map(str, fields["instruction_attributes"]))
        if not attributes:
            continue
        key = f"{product.asin}/{number}"
        limit = price_limit(product.price, key=key)
        asked: object = fields["instruction_options"]
        options = cast("dict[str, object]", asked).values() if isinstance(asked, dict) else asked
        goals.append(
            Goal(
                id=key,
                asin=product.asin,
                instruction=str(fields["instruction"]).strip(".") + _limited(limit),
                attributes=attributes,
                options=tuple(map(str, cast("list[object]", options))),
                price_limit=limit,
            )
        )
    return goals


def _limited(limit: float) -> str:
    return "" if limit == NO_PRICE_LIMIT else f", and price lower than {limit:.2f} dollars"


def _reviews(path: str) -> dict[str, Mapping[str, Any]]:
    return {one["asin"]: one for one in _array(Path(path))} if path else {}


def _table(path: str) -> Mapping[str, Any]:
    file = _existing(Path(path))
    try:
        with file.open(encoding="utf-8") as opened:
            read: object = json.load(opened)
    except ValueError as error:
        raise ConfigError(f"{file} is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise ConfigError(f"{file} must hold a JSON object of products by their numbers")
    return cast("dict[str, Any]", read)


def _array(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON array, one after the other, from a file of any size."""
    decoder = json.JSONDecoder()
    with _existing(path).open(encoding="utf-8") as file:
        text = file.read(_CHUNK).lstrip()
        if not text.startswith("["):
            raise ConfigError(f"{path} must hold a JSON array of objects")
        place = 1
        while True:
            while text[place : place + 1] in _BETWEEN:
                place += 1
            if text[place : place + 1] == "]":
                return
            try:
                found, place = decoder.raw_decode(text, place)
            except json.JSONDecodeError as error:
                more = file.read(max(_CHUNK, len(text) - place))  # doubles for a long object
                if not more:
                    raise ConfigError(f"{path}: {error}") from error
                text, place = text[place:] + more, 0
                continue
            if not isinstance(found, dict):
                raise ConfigError(f"{path} must hold a JSON array of objects")
            yield cast("dict[str, Any]", found)


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise ConfigError(
            f"no file {path}; WebShop's data comes with its repository's setup.sh, which fetches "
            "items_shuffle_1000.json, items_ins_v2_1000.json and, for all 1.18 million products, "
            "items_shuffle.json and items_ins_v2.json; without files the shop is a generated one"
        )
    return path
