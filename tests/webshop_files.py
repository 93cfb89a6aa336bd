"""WebShop's files in the authors' formats, a few products long."""

import json
from pathlib import Path
from typing import Any

PRODUCTS: list[dict[str, Any]] = [
    {
        "name": "Alder Wireless Headphones with Case",
        "product_information": {"Item Weight": "8 ounces"},
        "brand": "Visit the Alder Store",
        "full_description": "Headphones for long days.",
        "pricing": "$59.99",
        "list_price": "",
        "availability_status": "In Stock.",
        "images": ["a.jpg"],
        "product_category": "Electronics \u203a Headphones \u203a Over-Ear",
        "average_rating": "",
        "small_description": ["NOISE CANCELLING for flights", "40 hours"],
        "model": "",
        "customization_options": {
            "Color": [
                {"value": "Black/Red", "is_selected": True, "url": "", "image": "b.jpg"},
                {"value": " Ivory ", "is_selected": False, "url": "", "image": None},
            ],
            "Size": None,
        },
        "asin": "B000000001",
        "category": "electronics",
        "query": "Headphones ",
        "page": 1,
    },
    {
        "name": "Mint Tea",
        "full_description": None,
        "pricing": "$10.00 - $1,020.50",
        "images": ["c.jpg"],
        "product_category": "Grocery \u203a Tea",
        "small_description": "One feature",
        "customization_options": {},
        "asin": "B000000002",
        "category": "grocery",
        "query": "tea",
    },
    {
        "name": "Mint Tea",
        "full_description": "Another one of the same title.",
        "pricing": None,
        "images": ["d.jpg"],
        "product_category": "Grocery \u203a Tea",
        "small_description": [],
        "customization_options": "",
        "asin": "B000000003",
        "category": "grocery",
        "query": "tea",
    },
]
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "B000000001": {
        "attributes": ["noise cancelling", "long battery"],
        "instruction": "Find me wireless headphones that are noise cancelling",
        "instruction_attributes": ["noise cancelling"],
    },
    "B000000002": {"attributes": ["caffeine free"], "instruction": None},
    "B000000003": {
        "attributes": ["caffeine free"],
        "instruction": "Find me mint tea, caffeine free",
        "instruction_attributes": ["caffeine free"],
    },
}
HUMAN: dict[str, list[dict[str, Any]]] = {
    "B000000001": [
        {
            "asin": "B000000001",
            "instruction": "i want headphones for my flight.",
            "attributes": ["noise cancelling", "long battery"],
            "options": ["color: ivory"],
            "instruction_attributes": ["noise cancelling"],
            "instruction_options": ["ivory"],
            "worker_id": "1",
        },
        {
            "instruction": "headphones",
            "instruction_attributes": [],
            "instruction_options": [],
        },
    ]
}
REVIEWS: list[dict[str, Any]] = [
    {
        "asin": "B000000001",
        "average_rating": "4.5",
        "reviews": [
            {"title": "Good", "stars": "5.0", "review": "They last."},
            {"title": "Hm", "score": "2.0"},
        ],
    }
]


def filler(number: int) -> dict[str, Any]:
    """A product that makes the shop long enough for three splits."""
    return {
        **PRODUCTS[0],
        "asin": f"B1{number:08}",
        "name": f"Spare Headphones Number {number}",
        "pricing": f"${5 + number}.00",
    }


def write_files(folder: Path, *, num_fillers: int = 0) -> dict[str, Any]:
    """Write the files; the options that name them."""
    fillers = [filler(number) for number in range(num_fillers)]
    attributes = {
        **ATTRIBUTES,
        **{
            str(one["asin"]): {
                **ATTRIBUTES["B000000001"],
                "instruction": f"Find me headphones of kind {one['asin']}",
            }
            for one in fillers
        },
    }
    contents: dict[str, object] = {
        "items_shuffle_1000.json": [*PRODUCTS, *fillers],
        "items_ins_v2_1000.json": attributes,
        "items_human_ins.json": HUMAN,
        "reviews.json": REVIEWS,
    }
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return {
        "products": str(folder / "items_shuffle_1000.json"),
        "attributes": str(folder / "items_ins_v2_1000.json"),
        "reviews": str(folder / "reviews.json"),
    }
