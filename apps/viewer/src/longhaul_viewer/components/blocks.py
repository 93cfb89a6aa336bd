"""Blocks of HTML that pages are made of. Every function escapes what it is given.

Streamlit cleans HTML once more before it shows it; the escaping here is what we rely
on. Links are relative addresses from `links.address`.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Literal, NamedTuple

import streamlit as st

from longhaul_core.store.queries import PromptMessage, StoredPicture
from longhaul_core.types import ToolCall

__all__ = [
    "Badge",
    "Fact",
    "Link",
    "MemberLink",
    "Tone",
    "action_chips",
    "alert",
    "badges",
    "button",
    "facts",
    "html",
    "label",
    "members",
    "messages",
    "note",
    "number",
    "pictures",
    "text_block",
    "times",
    "title",
    "tool_calls",
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


class MemberLink(NamedTuple):
    """One episode of a group, as a link to its replay."""

    text: str
    address: str
    tone: Literal["plain", "good", "failed"]
    here: bool


def html(*blocks: str) -> None:
    """Show blocks made by the functions of this module, and no other text."""
    st.html("".join(blocks))


def number(value: float | None, *, signed: bool = False) -> str:
    """A number of four digits with a true minus sign; a dash for what is not known."""
    if value is None:
        return "–"
    return f"{value + 0.0:{'+' if signed and value else ''}.4g}".replace("-", "−")


def label(text: str, aside: str = "") -> str:
    """A small heading, with a remark beside it."""
    remark = f'<span class="aside">{escape(aside)}</span>' if aside else ""
    return f'<div class="label"><span>{escape(text)}</span>{remark}</div>'


def badges(items: Iterable[Badge]) -> str:
    """A row of pills."""
    pills = "".join(f'<span class="badge {b.tone}">{escape(b.text)}</span>' for b in items)
    return f'<div class="badges">{pills}</div>'


def note(text: str) -> str:
    """A remark in small grey letters."""
    return f'<div class="muted note">{escape(text)}</div>'


def alert(text: str) -> str:
    """What went wrong. Streamlit's own boxes read Markdown, which text from outside may hold."""
    return f'<div class="alert" dir="auto">{escape(text)}</div>'


def title(text: str) -> str:
    """The heading of a page."""
    return f'<h1 dir="auto">{escape(text)}</h1>'


def text_block(text: str) -> str:
    """Text as it is, in whatever direction its script runs."""
    if not text:
        return '<div class="text empty">empty</div>'
    return f'<div class="text" dir="auto">{escape(text)}</div>'


def messages(prompt: Sequence[PromptMessage], pictures_by_hash: Mapping[str, bytes]) -> str:
    """The messages of a prompt, each with who speaks."""
    return "".join(_message(message, pictures_by_hash) for message in prompt)


def _message(message: PromptMessage, pictures_by_hash: Mapping[str, bytes]) -> str:
    answers = f" · answers {message.tool_call_id}" if message.tool_call_id is not None else ""
    parts = "".join(
        text_block(part) if isinstance(part, str) else pictures([part], pictures_by_hash)
        for part in message.parts
    )
    return (
        f'<div class="message {escape(message.role)}"><div class="role">'
        f"{escape(message.role + answers)}</div>{parts}{tool_calls(message.tool_calls)}</div>"
    )


def tool_calls(calls: Sequence[ToolCall]) -> str:
    """What a model asked tools for, as it wrote it."""
    return "".join(
        f'<div class="asked" dir="auto"><b>{escape(call.name)}</b> '
        f"<span>{escape(call.arguments)}</span> <i>{escape(call.id)}</i></div>"
        for call in calls
    )


def pictures(shown: Sequence[StoredPicture], by_hash: Mapping[str, bytes]) -> str:
    """Pictures in a row, within the page: the browser asks nobody for them."""
    images = "".join(
        f'<img alt="picture {escape(picture.content_hash[:12])}" '
        f'title="{escape(picture.content_hash)}" src="data:{escape(picture.media_type)};base64,'
        f'{b64encode(by_hash[picture.content_hash]).decode()}">'
        for picture in shown
    )
    return f'<div class="pictures">{images}</div>' if images else ""


def facts(lines: Iterable[Fact]) -> str:
    """A table of names and values."""
    rows = "".join(_fact_row(line) for line in lines)
    return f'<table class="facts"><tbody>{rows}</tbody></table>'


def action_chips(actions: Sequence[str], *, chosen: str) -> str:
    """The actions that the environment accepted, the chosen one marked."""
    chips = "".join(
        f'<span class="chip{" chosen" if action == chosen else ""}" dir="auto">'
        f"{escape(action)}</span>"
        for action in actions
    )
    return f'<div class="chips">{chips}</div>'


def trail(links: Sequence[Link]) -> str:
    """Where one is, from the list of runs down."""
    parts = [
        escape(link.text) if link.address is None else _anchor(link.address, escape(link.text))
        for link in links
    ]
    return f'<div class="trail">{"<span class=sep>›</span>".join(parts)}</div>'


def button(link: Link) -> str:
    """A link to another page that is as large as what one came for."""
    address, text = escape(link.address or ""), escape(link.text)
    return f'<a class="button" target="_self" href="{address}">{text}</a>'


def members(links: Sequence[MemberLink]) -> str:
    """The episodes of a group in a row."""
    items = "".join(
        f'<a class="member {link.tone}{" here" if link.here else ""}" target="_self" '
        f'href="{escape(link.address)}">{escape(link.text)}</a>'
        for link in links
    )
    return f'<div class="members">{items}</div>'


def times(*, queue: float, generate: float, environment: float) -> str:
    """A bar of where the wall time of a step went, all in seconds."""
    total = queue + generate + environment
    if total <= 0:
        return ""
    parts = (("queue", queue), ("generate", generate), ("environment", environment))
    bar = "".join(
        f'<div class="{name}" style="width:{100 * seconds / total:.2f}%"></div>'
        for name, seconds in parts
    )
    return f'<div class="times">{bar}</div>'


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
