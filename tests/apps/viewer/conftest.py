"""One viewer of the sample store and one of the demo, one browser, and one page of it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from apps.browser import VIEW, patient_page, running_browser, running_viewer
from apps.conftest import SampleStore
from longhaul_core.store import open_store

Show = Callable[[str | None], AbstractContextManager[str]]


@pytest.fixture(scope="session")
def show(quick_python: str, tmp_path_factory: pytest.TempPathFactory) -> Show:
    """Runs a viewer of a store, None for its demo, for as long as a block takes."""

    def show(store: str | None) -> AbstractContextManager[str]:
        return running_viewer(store, tmp_path_factory.mktemp("viewer") / "log", python=quick_python)

    return show


@pytest.fixture(scope="session")
def viewer(sample: SampleStore, show: Show) -> Iterator[str]:
    with show(sample.url) as address:
        yield address


@pytest.fixture(scope="session")
def demo(show: Show) -> Iterator[str]:
    with show(None) as address:
        yield address


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """A store to which tests add runs of their own, and a viewer that shows it."""

    url: str
    viewer: str


@pytest.fixture(scope="session")
def workshop(show: Show, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    url = str(tmp_path_factory.mktemp("workshop") / "store.db")
    open_store(url).dispose()
    with show(url) as viewer:
        yield Workshop(url=url, viewer=viewer)


@pytest.fixture(scope="package")
def browser(installed_chromium: str) -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="package")
def context(browser: Browser) -> Iterator[BrowserContext]:
    with browser.new_context(viewport=VIEW) as context:
        yield context


@pytest.fixture(scope="package")
def tab(context: BrowserContext) -> Iterator[Page]:
    with patient_page(context) as page:
        yield page


@pytest.fixture(scope="module")
def page(tab: Page) -> Iterator[Page]:
    """The same for all: a browser's process reads the code of pages once, for 4 s."""
    yield tab
    leave(tab)


@pytest.fixture(autouse=True)
def nothing_is_held(request: pytest.FixtureRequest) -> Iterator[None]:
    """Requests that a test held or changed are as they were for the next one, however it ended."""
    yield
    if "page" in request.fixturenames:
        tab: Page = request.getfixturevalue("tab")
        tab.unroute_all(behavior="ignoreErrors")


@pytest.fixture(scope="package")
def other_context(browser: Browser) -> Iterator[BrowserContext]:
    with browser.new_context(viewport=VIEW) as context:
        yield context


@pytest.fixture(scope="package")
def other_tab(other_context: BrowserContext) -> Iterator[Page]:
    with patient_page(other_context) as page:
        yield page


@pytest.fixture
def other(other_tab: Page) -> Iterator[Page]:
    """A page of another browser, which knows nothing of what was looked at in the first."""
    yield other_tab
    leave(other_tab)


@pytest.fixture
def changed(other_context: BrowserContext) -> Iterator[Page]:
    """A page for a test that changes how pages are loaded, which nothing takes back."""
    with patient_page(other_context) as page:
        yield page


def leave(page: Page) -> None:
    """End what the page follows, and make it as large as a new one."""
    page.goto("about:blank")
    page.set_viewport_size(VIEW)
