"""Figures carry the numbers they were given, and mark what the reader looks at."""

import json
from typing import Any

import plotly.graph_objects as go

from longhaul_viewer.components.charts import Series, StripStep, curves, episode_strip


def read(figure: go.Figure) -> Any:  # noqa: ANN401 - a figure is JSON
    """What the browser gets."""
    return json.loads(str(figure.to_json()))  # pyright: ignore[reportUnknownMemberType]


def strip() -> list[StripStep]:
    return [
        StripStep(step=0, reward=0.0, advantage=0.5, action="go <b>north</b>", valid=True),
        StripStep(step=1, reward=-1.0, advantage=-0.25, action="??", valid=False),
        StripStep(step=2, reward=2.0, advantage=None, action="open", valid=True),
    ]


def test_the_strip_marks_the_current_step_and_the_invalid_ones() -> None:
    figure = read(episode_strip(strip(), current=1))
    reward, advantage, invalid = figure["data"]
    assert list(reward["y"]) == [0.0, -1.0, 2.0]
    assert list(advantage["x"]) == [0, 1]
    assert list(invalid["x"]) == [1]
    mark = figure["layout"]["shapes"][0]
    assert (mark["x0"], mark["x1"]) == (0.5, 1.5)


def test_both_axes_of_the_strip_have_zero_in_the_middle() -> None:
    layout = read(episode_strip(strip(), current=0))["layout"]
    for axis in ("yaxis", "yaxis2"):
        low, high = layout[axis]["range"]
        assert low == -high


def test_an_action_cannot_put_markup_into_a_hover_label() -> None:
    figure = read(episode_strip(strip(), current=0))
    assert "<b>" not in figure["data"][0]["customdata"][0]


def test_an_empty_series_draws_nothing() -> None:
    figure = curves([Series("a", [1, 2], [0.1, 0.2]), Series("b", [], [])], title="return")
    assert [trace["name"] for trace in read(figure)["data"]] == ["a"]
