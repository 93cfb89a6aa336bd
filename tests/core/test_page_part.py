"""A command writes its part of a page, and nothing else of it."""

from pathlib import Path

import pytest

from longhaul_core.page_part import PagePart

PART = PagePart("costs")


def test_what_stands_around_the_marks_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- costs: begin -->\nstale\n<!-- costs: end -->\nb\n", "utf-8")

    PART.write(page, "| é |\n|---|")

    expected = "a\n<!-- costs: begin -->\n| é |\n|---|\n<!-- costs: end -->\nb\n"
    assert page.read_text("utf-8") == expected
    assert PART.read(page) == "| é |\n|---|"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<!-- costs: begin -->\n",
        "<!-- costs: end -->\n<!-- costs: begin -->\n",
        "<!-- other: begin -->\n<!-- other: end -->\n",
    ],
)
def test_a_page_without_the_marks_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, "utf-8")

    with pytest.raises(ValueError, match=r"page\.md must have a line <!-- costs: begin -->"):
        PART.write(page, "new")

    assert page.read_text("utf-8") == text
