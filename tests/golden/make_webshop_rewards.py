r"""Writes `webshop_rewards.json.gz`: 4,000 carts, and what WebShop's `get_reward` pays for each.

    git clone https://github.com/princeton-nlp/WebShop    # at 64fa2a5
    uv run --with thefuzz==0.19.0 --with python-Levenshtein==0.12.2 --with rich --with spacy \
        python tests/golden/make_webshop_rewards.py WebShop

It runs `web_agent_site/engine/goal.py` of that folder unchanged, with spaCy's `en_core_web_sm`,
which `python -m spacy download en_core_web_sm` gets. The nouns that the model found are recorded
too, so that the test needs neither. The products are those of a generated shop with options as
Amazon's listings write them; half of the listings name their options in a feature.
"""

import gzip
import importlib
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

from longhaul_envs.against.webshop import as_theirs
from longhaul_envs.webshop.catalogue import Product
from longhaul_envs.webshop.generated import generate_catalogue

FILE = Path(__file__).parent / "webshop_rewards.json.gz"
NUM_PRODUCTS, NUM_CARTS = 144, 4000
SEED = 20260
FORMS = ("list", "dict")
CHOICES = ("right", "wrong", "random", "one wrong", "none")
PARTS = ("total", "type", "title", "attributes", "options", "price")
VALUES: dict[str, tuple[str, ...]] = {
    "color": (
        "black", "navy blue", "navyblue", "blue | white", "a-red", "rose gold", "c01-dark grey",
        "multi 3", "oat", "café au lait", "黒", "deep teal", "pink flamingo", "#4",
    ),
    "size": (
        "small", "large", "x-large", "3x-large", "large | tall", "8 wide", "8.5", "38w x 30l",
        "queen", "twin xl", "18 x 18-inch", '5"', "one size", "6 feet",
    ),
    "style": ("women's", "men's", "with lid", "classic", "classic plus", "2-pack", "modern"),
    "flavor name": ("mint", "lemon & mint", "sea salt", "salt", "berry (unsweetened)", "plain"),
    "pack": ("8 ounce (pack of 2)", "8 ounce", "16 ounce (pack of 2)", "1 count (pack of 1)"),
}  # fmt: skip


def products() -> list[Product]:
    """Generated products with options of real forms, named by every second listing."""
    random = Random(SEED)
    made: list[Product] = []
    for number, (product, _) in enumerate(generate_catalogue(1, NUM_PRODUCTS)):
        names = random.sample(sorted(VALUES), random.randint(1, 3))
        options = {name: tuple(random.sample(VALUES[name], random.randint(2, 4))) for name in names}
        named = f"Available in {', '.join(value for some in options.values() for value in some)}"
        features = (*product.features, named) if number % 2 else product.features
        made.append(replace(product, options=options, features=features))
    return made


def cart(random: Random, made: list[Product], number: int) -> dict[str, Any]:
    """A goal, and what is bought: all that the reward depends on."""
    wanted = random.randrange(len(made))
    product = made[wanted]
    asked = {name: random.choice(product.options[name]) for name in sorted(product.options)}
    attributes = random.sample(product.attributes, random.randint(1, 3))
    if random.random() < 0.3:  # else every goal of the right product has all its attributes
        attributes.append(random.choice(random.choice(made).attributes))
    # Of the same kind every second time: kinds take turns.
    other = (wanted + random.randint(1, 7) * random.choice((1, 18))) % len(made)
    bought = wanted if random.random() < 0.7 else other
    return {
        "wanted": wanted,
        "bought": bought,
        "attributes": attributes,
        "form": FORMS[number % 2],
        "asked": asked if random.random() > 0.05 else {},
        "chosen": chosen(random, made[bought], asked),
        "price_limit": random.choice((10.0, 50.0, 100.0, 1_000_000.0)),
    }


def chosen(random: Random, product: Product, asked: dict[str, str]) -> dict[str, str]:
    """Options of `product` to buy it with."""
    how = random.choice(CHOICES)
    picked = {name: random.choice(values) for name, values in product.options.items()}
    fitting = {name: asked[name] for name in picked if name in asked}
    others = {
        name: random.choice([value for value in product.options[name] if value != asked.get(name)])
        for name in picked
    }
    if how == "right":
        return picked | fitting
    if how == "wrong":
        return others
    if how == "one wrong":
        name = random.choice(sorted(picked))
        return picked | fitting | {name: others[name]}
    return picked if how == "random" else {}


def paid(goal_module: Any, cart: dict[str, Any], made: list[Product]) -> list[Any]:  # noqa: ANN401
    """What the authors' function says, in the order of `PARTS`."""
    wanted = made[int(cart["wanted"])]
    asked = cart["asked"]
    goal = as_theirs(wanted) | {
        "attributes": cart["attributes"],
        "price_upper": cart["price_limit"],
        "goal_options": asked if cart["form"] == "dict" else list(asked.values()),
    }
    bought = made[int(cart["bought"])]
    total, info = goal_module.get_reward(
        as_theirs(bought), goal, bought.price, cart["chosen"], verbose=True
    )
    names = ("r_type", "title_score", "r_att", "r_option", "r_price")
    return [total, *(info.get(name) for name in names)]


def main() -> None:
    """Run the authors' code of the folder that the command names, and write the file."""
    sys.path.insert(0, sys.argv[1])
    goal_module: Any = importlib.import_module("web_agent_site.engine.goal")
    random, made = Random(SEED), products()
    carts = [cart(random, made, number) for number in range(NUM_CARTS)]
    written: dict[str, Any] = {
        "source": "princeton-nlp/WebShop 64fa2a5, web_agent_site/engine/goal.py: get_reward, with "
        "thefuzz 0.19.0, python-Levenshtein 0.12.2 and spaCy's en_core_web_sm 3.8.0; the inputs "
        "and this file by tests/golden/make_webshop_rewards.py",
        "parts": PARTS,
        "nouns": {
            product.name: [
                token.text.lower()
                for token in goal_module.nlp(product.name)
                if token.pos_ in ("NOUN", "PROPN")
            ]
            for product in made
        },
        "products": [asdict(product) | {"reviews": []} for product in made],
        "carts": [one | {"paid": paid(goal_module, one, made)} for one in carts],
    }
    text = json.dumps(written, ensure_ascii=False, separators=(",", ":"))
    FILE.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
