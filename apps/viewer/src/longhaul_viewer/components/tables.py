"""Tables as plain HTML: a row is a link, so that Back, a new tab and the keyboard work as anywhere.

Streamlit's own table opens links in new tabs only, changes the page behind the browser's
back, and offers a download of one page of the list. Every function here escapes what it
is given.
"""

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from html import escape
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from longhaul_viewer.components import blocks
from longhaul_viewer.components.blocks import Badge, number

__all__ = [
    "Column",
    "badges",
    "bar",
    "curve",
    "link",
    "long",
    "moment",
    "pairs",
    "signed",
    "table",
    "text",
    "value",
]

CURVE_WIDTH, CURVE_HEIGHT = 76, 24


class Column(NamedTuple):
    """One column: its title and its cells, top to bottom, as HTML."""

    title: str
    cells: Sequence[str]
    numeric: bool = False
    """Numbers stand on the right."""
    hint: str = ""
    """Shown when the pointer rests on the title."""
    address: str | None = None
    """Where the title leads, as to the table sorted by this column."""
    order: Literal["ascending", "descending"] | None = None
    """How the table is sorted by this column, if it is."""


def text(title: str, cells: Sequence[str]) -> Column:
    """Words, in whatever direction their script runs."""
    return Column(title, [f'<span dir="auto">{escape(cell)}</span>' for cell in cells])


def pairs(title: str, cells: Sequence[tuple[str, str]], *, hint: str = "") -> Column:
    """Two short texts, one under the other; the first names the row."""
    return Column(
        title,
        [
            f'<span dir="auto">{escape(upper)}</span>'
            f'<span class="under" dir="auto">{escape(lower)}</span>'
            for upper, lower in cells
        ],
        hint=hint,
    )


def link(title: str, cells: Sequence[tuple[str, str | None]]) -> Column:
    """Words, each with where it leads; for tables whose rows lead nowhere."""
    return Column(
        title,
        [
            f'<span dir="auto">{escape(words)}</span>'
            if address is None
            else f'<a class="seen" target="_self" href="{escape(address)}">{escape(words)}</a>'
            for words, address in cells
        ],
    )


def long(title: str, cells: Sequence[str]) -> Column:
    """Sentences, which may take several lines."""
    return Column(title, [f'<span class="wrap" dir="auto">{escape(cell)}</span>' for cell in cells])


def badges(title: str, cells: Sequence[Sequence[Badge]]) -> Column:
    """Words in coloured pills."""
    return Column(title, [blocks.badges(cell) for cell in cells])


def value(title: str, cells: Sequence[float | None], *, form: str = "", hint: str = "") -> Column:
    """Numbers; a dash for a missing one.

    Args:
        title: Above the column.
        cells: Numbers of any range.
        form: Python's format of a cell; without it, four digits.
        hint: What the numbers are, where the title does not say so.
    """
    shown = [
        number(cell) if cell is None or not form else f"{cell:{form}}".replace("-", "−")
        for cell in cells
    ]
    return Column(title, [escape(cell) for cell in shown], numeric=True, hint=hint)


def signed(title: str, cells: Sequence[float | None], *, hint: str = "") -> Column:
    """Numbers with their sign, those above 0 in one colour and those below in another."""
    tones = ["" if not cell else ("plus" if cell > 0 else "minus") for cell in cells]
    shown = [number(cell, signed=True) for cell in cells]
    return Column(
        title,
        [f'<span class="{tone}">{cell}</span>' for tone, cell in zip(tones, shown, strict=True)],
        numeric=True,
        hint=hint,
    )


def bar(title: str, cells: Sequence[float | None]) -> Column:
    """Shares in [0, 1] as bars; a dash for a missing one."""
    return Column(title, [_bar(cell) for cell in cells])


