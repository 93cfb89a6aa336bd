"""Figures carry the numbers they were given, and mark what the reader looks at."""

import json
from typing import Any

import plotly.graph_objects as go

from longhaul_viewer.components.charts import Series, curves


def read(figure: go.Figure) -> Any:  # noqa: ANN401 - a figure is JSON
    """What the browser gets."""
    return json.loads(str(figure.to_json()))  # pyright: ignore[reportUnknownMemberType]


def test_an_empty_series_draws_nothing() -> None:
    figure = curves([Series("a", [1, 2], [0.1, 0.2]), Series("b", [], [])], title="return")
    assert [trace["name"] for trace in read(figure)["data"]] == ["a"]


def test_marks_are_whole_training_steps_and_the_axis_begins_at_the_first() -> None:
    for last, apart in ((8, 1), (12, 2), (36, 5), (180, 20), (5000, 500)):
        line = Series("a", [1, last], [0.1, 0.2])
        axis = read(curves([line], title="return"))["layout"]["xaxis"]
        assert axis["dtick"] == apart
        assert axis["autorangeoptions"] == {"minallowed": 0.6}
        assert axis["title"]["text"] == "training step"


def test_a_constant_curve_is_drawn_against_zero() -> None:
    for constant, included in ((50.0, [0.0, 0.0]), (0.0, [0.0, 1.0]), (-2.0, [0.0, 0.0])):
        axis = read(curves([Series("a", [1, 2], [constant] * 2)], title="x"))["layout"]["yaxis"]
        assert axis["autorangeoptions"] == {"include": included}
        assert axis["rangemode"] == ("normal" if constant < 0 else "tozero")


def test_a_zoom_is_kept_while_values_come_in() -> None:
    short, long = (read(curves([Series("a", range(n), [1.0] * n)], title="return")) for n in (3, 9))
    assert short["layout"]["uirevision"] == long["layout"]["uirevision"] != ""
    # Plotly takes what we say over what the reader did, once we say something else than before.
    for axis in ("xaxis", "yaxis"):
        assert "range" not in short["layout"][axis]


def test_a_run_has_one_colour_in_every_chart() -> None:
    runs = ["a", "b"]
    both = [Series("train", [1], [1.0], run_id=run, phase="train") for run in runs]
    all_of = read(curves(both, title="x", run_ids=runs))["data"]
    alone = read(curves(both[1:], title="x", run_ids=runs))["data"]
    assert all_of[1]["line"]["color"] == alone[0]["line"]["color"]
    assert all_of[0]["line"]["color"] != alone[0]["line"]["color"]


def test_a_band_lies_between_its_edges() -> None:
    line = Series("a", [1, 2], [1.0, 2.0], least=[0.5, 1.5], most=[3.0, 4.0])
    low, high, middle = read(curves([line], title="x"))["data"]
    assert (list(low["y"]), list(high["y"]), list(middle["y"])) == (
        [0.5, 1.5],
        [3.0, 4.0],
        [1.0, 2.0],
    )
    assert high["fill"] == "tonexty"
