"""The shop's pages: where a session is, what can be clicked there, and where a click leads."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from longhaul_envs.task_lists import content_hash
from longhaul_envs.webshop.catalogue import Product

__all__ = ["PAGE_LENGTH", "Page", "Place", "SubPage", "links"]

PAGE_LENGTH = 10
"""Products on a page of results."""


class Page(StrEnum):
    """A kind of page."""

    SEARCH = "search"
    RESULTS = "results"
    ITEM = "item"
    SUB = "sub"
    DONE = "done"


class SubPage(StrEnum):
    """What an item page leads to."""

    DESCRIPTION = "description"
    FEATURES = "features"
    REVIEWS = "reviews"
    ATTRIBUTES = "attributes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a session is, and all that later pages depend on."""

    page: Page = Page.SEARCH
    results: tuple[str, ...] = ()
    """Of the last search, as numbers of products."""
    number: int = 1
    """Of the page of results, from 1."""
    asin: str = ""
    options: tuple[tuple[str, str], ...] = ()
    """Name and value of each chosen option, by name."""
    sub: SubPage | None = None

    @property
    def over(self) -> bool:
        """Whether something was bought."""
        return self.page is Page.DONE

    @property
    def on_page(self) -> tuple[str, ...]:
        """The products of this page of results."""
        return self.results[(self.number - 1) * PAGE_LENGTH : self.number * PAGE_LENGTH]

    @property
    def key(self) -> str:
        """The place as text, equal for equal places alone."""
        results = content_hash(" ".join(self.results)) if self.results else ""
        return json.dumps(
            [self.page, results, self.number, self.asin, self.options, self.sub], ensure_ascii=False
        )


def links(
    place: Place, product_of: Callable[[str], Product], *, show_attributes: bool
) -> dict[str, Place]:
    """What can be clicked, in lower case and in the order of the page, to where it leads.

    A value that two options have is the last one's, as in the authors' environment.
    """
    if place.page in (Page.SEARCH, Page.DONE):
        return {}
    found = {"back to search": Place()}
    if place.page is Page.RESULTS:
        if place.number > 1:
            found["< prev"] = replace(place, number=place.number - 1)
        if place.number * PAGE_LENGTH < len(place.results):
            found["next >"] = replace(place, number=place.number + 1)
        for asin in place.on_page:
            found[asin.lower()] = replace(place, page=Page.ITEM, asin=asin)
    elif place.page is Page.SUB:
        found["< prev"] = replace(place, page=Page.ITEM, sub=None)
    else:
        found["< prev"] = replace(place, page=Page.RESULTS, asin="", options=())
        for sub in SubPage:
            if sub is not SubPage.ATTRIBUTES or show_attributes:
                found[sub.value] = replace(place, page=Page.SUB, sub=sub)
        found["buy now"] = replace(place, page=Page.DONE)
        for name, values in product_of(place.asin).options.items():
            for value in values:
                chosen = {**dict(place.options), name: value}
                found[value] = replace(place, options=tuple(sorted(chosen.items())))
    return found