def curve(
    title: str,
    cells: Sequence[Sequence[float]],
    *,
    low: float | None = None,
    high: float | None = None,
    percent: bool = False,
    hint: str = "",
) -> Column:
    """Small curves, with the last value beside them.

    Args:
        title: Above the column.
        cells: Values from left to right.
        low: Lower end of the axis; without it, each curve's own least value.
        high: Upper end; without it, each curve's own largest value.
        percent: The values are shares in [0, 1], and are written so.
        hint: What the curves are.
    """
    return Column(title, [_curve(cell, low, high, percent) for cell in cells], hint=hint)


def moment(title: str, cells: Sequence[float]) -> Column:
    """Unix times, shown in the zone of the reader's browser; in UTC, and so marked, if unknown."""
    zone = _zone(st.context.timezone)
    times = [datetime.fromtimestamp(cell, zone) for cell in cells]
    mark = " UTC" if zone is UTC else ""
    return pairs(title, [(f"{time.day} {time:%b %Y}", f"{time:%H:%M}{mark}") for time in times])


def table(columns: Sequence[Column], *, addresses: Sequence[str] | None = None) -> str:
    """The table; with `addresses`, a click anywhere in a row opens the row's.

    Args:
        columns: Of equally many cells. The first one's text names the link.
        addresses: From `links.address`, one for each row.
    """
    heads = "".join(_head(column) for column in columns)
    rows = "".join(
        _row(columns, place, None if addresses is None else addresses[place])
        for place in range(len(columns[0].cells))
    )
    return (
        f'<div class="rows"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _zone(name: str | None) -> tzinfo:
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):  # a browser's own name, or none of a zone
        return UTC


def _row(columns: Sequence[Column], place: int, address: str | None) -> str:
    first = columns[0].cells[place]
    if address is not None:
        first = f'<a target="_self" href="{escape(address)}">{first}</a>'
    cells = [first, *(column.cells[place] for column in columns[1:])]
    return "".join(
        (
            f'<tr class="{"plain" if address is None else "link"}">',
            *(
                f'<td class="{_side(column)}">{cell}</td>'
                for column, cell in zip(columns, cells, strict=True)
            ),
            "</tr>",
        )
    )


def _head(column: Column) -> str:
    words = escape(column.title)
    if column.address is not None:
        words = f'<a target="_self" href="{escape(column.address)}">{words}</a>'
    sorted_by = f' aria-sort="{column.order}"' if column.order else ""
    hint = f' title="{escape(column.hint)}"' if column.hint else ""
    return f'<th class="{_side(column)}"{sorted_by}{hint}>{words}</th>'


def _side(column: Column) -> str:
    return "number" if column.numeric else "words"


def _bar(share: float | None) -> str:
    if share is None:
        return number(None)
    return (
        f'<div class="share"><div class="whole"><div style="width:{100 * share:.1f}%"></div></div>'
        f"{share:.0%}</div>"
    )


def _curve(values: Sequence[float], low: float | None, high: float | None, percent: bool) -> str:
    """A picture, since Streamlit lets no drawing through; straight from value to value."""
    if not values:
        return number(None)
    least, most = min(values), max(values)
    bottom, top = least if low is None else low, most if high is None else high
    across, up = CURVE_WIDTH / max(len(values) - 1, 1), (CURVE_HEIGHT - 4) / ((top - bottom) or 1.0)
    points = " ".join(
        f"{place * across:.1f},{CURVE_HEIGHT - 2 - (value - bottom) * up:.1f}"
        for place, value in enumerate(values)
    )
    drawing = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{CURVE_WIDTH}" height="{CURVE_HEIGHT}">'
        f'<polyline points="{points}" fill="none" stroke="#6a66dc" stroke-width="1.5"/></svg>'
    )
    data = base64.b64encode(drawing.encode()).decode()
    summary = f"{number(least)} to {number(most)}, last {number(values[-1])}, of {len(values)}"
    picture = f'<img src="data:image/svg+xml;base64,{data}" alt="{summary}" title="{summary}">'
    last = f"{values[-1]:.0%}" if percent else number(values[-1])
    return f'<div class="sparkline">{picture}<span>{last}</span></div>'
