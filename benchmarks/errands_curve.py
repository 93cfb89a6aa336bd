"""Success of `examples/agents/errands.toml` over training steps, as its store has it.

    python benchmarks/errands_curve.py longhaul.db docs/images/errands.png [RUN]

Prints a line for each validation, and draws them beside the episodes that were trained on.
"""

# pyright: reportUnknownMemberType=false
# Plotly is untyped.

import sys
from pathlib import Path
from typing import NamedTuple

import plotly.graph_objects as go
from learning_plot import screenshot
from sqlalchemy import text
from sqlalchemy.orm import Session

from longhaul_core.evaluation import Interval, success_rate_interval
from longhaul_core.store.session import read_only_engine

CURVE = text(
    "SELECT training_step, num_episodes, success_rate FROM training_curve "
    "WHERE run_id = :run AND phase = :phase ORDER BY training_step"
)
NEWEST = text("SELECT run_id FROM run_summary WHERE kind = 'train' ORDER BY started DESC LIMIT 1")
TRAINING, VALIDATION = "#1b6ca8", "#d1495b"


class Point(NamedTuple):
    """The episodes of one training step in one phase."""

    training_step: int
    num_episodes: int
    success_rate: float

    @property
    def interval(self) -> Interval:
        """Of the rate, at 95 %."""
        return success_rate_interval(
            round(self.success_rate * self.num_episodes), self.num_episodes
        )


def points_of(session: Session, run: str, phase: str) -> list[Point]:
    """What a run's phase came to, in order."""
    return [Point(*row) for row in session.execute(CURVE, {"run": run, "phase": phase})]


def plot(training: list[Point], validation: list[Point], path: Path) -> None:
    """Both curves, into a PNG file."""
    figure = go.Figure()
    figure.add_scatter(
        x=[point.training_step for point in training],
        y=[point.success_rate for point in training],
        mode="lines+markers",
        line={"color": TRAINING, "width": 1.5},
        name=f"training episodes, {training[0].num_episodes} a step",
    )
    figure.add_scatter(
        x=[point.training_step for point in validation],
        y=[point.success_rate for point in validation],
        error_y={
            "array": [point.interval.high - point.success_rate for point in validation],
            "arrayminus": [point.success_rate - point.interval.low for point in validation],
        },
        mode="lines+markers",
        line={"color": VALIDATION, "width": 3},
        name=f"validation, {validation[0].num_episodes} errands in other words, 95 % interval",
    )
    figure.update_xaxes(title_text="training step")
    figure.update_yaxes(title_text="success rate", range=[0, 1.04], tickformat=".0%")
    figure.update_layout(
        template="plotly_white",
        width=1200,
        height=430,
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
        legend={"orientation": "h", "y": -0.18},
    )
    screenshot(figure, path)


def main(store: str, picture: str, run: str = "") -> None:
    """Read, print and draw."""
    with Session(read_only_engine(store)) as session:
        run = run or session.execute(NEWEST).scalar_one()
        training, validation = (points_of(session, run, phase) for phase in ("train", "validation"))
    print(run)
    for point in validation:
        low, high = point.interval.low, point.interval.high
        print(
            f"{point.training_step:3}  {point.success_rate:4.0%}  {low:.0%} to {high:.0%}"
            f"  of {point.num_episodes}"
        )
    plot(training, validation, Path(picture))


if __name__ == "__main__":
    main(*sys.argv[1:])
