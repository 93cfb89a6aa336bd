"""Histograms of plain HTML, whose bars are links: a click shows the episodes of a bar."""

from collections.abc import Sequence
from html import escape

from longhaul_core.store.queries import HistogramBar
from longhaul_viewer.components.blocks import number

__all__ = ["OTHER", "SOLVED", "histogram"]

SOLVED, OTHER = "#4c6ef0", "#d9822b"
"""As in the style sheet."""


def histogram(
    title: str, bars: Sequence[HistogramBar], *, addresses: Sequence[str], every: str | None = None
) -> str:
    """Bars from low to high, solved episodes in the lower part of each.

    Args:
        title: What the bars are over.
        bars: In order.
        addresses: Where each leads, one for each bar.
        every: Address without this filter, if there is one.
    """
    most = max((bar.num_episodes for bar in bars), default=1)
    columns = "".join(
        _bar(bar, address, most) for bar, address in zip(bars, addresses, strict=True)
    )
    clear = f'<a target="_self" href="{escape(every)}">all</a>' if every else ""
    values = dict.fromkeys((number(bars[0].least), number(bars[-1].most))) if bars else ()
    ends = "".join(f"<span>{value}</span>" for value in values or ("no episode has a value",))
    return (
        f'<div class="histogram"><div class="head"><span>{escape(title)}</span>{clear}</div>'
        f'<div class="plot" style="--bars:{len(bars) or 100}"><div class="bars">{columns}</div>'
        f'<div class="ends">{ends}</div></div></div>'
    )


def _bar(bar: HistogramBar, address: str, most: int) -> str:
    height = max(100 * bar.num_episodes / most, 3)
    solved = 100 * bar.num_solved / bar.num_episodes
    span = (
        number(bar.least) if bar.least == bar.most else f"{number(bar.least)} to {number(bar.most)}"
    )
    says = f"{span}: {bar.num_episodes:,} episodes, {bar.num_solved:,} solved"
    return (
        f'<a target="_self" href="{escape(address)}" title="{says}" aria-label="{says}">'
        f'<span style="height:{height:.1f}%"><i style="height:{solved:.1f}%"></i></span></a>'
    )
