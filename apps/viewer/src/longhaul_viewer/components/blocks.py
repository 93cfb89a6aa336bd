"""Blocks of HTML that pages are made of. Every function escapes what it is given.

Streamlit cleans HTML once more before it shows it; the escaping here is what we rely
on. Links are relative addresses from `links.address`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Literal, NamedTuple, Protocol

import streamlit as st

from longhaul_viewer import links

__all__ = [
    "Badge",
    "Fact",
    "Link",
    "Tone",
    "alarms",
    "alert",
    "badges",
    "bar",
    "button",
    "chips",
    "facts",
    "html",
    "keys",
    "label",
    "neighbours",
    "note",
    "number",
    "of_planned",
    "sections",
    "size",
    "tabs",
    "text_block",
    "title",
    "trail",
]

Tone = Literal["plain", "good", "bad", "warn"]


class Badge(NamedTuple):
    """A word or two in a coloured pill."""

    text: str
    tone: Tone = "plain"


class Fact(NamedTuple):
    """One line of a table of facts."""

    name: str
    value: str
    signed: float | None = None
    """Colours the value green above zero and red below."""
    total: bool = False
    explanation: str = ""
    """Shown when the pointer rests on the line."""


class Link(NamedTuple):
    """A text and where it leads; no address for the page one is on."""

    text: str
    address: str | None = None


def html(*blocks: str) -> None:
    """Show blocks made by the functions of this module, and no other text."""
    st.html("".join(blocks))


def of_planned(num_episodes: int, num_unplayed: int | None) -> str:
    """Episodes that ended, and of how many where others of their panel failed."""
    if not num_unplayed:
        return f"{num_episodes:,}"
    return f"{num_episodes:,} of {num_episodes + num_unplayed:,}"


def number(value: float | None, *, signed: bool = False) -> str:
    """A number of four digits with a true minus sign; a dash for what is not known."""
    if value is None:
        return "–"
    return f"{value + 0.0:{'+' if signed and value else ''}.4g}".replace("-", "−")


def size(num_bytes: int) -> str:
    """A number of bytes in the unit that suits it."""
    if num_bytes == 0:
        return "0"
    for unit, power in (("GiB", 30), ("MiB", 20)):
        if num_bytes >= 2**power:
            return f"{num_bytes / 2**power:,.1f} {unit}"
    return f"{num_bytes / 2**10:,.0f} KiB"


def label(text: str, aside: str = "") -> str:
    """A small heading, with a remark beside it."""
    remark = f'<span class="aside">{escape(aside)}</span>' if aside else ""
    return f'<div class="label"><span>{escape(text)}</span>{remark}</div>'


def badges(items: Iterable[Badge]) -> str:
    """A row of pills."""
    pills = "".join(f'<span class="badge {b.tone}">{escape(b.text)}</span>' for b in items)
    return f'<div class="badges">{pills}</div>'


def note(text: str) -> str:
    """A remark in small letters; words between backticks are a command or a setting."""
    return f'<div class="muted note" dir="auto">{_with_code(text)}</div>'


def alert(text: str) -> str:
    """What went wrong; words between backticks are a command or a setting.

    Streamlit's own boxes read Markdown, which text from outside may hold.
    """
    return f'<div class="alert" dir="auto">{_with_code(text)}</div>'


class Alarmed(Protocol):
    """What is wrong, what to do, and where it can be seen."""

    @property
    def message(self) -> str: ...
    @property
    def advice(self) -> str: ...
    @property
    def address(self) -> str: ...


def alarms(subject: str, found: Sequence[Alarmed]) -> str:
    """What is wrong with one thing, each with what to do; the first words lead to where it is."""
    items = "".join(
        f"<li>{_anchor(one.address, escape(one.message))}"
        f'<span dir="auto">{_with_code(one.advice)}</span></li>'
        for one in found
    )
    head = f'<b dir="auto">{escape(subject)}</b>' if subject else ""
    return f'<div class="alarms" role="alert">{head}<ul>{items}</ul></div>'


def _with_code(text: str) -> str:
    """Text, escaped, in which words between backticks are a command or a setting.

    A backtick without another one in its line stands as it is, as in a database's message.
    """
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", escape(text))


def keys(colors: Mapping[str, str]) -> str:
    """What each colour of the charts below stands for.

    Args:
        colors: From a name to `#` and six hexadecimal digits.
    """
    entries = "".join(
        f'<span><i style="background:{escape(color)}"></i>{escape(name)}</span>'
        for name, color in colors.items()
    )
    return f'<div class="keys">{entries}</div>'


def chips(links: Sequence[Link], *, every: str) -> str:
    """What is in force, each with a link that takes it out, and one that takes all out."""
    items = "".join(
        f'<a class="taken" target="_self" href="{escape(link.address or "")}" '
        f'title="take out" dir="auto">{escape(link.text)} ✕</a>'
        for link in links
    )
    if len(links) > 1:
        items += f'<a target="_self" href="{escape(every)}">take all out</a>'
    return f'<div class="filters">{items}</div>' if links else ""


def tabs(links: Sequence[Link], *, here: str) -> str:
    """The parts of a page, each with an address; the one that is shown is marked.

    Args:
        links: In order.
        here: Text of the one that is shown.
    """
    entries = "".join(
        f'<a target="_self" href="{escape(link.address or "")}"'
        f"{' aria-current=page' if link.text == here else ''}>{escape(link.text)}</a>"
        for link in links
    )
    return f'<nav class="tabs" aria-label="Parts of this page">{entries}</nav>'


def neighbours(page: str, next_page: str | None) -> str:
    """Links to the beginning of a list and to its next page; Back leads to the one before."""
    begun = links.parameter(links.AFTER) is not None
    around = [
        Link("first page", links.address_here(page, **{links.AFTER: None}) if begun else None),
        Link("next page", next_page and links.address_here(page, **{links.AFTER: next_page})),
    ]
    return trail(around) if begun or next_page else ""


def title(text: str) -> str:
    """The heading of a page."""
    return f'<h1 dir="auto">{escape(text)}</h1>'


def text_block(text: str) -> str:
    """Text as it is, in whatever direction its script runs."""
    if not text:
        return '<div class="text empty">empty</div>'
    return f'<div class="text" dir="auto">{escape(text)}</div>'


def facts(lines: Iterable[Fact]) -> str:
    """A table of names and values."""
    rows = "".join(_fact_row(line) for line in lines)
    return f'<table class="facts"><tbody>{rows}</tbody></table>'


def sections(parts: Mapping[str, Sequence[Fact]]) -> str:
    """Tables of facts, each under its name, in as many columns as there is room for."""
    each = "".join(
        f"<section>{label(name)}{facts(lines)}</section>" for name, lines in parts.items()
    )
    return f'<div class="sections">{each}</div>'


def trail(links: Sequence[Link]) -> str:
    """Where one is, from the list of runs down."""
    parts = [
        escape(link.text) if link.address is None else _anchor(link.address, escape(link.text))
        for link in links
    ]
    return f'<div class="trail">{"<span class=sep>›</span>".join(parts)}</div>'


def bar(links: Sequence[Link], *, here: str) -> str:
    """The bar at the top of every page: where one can go from anywhere.

    Args:
        links: To pages that need nothing chosen before.
        here: Address of the page that is shown; its entry is marked.
    """
    entries = "".join(
        f'<a target="_self" href="{escape(link.address or "")}"'
        f"{' aria-current=page' if link.address == here else ''}>{escape(link.text)}</a>"
        for link in links
    )
    return f'<nav class="bar" aria-label="Pages"><b>Longhaul</b>{entries}</nav>'


def button(link: Link) -> str:
    """A link to another page that is as large as what one came for."""
    address, text = escape(link.address or ""), escape(link.text)
    return f'<a class="button" target="_self" href="{address}">{text}</a>'


def _fact_row(line: Fact) -> str:
    tone = ""
    if line.signed:
        tone = "plus" if line.signed > 0 else "minus"
    return (
        f'<tr class="{"total" if line.total else ""}" title="{escape(line.explanation)}">'
        f'<td>{escape(line.name)}</td><td class="{tone}" dir="auto">{escape(line.value)}</td></tr>'
    )


def _anchor(address: str, content: str) -> str:
    return f'<a target="_self" href="{escape(address)}">{content}</a>'
