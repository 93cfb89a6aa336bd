"""A running viewer and a browser that looks at it, for tests and for screenshots."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect, sync_playwright

from longhaul_core.store import EpisodeRecord, RunStarted, StoreWriter
from longhaul_envs.browser.chromium import chromium_executable
from ports import free_port

START_SECONDS = 180
VIEW: ViewportSize = {"width": 1440, "height": 1000}
PATIENCE_MS = 120_000
"""Longest wait for what a page is to show: of a machine that a test shares with many programs."""
expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def running_viewer(store: str | None, log: Path, *, python: str = sys.executable) -> Generator[str]:
    """The address of a viewer that shows `store`, None for its demo; it is gone after the block."""
    port = free_port()
    shown = ["--demo"] if store is None else ["--store", store]
    command = [python, "-m", "longhaul_viewer.main", *shown]
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--no-browser"],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until_it_answers(f"{address}/_stcore/health", process, log)
            yield address
        finally:
            process.terminate()
            process.wait(timeout=60)


def wait_until_it_answers(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Return once the server that `process` is answers at `address`."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except (URLError, TimeoutError, ConnectionError):
            time.sleep(0.2)
    raise AssertionError(f"the server did not start:\n{log.read_text(encoding='utf-8')}")


def patient_page(of: Browser | BrowserContext) -> Page:
    """A page of this, with a context of its own where it is a browser."""
    page = of.new_page()
    page.set_default_timeout(PATIENCE_MS)
    return page


@contextmanager
def running_browser() -> Generator[Browser]:
    """A headless Chromium that may reach this machine only."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium_executable(),
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            ],
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def browser_page() -> Generator[Page]:
    """A page of a fresh browser."""
    with running_browser() as browser, browser.new_context(viewport=VIEW) as context:
        yield patient_page(context)


def write(url: str, *records: RunStarted | EpisodeRecord) -> None:
    """Write into a store, in a thread: the browser's driver may hold the caller's event loop."""

    def in_thread() -> None:
        with StoreWriter(url) as writer:
            writer.write(records)

    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(in_thread).result()


def choose(page: Page, label: str, option: str) -> None:
    """Take the option of that name in the menu of that label, once the page is drawn."""
    field = page.get_by_role("combobox", name=label, exact=True)
    expect(field).to_be_visible()
    settle(page)  # a page that is still drawn closes its menus
    field.scroll_into_view_if_needed()  # by itself: scrolling closes a menu that is open
    field.click()
    wanted = page.get_by_role("option", name=option, exact=True)
    if wanted.count() == 0:  # a long menu has only those in sight
        field.fill(option)
    wanted.click()


@contextmanager
def other_words(page: Page) -> Generator[None]:
    """Wait until what the block did is on the page, which then says other words than before.

    The address alone is another one before the server has answered.
    """
    before = page.locator(".stHtml").all_inner_texts()
    yield
    said = page.locator(".stHtml")
    expect(said).not_to_have_text(before, use_inner_text=True)
    settle(page)


def settle(page: Page) -> None:
    """Wait until Streamlit has run the page to its end, and nothing changes on it any more."""
    expect(page.locator("nav.bar")).to_be_attached()  # with which each run of each page begins
    app = page.locator('[data-testid="stApp"]')
    expect(app).to_have_attribute("data-test-script-state", "notRunning")
    # Widgets load their code when a page first needs them, and draw grey boxes until then.
    expect(page.locator('[data-testid="stSkeleton"]')).to_have_count(0)
    # A replay reads its episode, and then its step, from the API.
    expect(page.locator(".replay .loading")).to_have_count(0)
    # Plotly draws after the script has ended.
    page.wait_for_function(
        """() => [...document.querySelectorAll('.chart')]
            .every(chart => chart.querySelector('.main-svg'))""",
    )
    page.evaluate(QUIET)


QUIET = """() => new Promise((done) => {
  let pause;
  const begin = () => { clearTimeout(pause); pause = setTimeout(done, 200); };
  const changes = {attributes: true, characterData: true, childList: true, subtree: true};
  new MutationObserver(begin).observe(document.body, changes);
  begin();
  setTimeout(done, 500);
})"""
"""Ends once the document has not changed for 0.2 s; after 0.5 s where it changes on and on."""
