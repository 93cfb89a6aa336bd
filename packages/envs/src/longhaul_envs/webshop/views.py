"""Pages as text: ours, and the authors' `simple` form, whose parts stand between `[SEP]`."""

from collections.abc import Callable, Iterator

from longhaul_envs.webshop.catalogue import Product
from longhaul_envs.webshop.site import PAGE_LENGTH, Page, Place, SubPage

__all__ = ["plain_text", "sep_text"]

ProductOf = Callable[[str], Product]


def sep_text(
    place: Place, instruction: str, product_of: ProductOf, *, show_attributes: bool
) -> str:
    """The page as the authors' text mode writes it. It does not tell which options are chosen."""
    parts = _parts(place, instruction, product_of, show_attributes=show_attributes)
    return " [SEP] ".join(part.strip() for part in parts)


def _parts(
    place: Place, instruction: str, product_of: ProductOf, *, show_attributes: bool
) -> Iterator[str]:
    if place.page is Page.SEARCH:
        yield from ("WebShop", "Instruction:", instruction, "Search")
        return
    if place.page is Page.DONE:
        yield from ("Thank you for shopping with us!", "Purchased", "asin", place.asin)
        return
    yield from ("Instruction:", instruction, "Back to Search")
    if place.page is Page.RESULTS:
        yield f"Page {place.number} (Total results: {len(place.results)})"
        if place.number > 1:
            yield "< Prev"
        if place.number * PAGE_LENGTH < len(place.results):
            yield "Next >"
        for asin in place.on_page:
            product = product_of(asin)
            yield from (asin, product.name, product.price_tag)
        return
    product = product_of(place.asin)
    yield "< Prev"
    if place.page is Page.SUB:
        yield from _sub_page(place.sub, product)
        return
    for name, values in product.options.items():
        yield from (name, *values)
    yield from (product.name, f"Price: {product.price_tag}", f"Rating: {product.rating}")
    yield from ("Description", "Features", "Reviews")
    if show_attributes:
        yield "Attributes"
    yield "Buy Now"


def _sub_page(sub: SubPage | None, product: Product) -> Iterator[str]:
    """The texts of a page; there is none for an empty description or body of a review."""
    if sub is SubPage.DESCRIPTION:
        yield from filter(None, [product.description])
    elif sub is SubPage.FEATURES:
        yield from product.features
    elif sub is SubPage.ATTRIBUTES:
        yield from product.attributes
        yield from (product.category, product.query, product.product_category)
    else:
        for review in product.reviews:
            yield from filter(None, (f'"{review.title}"', review.score, review.body))


def plain_text(
    place: Place, instruction: str, product_of: ProductOf, *, show_attributes: bool
) -> str:
    """The page in lines, with the options that are chosen."""
    lines = [f"Instruction: {instruction}"]
    if place.page is Page.SEARCH:
        lines.append("Search page.")
    elif place.page is Page.DONE:
        lines.append(f"Bought {place.asin}.")
    elif place.page is Page.RESULTS:
        first = (place.number - 1) * PAGE_LENGTH + 1
        last = first + len(place.on_page) - 1
        shown = f"{first} to {last}" if place.on_page else "none"
        lines.append(f"Results {shown} of {len(place.results)}:")
        for asin in place.on_page:
            product = product_of(asin)
            lines.append(f"{asin.lower()}: {product.name}, {product.price_tag}")
    else:
        lines.extend(_item_lines(place, product_of(place.asin)))
        if place.page is Page.ITEM:
            pages = [s.value for s in SubPage if s is not SubPage.ATTRIBUTES or show_attributes]
            lines.append(f"Pages: {', '.join(pages)}")
    return "\n".join(lines)


def _item_lines(place: Place, product: Product) -> Iterator[str]:
    yield f"Item {place.asin.lower()}: {product.name}"
    if place.page is Page.SUB:
        yield f"{str(place.sub).capitalize()}:"
        yield from tuple(_sub_page(place.sub, product)) or (f"No {place.sub} found",)
        return
    yield f"Price: {product.price_tag}, rating: {product.rating}"
    chosen = dict(place.options)
    for name, values in product.options.items():
        yield f"{name} (chosen: {chosen.get(name, 'none')}): {'; '.join(values)}"
