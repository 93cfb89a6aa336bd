"""Pages run by Streamlit's own test runner, and what they say."""

import json
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from streamlit.components.v2 import manifest_scanner
from streamlit.config import set_option
from streamlit.testing.v1 import AppTest

import longhaul_viewer

__all__ = ["APP", "TIMEOUT_SECONDS", "charts_of", "column", "html_of", "open_page"]

APP = Path(longhaul_viewer.__file__).with_name("app.py")
TIMEOUT_SECONDS = 240

# Each test's app would read what every installed distribution says of itself, for most of a second.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)
set_option("runner.magicEnabled", False)  # as the viewer's server does


def open_page(view: str, **query: str | list[str]) -> AppTest:
    """The page after its first run, at an address with these parameters.

    A page's address is the name of its file, by which Streamlit finds it without a run before.
    """
    app = AppTest.from_file(str(APP), default_timeout=TIMEOUT_SECONDS)
    for name, value in query.items():
        app.query_params[name] = value
    return app.switch_page(f"views/{view}.py").run()


def html_of(app: AppTest) -> str:
    """All HTML of the page."""
    assert not app.exception, app.exception
    return "\n".join(str(element.proto.body) for element in app.get("html"))


def charts_of(app: AppTest) -> list[Any]:
    """The page's figures, as JSON that the browser gets."""
    drawn = [each.proto for each in app.get("bidi_component")]
    return [
        json.loads(json.loads(each.json)["figure"])
        for each in drawn
        if each.component_name == "longhaul_chart"
    ]


def column(app: AppTest, title: str) -> list[str]:
    """The cells of a column of the page's first table, as text."""
    reader = TableReader()
    reader.feed(html_of(app))
    place = reader.titles.index(title)
    return [row[place] for row in reader.rows]


class TableReader(HTMLParser):
    """The titles and the rows of the first table with titles."""

    def __init__(self) -> None:
        super().__init__()
        self.titles: list[str] = []
        self.rows: list[list[str]] = []
        self._cell: list[str] | None = None
        self._ended = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr" and self.titles and not self._ended:
            self.rows.append([])
        if tag in ("th", "td"):
            self._cell = []

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._ended = bool(self.titles)
        if tag in ("th", "td") and self._cell is not None and not self._ended:
            (self.titles if tag == "th" else self.rows[-1]).append("".join(self._cell))
            self._cell = None
