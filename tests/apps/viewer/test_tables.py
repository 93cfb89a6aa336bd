"""Tables: text stays text, numbers are as given, a row is one link."""

import base64
import re

import pytest

from longhaul_viewer.components import tables

HOSTILE = "<script>alert('x')</script>\" onclick=\"y"


def cells(html: str) -> list[str]:
    return [re.sub("<[^>]+>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", html)]


def test_hostile_text_stays_text() -> None:
    html = tables.table(
        [tables.text(HOSTILE, [HOSTILE]), tables.value(HOSTILE, [1.0], hint=HOSTILE)],
        addresses=[HOSTILE],
    )
    assert "<script" not in html
    assert '" onclick=' not in html
    assert "&lt;script&gt;" in html


def test_numbers_keep_their_form_and_a_missing_one_is_a_dash() -> None:
    numbers = tables.value("a", [-0.25, None, 1234567.0])
    counts = tables.value("b", [-3, None, 1234567], form=",d")
    table = tables.table([numbers, counts, tables.bar("c", [0.5, None, 1.0])])
    assert cells(table) == ["−0.25", "−3", "50%", "–", "–", "–", "1.235e+06", "1,234,567", "100%"]


def test_a_row_is_one_link_named_by_its_first_cell() -> None:
    columns = [tables.text("a", ["one", "two"]), tables.text("b", ["x", "y"])]
    linked = tables.table(columns, addresses=["run?run=1", "run?run=2"])
    links = re.findall(r'<a target="_self" href="([^"]+)">(.*?)</a>', linked)
    assert [(href, re.sub("<[^>]+>", "", text)) for href, text in links] == [
        ("run?run=1", "one"),
        ("run?run=2", "two"),
    ]
    assert "<a " not in tables.table(columns)


def test_a_curve_goes_from_its_least_to_its_largest_value() -> None:
    (cell,) = tables.curve("a", [[0.0, 4.0, 2.0]]).cells
    assert 'alt="0 to 4, last 2, of 3"' in cell
    found = re.search(r"base64,([^\"]+)\"", cell)
    assert found is not None
    drawing = base64.b64decode(found[1]).decode()
    assert 'points="0.0,22.0 38.0,2.0 76.0,12.0"' in drawing
    assert "–" in tables.curve("a", [[]]).cells[0]


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0]])
def test_a_curve_without_extent_is_drawn(values: list[float]) -> None:
    assert "<img" in tables.curve("a", [values]).cells[0]


def test_a_time_without_a_known_zone_is_marked_as_utc() -> None:
    (cell,) = tables.moment("a", [1_767_225_600.0]).cells
    assert re.sub("<[^>]+>", " ", cell).split() == ["1", "Jan", "2026", "00:00", "UTC"]
