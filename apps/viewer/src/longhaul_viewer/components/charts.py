"""Plotly figures: curves over training steps, and the strip of one episode.

Figures are pure functions of plain numbers, so that a test can look at one without a
browser. Colours are the same everywhere: green pays, red costs, indigo is the advantage,
amber marks where the reader is.
"""

# Plotly ships no types: what its figures return is unknown to a checker.
# pyright: reportUnknownMemberType=false

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import plotly.graph_objects as go
from streamlit.components.v2 import component

from longhaul_viewer.server import PLOTLY_PATH

__all__ = [
    "PALETTE",
    "Series",
    "StripStep",
    "curves",
    "run_colors",
    "show",
]

INDIGO, GREEN, RED, AMBER, GREY = "#6a66dc", "#2b9a66", "#d13438", "#f0a000", "#8b8d98"
# Blue before orange, and each of another lightness than its neighbours: without red and green too,
# lines can be told apart.
PALETTE = ("#4c6ef0", "#e8700a", "#12a594", "#b83280", "#8a6d1f", "#5fb4e8", "#7d818f")
SYMBOLS = {"validation": "diamond", "test": "square", "baseline": "triangle-up"}
LONGEST_LABEL = 60
# Streamlit's own element is a new chart for each new figure, and a zoom is lost with the old.
_COMPONENT = component(
    "longhaul_chart",
    js=Path(__file__).with_suffix(".js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


class Series(NamedTuple):
    """One line of a curve chart."""

    name: str
    training_steps: Sequence[int]
    values: Sequence[float]
    style: Literal["line", "points"] = "line"
    """Points are for what was measured rarely and exactly, such as a validation panel."""
    run_id: str = ""
    """Lines of one run have one colour, where there are several runs."""
    phase: str = ""
    least: Sequence[float] = ()
    """Lower edge of a band around the line, a value for each of its own; empty: no band."""
    most: Sequence[float] = ()
    addresses: Sequence[str] = ()
    """Where a click on each point leads; empty: nowhere."""


class StripStep(NamedTuple):
    """What the overview strip shows of one step."""

    step: int
    reward: float
    advantage: float | None
    action: str
    valid: bool


def curves(
    series: Sequence[Series],
    *,
    title: str,
    percent: bool = False,
    log: bool = False,
    behind: Sequence[Series] = (),
    run_ids: Sequence[str] = (),
) -> go.Figure:
    """Curves over training steps.

    Args:
        series: Lines and points; an empty one is left out.
        title: Said above the chart, and what the vertical axis measures.
        percent: The values are shares in [0, 1], and the axis shows them so.
        log: The vertical axis is logarithmic; it shows no value that is not above 0.
        behind: Drawn faintly behind, as what was measured behind what was smoothed.
        run_ids: All runs of the page, so that each has its colour in every chart.
    """
    runs = list(run_ids) or list(dict.fromkeys(one.run_id for one in series))
    shown = [one for one in series if one.values]
    traces: list[go.Scatter] = []
    for one in [each for each in behind if each.values]:
        traces.append(_faint(one, _color(one, runs, shown)))
    for one in shown:
        color = _color(one, runs, shown)
        traces += _band(one, color)
        traces.append(_line(one, color, percent=percent, several=len(runs) > 1))
    steps = [step for one in shown for step in one.training_steps]
    values = [value for one in (*shown, *behind) for value in (*one.values, *one.least, *one.most)]
    layout = _layout(title=title, height=280)
    layout.update(
        xaxis=_training_steps(steps),
        yaxis={
            "gridcolor": "rgba(128,128,128,.18)",
            "zeroline": False,
            "type": "log" if log else "linear",
            "exponentformat": "power",
            "nticks": 6,
            "automargin": True,
        }
        | ({} if log else _vertical(values, percent=percent)),
        hovermode="x unified",
        showlegend=len(shown) > 1 and len(runs) == 1,  # of several runs, one for all charts
        legend={"orientation": "h", "y": -0.24, "x": 0, "yanchor": "top"},
        # What a reader zoomed stays zoomed while the run goes on.
        uirevision=f"{title} {log}",
    )
    return go.Figure(data=traces, layout=layout)


def run_colors(run_ids: Sequence[str]) -> dict[str, str]:
    """The colour of each run in charts of these runs, as hexadecimal digits."""
    return {run_id: PALETTE[at % len(PALETTE)] for at, run_id in enumerate(run_ids)}


def _line(one: Series, color: str, *, percent: bool, several: bool) -> go.Scatter:
    form = ".1%" if percent else ".4g"
    name = f"{one.run_id} {one.name}".strip() if several and not one.least else one.name
    points = one.style == "points"
    return go.Scatter(
        x=list(one.training_steps),
        y=list(one.values),
        customdata=list(one.addresses) or None,
        name=_shortened(name),
        mode="lines+markers",
        line={"color": color, "width": 1 if points else 2, "dash": "dot" if points else "solid"},
        marker={
            "size": 9 if points else 4,
            "symbol": SYMBOLS.get(one.phase, "circle") if points else "circle",
            "line": {"width": 1, "color": "rgba(255,255,255,.8)"} if points else {"width": 0},
        },
        hovertemplate=f"%{{y:{form}}}<extra>%{{fullData.name}}</extra>",
    )


def _faint(one: Series, color: str) -> go.Scatter:
    return go.Scatter(
        x=list(one.training_steps),
        y=list(one.values),
        mode="lines",
        line={"color": color, "width": 1},
        opacity=0.3,
        hoverinfo="skip",
        showlegend=False,
    )


def _band(one: Series, color: str) -> list[go.Scatter]:
    """The edges of a band, what is between them filled; nothing if there is none."""
    if not one.least:
        return []
    plain = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    steps = list(one.training_steps)
    return [
        go.Scatter(x=steps, y=list(one.least), **plain),
        go.Scatter(x=steps, y=list(one.most), fill="tonexty", fillcolor=_clear(color), **plain),
    ]


def _color(one: Series, runs: Sequence[str], shown: Sequence[Series]) -> str:
    """Of the run where there are several, else of the phase."""
    if len(runs) > 1:
        return run_colors(runs)[one.run_id]
    phases = list(dict.fromkeys(each.phase or each.name for each in shown))
    return PALETTE[phases.index(one.phase or one.name) % len(PALETTE)]


def _clear(color: str) -> str:
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},.18)"


