"""One viewer of the sample store and one of the demo, and one browser for each module."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from apps.browser import browser_page, running_viewer
from apps.conftest import SampleStore


@pytest.fixture(scope="session")
def viewer(sample: SampleStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_viewer(sample.url, tmp_path_factory.mktemp("viewer") / "log") as address:
        yield address


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_viewer(None, tmp_path_factory.mktemp("demo") / "log") as address:
        yield address


@pytest.fixture(scope="module")
def page(installed_chromium: str) -> Iterator[Page]:
    with browser_page() as page:
        yield page
