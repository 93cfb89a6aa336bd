"""How WebShop introduces itself."""

from longhaul_core.environment import EnvironmentPrompt

__all__ = ["PROMPT"]

PROMPT = EnvironmentPrompt(
    system=(
        "You shop on a website until you have bought what the instruction asks for. On the search "
        "page, search[WORDS] looks for products. On other pages, click[TEXT] follows the link or "
        "button of that text: a product's number, next >, < prev, back to search, an option's "
        "value, description, features, reviews, or buy now, which ends the episode. What counts "
        "is the kind of product, the attributes, the chosen options, and the price."
    ),
    instruction="What do you search for or click next?",
)
