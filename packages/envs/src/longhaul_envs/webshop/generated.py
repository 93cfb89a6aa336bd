"""A shop of its own, made from a seed: kinds of products as WebShop's five categories have them.

Choices are made by ranking hashes, so that no version of a random generator can change them. A
product's title names one of its attributes, its features and description name the others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from longhaul_envs.task_lists import content_hash, stable_seed
from longhaul_envs.webshop.catalogue import (
    NO_PRICE_LIMIT,
    Goal,
    Product,
    Review,
    price_limit,
)

__all__ = ["GENERATED_VERSION", "generate_catalogue"]

GENERATED_VERSION = "2"
"""Of what a seed gives."""

_ATTRIBUTES_OF_A_PRODUCT = 4
_ATTRIBUTES_OF_A_GOAL = 2
_GOALS_OF_A_PRODUCT = 2
_LETTERS = "0123456789BCDFGHJKLMNPQRSTVWXYZ"


@dataclass(frozen=True, slots=True)
class _Kind:
    query: str
    category: str
    path: str
    nouns: tuple[str, ...]
    attributes: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]
    prices: tuple[int, int]
    """Lowest and highest, in dollars."""


_COLORS = ("black", "white", "navy", "red", "olive", "grey", "pink", "teal")
_SIZES = ("small", "medium", "large", "x-large", "xx-large")
_WEAR = ("machine washable", "quick drying", "moisture wicking", "slim fit", "long sleeve")
_POWER = ("fast charging", "high speed", "easy to use", "light weight", "energy efficient")
_FOOD = ("gluten free", "non gmo", "low sugar", "plant based", "keto friendly", "nut free")
_CARE = ("cruelty free", "paraben free", "fragrance free", "dermatologist tested", "long lasting")
_HOME = ("easy to clean", "easy to assemble", "space saving", "eco friendly", "heavy duty")

_KINDS = (
    _Kind(
        "men's jackets", "fashion", "Clothing › Men › Jackets & Coats",
        ("rain jacket", "fleece jacket", "bomber jacket"),
        (*_WEAR, "water resistant", "hooded"),
        (("color", _COLORS), ("size", _SIZES)), (25, 120),
    ),
    _Kind(
        "women's dresses", "fashion", "Clothing › Women › Dresses",
        ("summer dress", "wrap dress", "maxi dress"),
        (*_WEAR, "high waist", "floral print"),
        (("color", _COLORS), ("size", _SIZES)), (18, 80),
    ),
    _Kind(
        "running shoes", "fashion", "Shoes › Athletic › Running",
        ("trail shoes", "running shoes", "walking shoes"),
        ("arch support", "non slip", "rubber sole", "breathable", "light weight", "wide fit"),
        (("color", _COLORS), ("size", ("7", "8", "9", "10", "11"))), (30, 140),
    ),
    _Kind(
        "backpacks", "fashion", "Luggage › Bags › Backpacks",
        ("travel backpack", "laptop backpack", "hiking backpack"),
        ("water resistant", "padded straps", "anti theft", "light weight", "large capacity"),
        (("color", _COLORS), ("capacity", ("20 liter", "30 liter", "40 liter"))), (20, 110),
    ),
    _Kind(
        "headphones", "electronics", "Electronics › Audio › Headphones",
        ("wireless headphones", "studio headphones", "sports earbuds"),
        (*_POWER, "noise cancelling", "sweat proof"),
        (("color", _COLORS), ("cable", ("no cable", "1 meter", "2 meter"))), (15, 200),
    ),
    _Kind(
        "bluetooth speakers", "electronics", "Electronics › Audio › Speakers",
        ("bluetooth speaker", "shelf speaker", "shower speaker"),
        (*_POWER, "waterproof", "stereo sound"),
        (("color", _COLORS), ("power", ("5 watt", "10 watt", "20 watt"))), (15, 150),
    ),
    _Kind(
        "usb chargers", "electronics", "Electronics › Power › Chargers",
        ("wall charger", "car charger", "charging station"),
        (*_POWER, "overcharge protection", "foldable plug"),
        (("color", ("black", "white", "grey")), ("ports", ("1 port", "2 port", "4 port"))),
        (8, 60),
    ),
    _Kind(
        "tv mounts", "electronics", "Electronics › Television › Mounts",
        ("tv wall mount", "ceiling mount", "tv stand"),
        ("heavy duty", "easy to install", "tilting", "wall mounted", "height adjustable"),
        (("screen size", ("32 inch", "43 inch", "55 inch", "65 inch")),), (20, 130),
    ),
    _Kind(
        "face creams", "beauty", "Beauty › Skin Care › Face",
        ("day cream", "night cream", "face lotion"),
        (*_CARE, "hyaluronic acid", "for sensitive skin"),
        (("size", ("1 ounce", "2 ounce", "4 ounce")), ("pack", ("1 pack", "2 pack"))), (6, 70),
    ),
    _Kind(
        "hair shampoos", "beauty", "Beauty › Hair Care › Shampoo",
        ("repair shampoo", "volume shampoo", "scalp shampoo"),
        (*_CARE, "sulfate free", "argan oil"),
        (("scent", ("coconut", "lavender", "mint")), ("size", ("8 ounce", "16 ounce"))), (5, 45),
    ),
    _Kind(
        "makeup brushes", "beauty", "Beauty › Makeup › Brushes",
        ("brush set", "powder brush", "blending brush"),
        ("cruelty free", "easy to clean", "synthetic hair", "travel size", "soft bristles"),
        (("color", _COLORS), ("pieces", ("3 pieces", "7 pieces", "12 pieces"))), (7, 50),
    ),
    _Kind(
        "desk lamps", "garden", "Home › Lighting › Lamps",
        ("desk lamp", "floor lamp", "bedside lamp"),
        (*_HOME, "dimmable", "touch control"),
        (("color", _COLORS), ("light", ("warm white", "cool white"))), (15, 90),
    ),
    _Kind(
        "storage shelves", "garden", "Home › Furniture › Shelves",
        ("book shelf", "corner shelf", "kitchen shelf"),
        (*_HOME, "solid wood", "wall mounted"),
        (("color", ("black", "white", "walnut")), ("tiers", ("2 tier", "3 tier", "5 tier"))),
        (20, 160),
    ),
    _Kind(
        "bed sheets", "garden", "Home › Bedding › Sheets",
        ("sheet set", "fitted sheet", "duvet cover"),
        (*_HOME[:1], "machine washable", "super soft", "deep pocket", "wrinkle free", "cotton"),
        (("color", _COLORS), ("size", ("twin", "full", "queen", "king"))), (18, 95),
    ),
    _Kind(
        "garden hoses", "garden", "Garden › Watering › Hoses",
        ("garden hose", "expandable hose", "soaker hose"),
        (*_HOME[2:], "kink free", "leak proof", "light weight"),
        (("length", ("25 feet", "50 feet", "100 feet")),), (12, 85),
    ),
    _Kind(
        "protein bars", "grocery", "Grocery › Snacks › Bars",
        ("protein bars", "granola bars", "nut bars"),
        (*_FOOD, "high protein"),
        (("flavor", ("chocolate", "peanut", "vanilla", "berry")), ("pack", ("6 pack", "12 pack"))),
        (6, 40),
    ),
    _Kind(
        "herbal teas", "grocery", "Grocery › Beverages › Tea",
        ("herbal tea", "green tea", "rooibos tea"),
        (*_FOOD[:2], "caffeine free", "certified organic", "fair trade", "individually wrapped"),
        (("flavor", ("mint", "lemon", "ginger", "hibiscus")), ("count", ("20 bags", "50 bags"))),
        (4, 35),
    ),
    _Kind(
        "cooking oils", "grocery", "Grocery › Pantry › Oils",
        ("olive oil", "avocado oil", "coconut oil"),
        (*_FOOD, "cold pressed"),
        (("size", ("8 ounce", "16 ounce", "32 ounce")),), (6, 45),
    ),
)  # fmt: skip

_BRANDS = (
    "Alderway", "Brightloom", "Corvane", "Dunmore", "Everpine", "Fennick", "Garrowe", "Hollis",
    "Ironleaf", "Juniper Co", "Kestrel", "Lowmoor", "Marlowe", "Northfen", "Oakhurst", "Pellam",
    "Quillon", "Redgate", "Southwell", "Tarn", "Umberly", "Vellano", "Westrow", "Yarrow",
)  # fmt: skip
_PRAISE = ("Does what it says", "Good for the price", "Bought a second one", "Arrived in time")
_BLAME = ("Not what I expected", "Came late", "Smaller than it looks")


def generate_catalogue(seed: int, num_products: int) -> Iterator[tuple[Product, Sequence[Goal]]]:
    """`num_products` products of all kinds in turn, each with its goals."""
    for number in range(num_products):
        product = _product(seed, number)
        yield product, [_goal(product, place) for place in range(_GOALS_OF_A_PRODUCT)]


def _product(seed: int, number: int) -> Product:
    key = f"webshop {seed} {number}"
    kind = _KINDS[number % len(_KINDS)]
    noun = _pick(kind.nouns, f"{key} noun")
    attributes = _ranked(kind.attributes, key)[:_ATTRIBUTES_OF_A_PRODUCT]
    brand = _pick(_BRANDS, f"{key} brand")
    model = _number(number)[-4:]
    low, high = kind.prices
    cents = low * 100 + stable_seed(f"{key} price") % ((high - low) * 100)
    options = {
        name: tuple(value for value in values if stable_seed(f"{key} {name} {value}") % 4)
        or values[:1]
        for name, values in kind.options
    }
    return Product(
        asin=f"B{_number(stable_seed(f'{key} asin'))[-5:]}{model}",
        name=f"{brand} {noun.title()} {attributes[0].title()} {model}",
        query=kind.query,
        category=kind.category,
        product_category=kind.path,
        description=(
            f"This {noun} by {brand} is {attributes[1]} and {attributes[2]}. "
            f"Model {model} of our {kind.query}."
        ),
        features=(
            f"{attributes[3].capitalize()}: made for every day",
            f"Choose among {', '.join(f'{n} {v}' for n, of in options.items() for v in of)}",
        ),
        price=cents / 100,
        price_tag=f"${cents / 100}",
        options=options,
        attributes=tuple(sorted(attributes)),
        rating=f"{2.5 + stable_seed(f'{key} rating') % 26 / 10:.1f}",
        reviews=tuple(_review(f"{key} review {n}") for n in range(stable_seed(key) % 4)),
    )


def _goal(product: Product, place: int) -> Goal:
    key = f"{product.asin}/{place}"
    attributes = _ranked(product.attributes, key)[:_ATTRIBUTES_OF_A_GOAL]
    chosen = {name: _pick(values, f"{key} {name}") for name, values in product.options.items()}
    limit = price_limit(product.price, key=key)
    options = ", and ".join(f"{name}: {value}" for name, value in chosen.items())
    limited = "" if limit == NO_PRICE_LIMIT else f", and price lower than {limit:.2f} dollars"
    noun = " ".join(product.description.split(" by ")[0].split()[1:])
    return Goal(
        id=key,
        asin=product.asin,
        instruction=f"find {noun}, {' and '.join(attributes)}, with {options}{limited}",
        attributes=tuple(attributes),
        options=tuple(chosen.values()),
        price_limit=limit,
    )


def _review(key: str) -> Review:
    score = 1 + stable_seed(f"{key} score") % 5
    title = _pick(_PRAISE if score >= 3 else _BLAME, key)  # half of the scale or more
    return Review(title, f"{score}.0", f"{title}. {score} of 5.")


def _number(value: int) -> str:
    """`value` in letters and digits that cannot be taken for each other, at least five."""
    written = ""
    while value or len(written) < 5:  # as many as an ASIN needs
        value, digit = divmod(value, len(_LETTERS))
        written = _LETTERS[digit] + written
    return written


def _pick(items: Sequence[str], key: str) -> str:
    return _ranked(items, key)[0]


def _ranked(items: Sequence[str], key: str) -> list[str]:
    return sorted(items, key=lambda item: content_hash(f"{key} {item}"))