def _training_steps(steps: Sequence[int]) -> dict[str, object]:
    """The horizontal axis: from the first training step on, none of its marks between two.

    It has no range of ours: one that grew with the run would undo a reader's zoom.
    """
    return _whole_numbers(steps) | {
        "automargin": True,
        "title": {"text": "training step", "font": {"size": 11}, "standoff": 4},
        "autorangeoptions": {"minallowed": min(steps, default=0) - 0.4},
    }


def _vertical(values: Sequence[float], *, percent: bool) -> dict[str, object]:
    """The vertical axis: all values, with 0 in it where they are all equal."""
    if percent:
        return {"range": [-0.04, 1.04], "tickformat": ".0%"}
    if len(set(values)) != 1:
        return {}
    with_zero = [0.0, 0.0 if any(values) else 1.0]
    mode = "normal" if values[0] < 0 else "tozero"
    return {"autorangeoptions": {"include": with_zero}, "rangemode": mode}


def show(figure: go.Figure, *, key: str) -> None:
    """Draw a figure over the whole width, in the colours of the page.

    A figure that is shown again under the same key changes in place: what a reader zoomed stays
    as long as the figure's `uirevision` does.
    """
    _COMPONENT(key=key, data={"figure": str(figure.to_json()), "plotly": PLOTLY_PATH})


def _layout(*, title: str | None, height: int) -> go.Layout:
    return go.Layout(
        template="none",
        title=None
        if title is None
        else {"text": title, "x": 0, "font": {"size": 14, "weight": 600}},
        height=height,
        margin={"l": 8, "r": 8, "t": 8 if title is None else 44, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"size": 12},
    )


def _whole_numbers(values: Sequence[int]) -> dict[str, object]:
    """An axis of steps, with some ten round marks, none of them between two steps."""
    span = max(values, default=0) - min(values, default=0)
    apart = next(
        mark
        for tens in itertools.count()
        for mark in (10**tens, 2 * 10**tens, 5 * 10**tens)
        if 10 * mark >= span
    )
    return {
        "tick0": 0,
        "dtick": apart,
        "tickformat": "d",
        "showgrid": False,
        "zeroline": False,
    }


def _shortened(text: str) -> str:
    """`text` on one line, for a hover label; Plotly reads `<` as markup, so it is replaced."""
    line = " ".join(text.split()).replace("<", "‹").replace(">", "›")
    return line if len(line) <= LONGEST_LABEL else f"{line[: LONGEST_LABEL - 1]}…"
