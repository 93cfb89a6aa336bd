"""Plotly figures: curves over training steps, and the strip of one episode.

Figures are pure functions of plain numbers, so that a test can look at one without a
browser. Colours are the same everywhere: green pays, red costs, indigo is the advantage,
amber marks where the reader is.
"""

# Plotly ships no types: what its figures return is unknown to a checker.
# pyright: reportUnknownMemberType=false

from collections.abc import Sequence
from typing import Literal, NamedTuple

import plotly.graph_objects as go
import streamlit as st

__all__ = [
    "Series",
    "StripStep",
    "clicked_step",
    "curves",
    "episode_strip",
    "show",
]

INDIGO, GREEN, RED, AMBER, GREY = "#6a66dc", "#2b9a66", "#d13438", "#f0a000", "#8b8d98"
PALETTE = (INDIGO, "#e5793a", GREEN, "#c2298a", "#0d8fb3", GREY)
PLAIN = {"displayModeBar": False}
LONGEST_LABEL = 60


class Series(NamedTuple):
    """One line of a curve chart."""

    name: str
    training_steps: Sequence[int]
    values: Sequence[float]
    style: Literal["line", "points"] = "line"
    """Points are for what was measured rarely and exactly, such as a validation panel."""


class StripStep(NamedTuple):
    """What the overview strip shows of one step."""

    step: int
    reward: float
    advantage: float | None
    action: str
    valid: bool


def curves(series: Sequence[Series], *, title: str, percent: bool = False) -> go.Figure:
    """Curves over training steps.

    Args:
        series: Lines and points; an empty one is left out.
        title: Said above the chart.
        percent: The values are shares in [0, 1], and the axis shows them so.
    """
    traces = [
        go.Scatter(
            x=list(line.training_steps),
            y=list(line.values),
            name=line.name,
            mode="lines+markers" if line.style == "line" else "markers+lines",
            line={
                "color": PALETTE[position % len(PALETTE)],
                "width": 2 if line.style == "line" else 1,
                "dash": "solid" if line.style == "line" else "dot",
            },
            marker={
                "size": 4 if line.style == "line" else 11,
                "symbol": "circle" if line.style == "line" else "diamond",
            },
            hovertemplate=f"%{{y{':.1%' if percent else ':.4g'}}}<extra>%{{fullData.name}}</extra>",
        )
        for position, line in enumerate(series)
        if line.values
    ]
    layout = _layout(title=title, height=260)
    layout.update(
        xaxis=_whole_numbers([step for line in series for step in line.training_steps]),
        yaxis={
            "gridcolor": "rgba(128,128,128,.18)",
            "zerolinecolor": "rgba(128,128,128,.4)",
            "tickformat": ".0%" if percent else None,
            "range": [-0.04, 1.04] if percent else None,
        },
        hovermode="x unified",
        showlegend=len(traces) > 1,
        legend={"orientation": "h", "y": 1.18, "x": 1, "xanchor": "right"},
    )
    return go.Figure(data=traces, layout=layout)


def episode_strip(steps: Sequence[StripStep], *, current: int) -> go.Figure:
    """Reward (bars) and advantage (line) of each step, the current step marked.

    A step whose action was invalid carries a cross. Rewards and advantages have axes of
    their own, left and right, with a common zero line.
    """
    indices = [step.step for step in steps]
    labels = [f"step {step.step}: {_shortened(step.action)}" for step in steps]
    traces: list[go.Bar | go.Scatter] = [
        go.Bar(
            x=indices,
            y=[step.reward for step in steps],
            name="reward",
            marker={"color": [GREEN if step.reward >= 0 else RED for step in steps]},
            customdata=labels,
            hovertemplate="%{customdata}<br>reward %{y:.4g}<extra></extra>",
        )
    ]
    scored = [step for step in steps if step.advantage is not None]
    if scored:
        traces.append(
            go.Scatter(
                x=[step.step for step in scored],
                y=[step.advantage for step in scored],
                name="advantage",
                yaxis="y2",
                mode="lines+markers",
                line={"color": INDIGO, "width": 2, "shape": "hvh"},
                marker={"size": 5},
                hovertemplate="advantage %{y:.4g}<extra></extra>",
            )
        )
    invalid = [step.step for step in steps if not step.valid]
    if invalid:
        traces.append(
            go.Scatter(
                x=invalid,
                y=[0.0] * len(invalid),
                name="invalid action",
                mode="markers",
                marker={"symbol": "x", "size": 8, "color": RED},
                hovertemplate="invalid action<extra></extra>",
            )
        )
    layout = _layout(title=None, height=150)
    layout.update(
        xaxis=_whole_numbers(indices) | {"range": [-0.6, len(steps) - 0.4]},
        yaxis=_symmetric("reward", [step.reward for step in steps], GREEN),
        yaxis2=_symmetric("advantage", [step.advantage or 0.0 for step in steps], INDIGO)
        | {"overlaying": "y", "side": "right"},
        shapes=[
            {
                "type": "rect",
                "xref": "x",
                "yref": "paper",
                "x0": current - 0.5,
                "x1": current + 0.5,
                "y0": 0,
                "y1": 1,
                "fillcolor": AMBER,
                "opacity": 0.25,
                "line": {"width": 0},
                "layer": "below",
            }
        ],
        bargap=0.25,
        showlegend=False,
        clickmode="event+select",
        dragmode=False,
    )
    return go.Figure(data=traces, layout=layout)


def show(figure: go.Figure, *, key: str) -> None:
    """Draw a figure over the whole width, without Plotly's tool bar."""
    st.plotly_chart(figure, key=key, config=PLAIN)


def clicked_step(figure: go.Figure, *, key: str) -> int | None:
    """Draw the strip of an episode; the step that was clicked just now, else None."""
    event = st.plotly_chart(
        figure, key=key, config=PLAIN, on_select="rerun", selection_mode="points"
    )
    points = event.selection.points
    return int(str(points[0]["x"])) if points else None


def _layout(*, title: str | None, height: int) -> go.Layout:
    return go.Layout(
        title=None if title is None else {"text": title, "x": 0, "font": {"size": 14}},
        height=height,
        margin={"l": 8, "r": 8, "t": 8 if title is None else 44, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"size": 12},
    )


def _whole_numbers(values: Sequence[int]) -> dict[str, object]:
    """An axis of steps, with some ten marks, none of them between two steps."""
    span = max(values, default=0) - min(values, default=0)
    return {
        "tick0": 0,
        "dtick": max(1, round(span / 10)),
        "tickformat": "d",
        "showgrid": False,
        "zeroline": False,
    }


def _symmetric(title: str, values: Sequence[float], color: str) -> dict[str, object]:
    """An axis with zero in its middle, so that two axes share their zero line."""
    reach = 1.15 * max((abs(value) for value in values), default=0.0) or 1.0
    return {
        "title": {"text": title, "font": {"color": color, "size": 11}, "standoff": 2},
        "range": [-reach, reach],
        "showgrid": False,
        "zeroline": True,
        "zerolinecolor": "rgba(128,128,128,.5)",
        "nticks": 3,
        "tickfont": {"size": 10, "color": color},
    }


def _shortened(text: str) -> str:
    """`text` on one line, for a hover label; Plotly reads `<` as markup, so it is replaced."""
    line = " ".join(text.split()).replace("<", "‹").replace(">", "›")
    return line if len(line) <= LONGEST_LABEL else f"{line[: LONGEST_LABEL - 1]}…"
