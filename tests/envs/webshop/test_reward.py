"""WebShop's reward: its parts worked by hand, and what the authors' own function pays."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from longhaul_core.errors import ConfigError
from longhaul_envs.webshop.catalogue import NO_PRICE_LIMIT, Goal, Product, price_limit
from longhaul_envs.webshop.nouns import noun_finder, words_but_modifiers
from longhaul_envs.webshop.reward import Score, alike, score

LAMP = Product(
    asin="B00000LAMP",
    name="Alder Desk Lamp with Shade",
    query="desk lamps",
    category="garden",
    product_category="Home › Lighting › Lamps",
    description="A lamp that is easy to clean.",
    features=("Dimmable: three levels", "Cable of 2 meter"),
    price=25.0,
    price_tag="$25.0",
    options={"color": ("navy blue", "white"), "size": ("small", "x-large")},
    attributes=("eco friendly", "touch control"),
)
GOAL = Goal(
    id="B00000LAMP/0",
    asin="B00000LAMP",
    instruction="find a lamp",
    attributes=("eco friendly", "dimmable"),
    options=("navy blue", "x-large"),
    price_limit=30.0,
)
RIGHT = {"color": "navy blue", "size": "x-large"}
RECORDED = Path(__file__).parents[2] / "golden" / "webshop_rewards.json.gz"
"""What the authors' code paid; `make_webshop_rewards.py` beside it says how it was made."""


def scored(bought: Product = LAMP, options: dict[str, str] = RIGHT, goal: Goal = GOAL) -> Score:
    return score(bought, options, goal=goal, wanted=LAMP, nouns=words_but_modifiers)


def test_the_right_product_with_the_right_options_scores_1() -> None:
    assert scored() == Score(total=1.0, type=1.0, attributes=1.0, options=1.0, price=True)


@pytest.mark.parametrize(
    ("options", "goal", "total"),
    [
        ({}, GOAL, 3 / 5),
        ({"color": "white", "size": "x-large"}, GOAL, 4 / 5),
        # any shade of a named color is that color
        (
            {"color": "blueish", "size": "x-large"},
            replace(GOAL, options=("navyblue", "x-large")),
            1,
        ),
        # nothing asks for another size, but all words of this one are in the one that was asked for
        ({"color": "navy blue", "size": "small"}, GOAL, 4 / 5),
        ({"color": "navy blue", "size": "large"}, GOAL, 1),
        (RIGHT, replace(GOAL, price_limit=20.0), 4 / 5),
        (RIGHT, replace(GOAL, attributes=("eco friendly", "waterproof")), 4 / 5),
        ({}, replace(GOAL, options=()), 1.0),
    ],
)
def test_every_part_counts_the_same(options: dict[str, str], goal: Goal, total: float) -> None:
    assert scored(options=options, goal=goal).total == pytest.approx(total)


def test_an_option_that_was_not_asked_for_earns_nothing_though_the_listing_names_it() -> None:
    bought = replace(LAMP, features=("Dimmable", "In white, navy blue, small and x-large"))
    assert scored(bought, {"color": "white", "size": "small"}).options == 0.0
    assert scored(bought, {**RIGHT, "cable": "white", "shade": "small"}) == scored()


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return json.loads(gzip.decompress(RECORDED.read_bytes()))


@pytest.mark.parametrize("form", ["list", "dict"])
def test_the_authors_own_function_pays_the_same(recorded: dict[str, Any], form: str) -> None:
    products = TypeAdapter(list[Product]).validate_python(recorded["products"])
    carts = [cart for cart in recorded["carts"] if cart["form"] == form]
    differences: list[tuple[dict[str, Any], Score]] = []
    for cart in carts:
        wanted = products[int(cart["wanted"])]
        asked = cart["asked"]
        goal = Goal(
            id="recorded",
            asin=wanted.asin,
            instruction="",
            attributes=tuple(cart["attributes"]),
            options=tuple(asked.values()),
            price_limit=cart["price_limit"],
        )
        ours = score(
            products[int(cart["bought"])],
            cart["chosen"],
            goal=goal,
            wanted=wanted,
            nouns=recorded["nouns"].__getitem__,
            option_names=list(asked) if form == "dict" else None,
        )
        total, type_factor, _, attributes, options, price = cart["paid"]
        theirs = Score(
            total=total, type=type_factor, attributes=attributes, options=options, price=price
        )
        if ours != theirs:
            differences.append((cart, ours))

    assert len(carts) == 2000
    assert differences == []


