"""An answer to SQL as a table whose rows lead to episodes, and as a chart."""

# Plotly ships no types: what its figures return is unknown to a checker.
# pyright: reportUnknownMemberType=false

from collections.abc import Sequence
from typing import Literal, get_args

import plotly.graph_objects as go

from longhaul_core.sql_box.box import Cell, QueryResult
from longhaul_core.sql_box.files import distinct_names
from longhaul_viewer import links
from longhaul_viewer.components import charts, tables

__all__ = ["CHARTS", "ChartKind", "chart", "numeric_columns", "table"]

ChartKind = Literal["line", "bar", "points", "histogram"]
CHARTS: tuple[ChartKind, ...] = get_args(ChartKind)
LONGEST_CELL = 140
EPISODE = "episode_id"


def table(result: QueryResult, *, most: int) -> str:
    """The first rows. An `episode_id` opens its replay, at the row's `step_index` if it has one."""
    rows = result.rows[:most]
    names = distinct_names(result.columns)
    columns: list[tables.Column] = []
    for place, name in enumerate(names):
        values = [row[place] for row in rows]
        if name.endswith(EPISODE):
            steps = _steps(names, rows) if name == EPISODE else [None] * len(rows)
            columns.append(
                tables.link(
                    name,
                    [
                        (_shown(value), _replay(value, step))
                        for value, step in zip(values, steps, strict=True)
                    ],
                )
            )
        elif name in numeric_columns(result) and any(value is not None for value in values):
            columns.append(tables.Column(name, [_shown(value) for value in values], numeric=True))
        else:
            columns.append(tables.text(name, [_shown(value) for value in values]))
    return tables.table(columns)


def numeric_columns(result: QueryResult) -> list[str]:
    """Columns that hold numbers, or nothing."""
    return [
        name
        for place, name in enumerate(distinct_names(result.columns))
        if all(isinstance(row[place], int | float | None) for row in result.rows)
    ]


def chart(result: QueryResult, *, kind: ChartKind, x: str, y: Sequence[str]) -> go.Figure:
    """The rows in their order, or a histogram of `x`.

    Args:
        result: The answer.
        kind: `histogram` has no `y`.
        x: A column.
        y: Columns of numbers; a line, a set of bars or of points for each.
    """
    names = distinct_names(result.columns)
    across = [row[names.index(x)] for row in result.rows]
    traces: list[go.Bar | go.Scatter | go.Histogram] = []
    if kind == "histogram":
        traces.append(go.Histogram(x=across, marker={"color": charts.PALETTE[0]}))
    for number, name in enumerate(y if kind != "histogram" else ()):
        up = [row[names.index(name)] for row in result.rows]
        color = charts.PALETTE[number % len(charts.PALETTE)]
        if kind == "bar":
            traces.append(go.Bar(x=across, y=up, name=name, marker={"color": color}))
        else:
            mode = "lines+markers" if kind == "line" else "markers"
            traces.append(
                go.Scatter(
                    x=across, y=up, name=name, mode=mode, line={"color": color}, marker={"size": 6}
                )
            )
    figure = go.Figure(traces)
    figure.update_layout(
        template="none",
        height=380,
        margin={"l": 8, "r": 8, "t": 12, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        xaxis={"title": {"text": x}, "gridcolor": "rgba(128,128,140,.18)"},
        yaxis={
            "title": {"text": "rows" if kind == "histogram" else ", ".join(y)},
            "gridcolor": "rgba(128,128,140,.18)",
            "zerolinecolor": "rgba(128,128,140,.4)",
        },
        bargap=0.15,
        showlegend=kind != "histogram" and len(y) > 1,
        uirevision=f"{kind} {x} {y}",
    )
    return figure


def _steps(names: Sequence[str], rows: Sequence[tuple[Cell, ...]]) -> list[int | None]:
    if "step_index" not in names:
        return [None] * len(rows)
    steps = [row[names.index("step_index")] for row in rows]
    return [step if isinstance(step, int) else None for step in steps]


def _replay(episode: Cell, step: int | None) -> str | None:
    if not isinstance(episode, str) or not episode:
        return None
    return links.address(links.REPLAY, episode=episode, step=step)


def _shown(value: Cell) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.5g}".replace("-", "−")
        case int():
            return f"{value:d}".replace("-", "−")
        case bytes():
            return f"{len(value):,} bytes"
        case str():
            return value if len(value) <= LONGEST_CELL else f"{value[: LONGEST_CELL - 1]}…"
