"""The plot of `learning.py`."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# Plotly is untyped.

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
from playwright.sync_api import sync_playwright
from plotly.subplots import make_subplots

from longhaul_core.evaluation import Interval
from longhaul_envs.browser.chromium import chromium_executable

COLORS = {"gigpo": "#1b6ca8", "grpo": "#d1495b", "rloo": "#4d9a5b"}
LABELS = {"gigpo": "GiGPO", "grpo": "GRPO", "rloo": "RLOO"}


class Curve(NamedTuple):
    """What the store says of one finished run."""

    algorithm: str
    seed: int
    success: dict[int, dict[str, float]]
    """Training step, then task, to 1 or 0: the panel."""
    training: list[tuple[int, float]]
    """Training step and success rate of the episodes trained on."""
    minutes: float

    def rate(self, training_step: int) -> float:
        """Success rate on the panel."""
        return float(np.mean(list(self.success[training_step].values())))


def plot(
    curves: Sequence[Curve],
    differences: Mapping[str, tuple[Interval, Sequence[float]]],
    path: Path,
) -> None:
    """Success on the panel and in training, and the primary differences, into `path`.

    Args:
        curves: Of every algorithm and seed.
        differences: Other algorithm, to the interval of the mean difference and every seed's.
        path: A PNG file.
    """
    figure = make_subplots(
        rows=1,
        cols=3,
        column_widths=[0.38, 0.38, 0.24],
        subplot_titles=(
            "256 held-out layouts",
            "training episodes",
            "GiGPO less …, t interval",
        ),
        horizontal_spacing=0.07,
    )
    for algorithm in LABELS:
        own = [curve for curve in curves if curve.algorithm == algorithm]
        panel = [sorted((n, curve.rate(n)) for n in curve.success) for curve in own]
        smooth = [running_mean(curve.training) for curve in own]
        for column, lines in ((1, panel), (2, smooth)):
            for line in lines:
                add_line(figure, line, algorithm, column, mean=False)
            mean = [
                (points[0][0], float(np.mean([value for _, value in points])))
                for points in zip(*lines, strict=True)
            ]
            add_line(figure, mean, algorithm, column, mean=True)
    for other, (interval, means) in differences.items():
        figure.add_scatter(
            x=[LABELS[other]] * len(means),
            y=list(means),
            mode="markers",
            marker={"color": COLORS[other], "size": 6, "opacity": 0.5},
            showlegend=False,
            row=1,
            col=3,
        )
        figure.add_scatter(
            x=[LABELS[other]],
            y=[interval.estimate],
            error_y={
                "array": [interval.high - interval.estimate],
                "arrayminus": [interval.estimate - interval.low],
            },
            mode="markers",
            marker={"color": COLORS[other], "size": 11, "symbol": "diamond"},
            showlegend=False,
            row=1,
            col=3,
        )
    figure.add_scatter(
        x=[LABELS[other] for other in differences],
        y=[0.0] * len(differences),
        mode="lines",
        line={"color": "gray", "dash": "dot"},
        showlegend=False,
        row=1,
        col=3,
    )
    figure.update_xaxes(title_text="training step", row=1, col=1)
    figure.update_xaxes(title_text="training step", row=1, col=2)
    figure.update_yaxes(title_text="success rate", row=1, col=1)
    figure.update_layout(
        template="plotly_white",
        width=1200,
        height=430,
        margin={"l": 60, "r": 20, "t": 50, "b": 50},
        legend={"orientation": "h", "y": -0.18},
    )
    screenshot(figure, path)


def running_mean(points: Sequence[tuple[int, float]], width: int = 5) -> list[tuple[int, float]]:
    """Each point with those before it, `width` in all."""
    return [
        (points[n][0], float(np.mean([value for _, value in points[n - width + 1 : n + 1]])))
        for n in range(width - 1, len(points))
    ]


def add_line(
    figure: go.Figure,
    points: Sequence[tuple[int, float]],
    algorithm: str,
    column: int,
    *,
    mean: bool,
) -> None:
    """One seed's curve, thin, or the mean of all, thick."""
    figure.add_scatter(
        x=[x for x, _ in points],
        y=[y for _, y in points],
        mode="lines",
        line={"color": COLORS[algorithm], "width": 4 if mean else 1},
        opacity=1.0 if mean else 0.45,
        name=LABELS[algorithm],
        showlegend=mean and column == 1,
        row=1,
        col=column,
    )


def screenshot(figure: go.Figure, path: Path) -> None:
    """The figure as a picture."""
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        page_file = Path(scratch) / "learning.html"
        figure.write_html(page_file, include_plotlyjs="inline")
        browser = playwright.chromium.launch(
            executable_path=chromium_executable(), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1220, "height": 450})
        page.goto(page_file.as_uri())
        page.wait_for_selector(".main-svg")
        page.screenshot(path=path)
        browser.close()