def test_an_attribute_may_stand_in_title_features_or_description() -> None:
    for attribute in ("shade", "three levels", "easy to clean"):
        assert scored(goal=replace(GOAL, attributes=(attribute,))).attributes == 1.0


@pytest.mark.parametrize(
    ("other", "factor"),
    [
        (replace(LAMP, name="Tarn Desk Lamp"), 1.0),
        # one noun of four and the same query, then a path of two shared categories
        (replace(LAMP, name="Tarn Floor Lamp"), 1.0),
        (replace(LAMP, name="Tarn Lamp Oil", query="oils"), 1.0),
        (replace(LAMP, name="Mint Tea", query="teas", product_category="Grocery › Tea"), 0.0),
    ],
)
def test_the_type_is_a_factor(other: Product, factor: float) -> None:
    assert scored(replace(other)).type == factor


def test_the_factor_falls_with_the_share_of_nouns_where_nothing_else_fits() -> None:
    other = replace(LAMP, query="x", product_category="y", name="lamp")
    long = replace(LAMP, name="lamp " + " ".join(f"noun{'abcdefghijkl'[n]}" for n in range(11)))

    def factor(num_nouns: int) -> float:
        wanted = replace(long, name=" ".join(long.name.split()[:num_nouns]))
        return score(other, {}, goal=GOAL, wanted=wanted, nouns=str.split).type

    assert [factor(n) for n in (4, 5, 10, 11)] == [1.0, 0.5, 0.5, 0.1]


def test_a_title_without_nouns_leaves_it_to_query_and_category() -> None:
    def none(title: str) -> list[str]:
        del title
        return []

    other = replace(LAMP, query="x", product_category="y")
    assert score(LAMP, {}, goal=GOAL, wanted=LAMP, nouns=none).type == 1.0
    assert score(other, {}, goal=GOAL, wanted=LAMP, nouns=none).type == 0.5


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Easy to Clean!", "clean easy to", True),
        ("8 ounce (pack of 2)", "8 ounce", True),
        ("machine washable", "machine wash", True),
        ("machine washable", "hand wash", False),
        ("", "", False),
        ("\u6f22", "\u6f22", True),
        ("na\u00efve", "nave", True),
        ("\u00e9", "\u00e9", False),
    ],
)
def test_texts_are_alike_by_the_set_of_their_words(one: str, other: str, same: bool) -> None:
    assert alike(one, other) is same


def test_nouns_are_the_words_that_are_not_known_to_be_modifiers() -> None:
    title = "Women's Waterproof Wireless Headphones, 40 Hours & Comfortable Ear-Pads"
    assert words_but_modifiers(title) == ["women", "headphones", "hours", "ear", "pads"]


def shouted(title: str) -> list[str]:
    return [word.lower() for word in title.split() if word.isupper()]


def test_a_noun_finder_of_ones_own_is_used_by_name() -> None:
    assert noun_finder(f"{__name__}:shouted")("a RED lamp") == ["red"]


def test_a_finder_that_cannot_be_had_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match="must be one of words"):
        noun_finder("nltk")
    with pytest.raises(ConfigError, match=r"pip install spacy|no such model"):
        noun_finder("spacy:en_no_such_model")


def test_a_price_limit_is_the_higher_of_two_of_the_next_four_tens() -> None:
    limits = {price_limit(25.0, key=str(n)) for n in range(200)}
    assert limits == {40.0, 50.0, 60.0}
    assert price_limit(25.0, key="a") == price_limit(25.0, key="a")
    assert price_limit(985.0, key="a") == NO_PRICE_LIMIT
