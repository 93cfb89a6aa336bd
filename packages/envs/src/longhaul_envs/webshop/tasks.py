"""WebShop's tasks: a goal each, under the id `ASIN/N`.

Goals of one product title are in one split, and no instruction is in two. The authors' split, by
place in their shuffled list, is an option; it has goals of one product on both sides.
"""

from dataclasses import dataclass
from pathlib import Path

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs import data
from longhaul_envs.built import built_once, shared
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.task_lists import content_hash, rules_version
from longhaul_envs.webshop.files import Files, read_catalogue
from longhaul_envs.webshop.generated import GENERATED_VERSION, generate_catalogue
from longhaul_envs.webshop.shop import Shop, write_shop

__all__ = ["WebShopOptions", "open_shop", "source", "tasks"]

_GENERATED_PRODUCTS = 1000
_MIN_PRODUCTS, _MAX_PROPOSALS = 20, 8
_FILES_VERSION = "1"
"""Of how files are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebShopOptions(PackagedOptions):
    """What can be chosen about WebShop."""

    environment_id = "longhaul/WebShop-v0"
    episodes_per_process = 16
    rules = ("observation", "reward", "asked", "nouns", "show_attributes", "search_proposals")

    products: str = ""
    """WebShop's `items_shuffle*.json`; empty for a generated shop. Chooses tasks."""
    attributes: str = ""
    """WebShop's `items_ins_v2*.json`, needed with `products`. Chooses tasks."""
    human_goals: str = ""
    """WebShop's `items_human_ins.json`; without it, its synthetic goals. Chooses tasks."""
    reviews: str = ""
    """WebShop's `reviews.json`. Chooses tasks."""
    num_products: int = 0
    """Products of the shop; 0 for all of the file, or for 1,000 generated ones. Chooses tasks."""
    catalogue_seed: int = 0
    """Of a generated shop. Chooses tasks."""
    split: str = "content"
    """`content`, or `authors`: the first 500 goals test, 1,000 validate. Chooses tasks."""
    observation: str = "plain"
    """`plain`, or `sep`: the authors' text. A rule."""
    reward: str = "score"
    """`score`, or `success`: 1 for a score of 1, else 0. A rule."""
    asked: str = "values"
    """`values`, or `pairs`: the authors' text of a synthetic goal's name and value. A rule."""
    nouns: str = "words"
    """How the title score finds nouns: `words`, `spacy:MODEL` or `package.module:name`. A rule."""
    show_attributes: bool = False
    """Whether item pages lead to a page of attributes. A rule."""
    search_proposals: int = 0
    """Queries that the search page lists as its only actions, 0 to 8; 0 for free search. A rule."""

    def __post_init__(self) -> None:
        if bool(self.products) != bool(self.attributes):
            raise ConfigError(
                "products and attributes are given together or not at all, got "
                f"products={self.products!r} and attributes={self.attributes!r}"
            )
        if (self.human_goals or self.reviews) and not self.products:
            raise ConfigError("human_goals and reviews are of the file that products names")
        if self.num_products and self.num_products < _MIN_PRODUCTS:
            raise ConfigError(
                f"num_products must be 0, or at least {_MIN_PRODUCTS}, got {self.num_products}"
            )
        for name, known in (
            ("split", ("content", "authors")),
            ("observation", ("plain", "sep")),
            ("reward", ("score", "success")),
            ("asked", ("values", "pairs")),
        ):
            if getattr(self, name) not in known:
                raise ConfigError(
                    f"{name} must be {' or '.join(known)}, got {getattr(self, name)!r}"
                )
        if self.asked == "pairs" and (not self.products or self.human_goals):
            raise ConfigError(
                "asked = 'pairs' is of synthetic goals: name products, and no human_goals"
            )
        if not 0 <= self.search_proposals <= _MAX_PROPOSALS:
            raise ConfigError(
                f"search_proposals must be from 0 to {_MAX_PROPOSALS}, got {self.search_proposals}"
            )

    @property
    def version(self) -> str:
        """The value of `Task.version`."""
        return rules_version("2", self, rules=self.rules)


def open_shop(options: WebShopOptions) -> Shop:
    """The shop under `options`, opened once in a process and made first if it is not there.

    Raises:
        ConfigError: If a file or a package is missing, or a file is not what it should be.
    """
    root = data.folder("webshop")
    if not options.products:
        num_products = options.num_products or _GENERATED_PRODUCTS
        seed = options.catalogue_seed
        folder = built_once(
            root / f"generated-{GENERATED_VERSION}-{seed}-{num_products}",
            lambda made: write_shop(made, generate_catalogue(seed, num_products)),
        )
    else:
        files = Files(
            products=options.products,
            attributes=options.attributes,
            human_goals=options.human_goals,
            reviews=options.reviews,
            num_products=options.num_products,
        )
        folder = built_once(
            root / f"files-{_FILES_VERSION}-{_key(files)}",
            lambda made: write_shop(made, read_catalogue(files)),
        )
    return shared(Shop, folder)


def tasks(split: Split, options: WebShopOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`, or all."""
    shop = open_shop(options)
    goals = shop.goals(split, authors=options.split == "authors")
    return tuple(
        options.task(goal.id, split, goal=goal.instruction, data_hash=shop.data_hash)
        for place, goal in enumerate(goals)
        if limit is None or place < limit
    )


def _key(files: Files) -> str:
    """What names the shop that is made of `files`: their places, sizes and times of change."""
    parts = [str(files.num_products)]
    for name in (files.products, files.attributes, files.human_goals, files.reviews):
        path = Path(name)
        if name and path.is_file():  # the reader says what is missing
            stat = path.stat()
            parts.append(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}")
        else:
            parts.append(name)
    return content_hash("\n".join(parts))[:16]


_PROMPT = EnvironmentPrompt(
    system=(
        "You shop on a website until you have bought what the instruction asks for. On the search "
        "page, search[WORDS] looks for products. On other pages, click[TEXT] follows the link or "
        "button of that text: a product's number, next >, < prev, back to search, an option's "
        "value, description, features, reviews, or buy now, which ends the episode. What counts "
        "is the kind of product, the attributes, the chosen options, and the price."
    ),
    instruction="What do you search for or click next?",
)


source = PackagedSource(
    WebShopOptions,
    tasks,
    lambda options: options.description(
        summary="find and buy the product that an instruction asks for",
        prompt=_PROMPT,
        actions="`search[WORDS]` or `click[TEXT]`",
    ),
)
