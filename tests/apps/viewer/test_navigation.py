"""What each page says after each of its links and keys, and after Back, in a real browser."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from apps.browser import settle
from apps.conftest import SampleStore
from longhaul_viewer import links

pytestmark = pytest.mark.slow

SAYS = ".stHtml, .replay header, .replay .where"


def open_page(page: Page, address: str) -> None:
    page.goto(address)
    settle(page)


def said(page: Page) -> list[str]:
    """All that the page says: headings, tables, the heading of a replay and where it stands."""
    settle(page)
    return page.locator(SAYS).all_inner_texts()


def expect_said(page: Page, blocks: list[str]) -> None:
    expect(page.locator(SAYS)).to_have_text(blocks, use_inner_text=True)


def expect_a_page(page: Page) -> None:
    """No dialog and no message of Streamlit's or of ours stands in the way."""
    settle(page)
    for trouble in ("stDialog", "stException", "stAlertContainer"):
        expect(page.get_by_test_id(trouble)).to_have_count(0)
    expect(page.locator(".alert")).to_have_text([])  # which shows what an alert says
    expect(page.locator("h1")).to_have_count(1)
    if "/replay?" in page.url:  # whose labels come last, after a page has settled once
        expect(page.locator(SAYS).filter(has_text="Labels and notes")).to_have_count(1)


def test_the_list_of_runs_is_at_the_root_and_at_its_own_address(page: Page, viewer: str) -> None:
    open_page(page, viewer)
    at_root = said(page)
    open_page(page, f"{viewer}/runs")
    expect_said(page, at_root)


def test_back_gives_what_was_said_before_each_click(
    page: Page, viewer: str, sample: SampleStore
) -> None:
    summary = sample.solved.summary

    def second_step() -> None:
        """An episode is an entry of the history, a step of it is not."""
        page.locator("a.head").nth(1).click()
        expect(page.locator(".replay .where")).to_contain_text("0 of")
        page.keyboard.press("ArrowRight")

    clicks: list[tuple[str, Callable[[], None]]] = [
        ("/replay?", lambda: click_row(page, summary.goal)),
        ("/group?", page.locator(".trail").last.get_by_role("link", name="group").click),
        ("&step=1", second_step),
        ("/episodes?", page.locator(".trail").last.get_by_role("link", name="Episodes").click),
    ]
    open_page(page, f"{viewer}/{links.address(links.EPISODES, run=sample.run_id)}")
    trail: list[tuple[str, list[str]]] = []
    for part_of_address, click in clicks:
        trail.append((page.url, said(page)))
        click()
        page.wait_for_url(lambda url, part=part_of_address: part in url)
        expect(page.locator(SAYS)).not_to_have_text(trail[-1][1], use_inner_text=True)
        expect_a_page(page)
    for address, blocks in reversed(trail):
        page.go_back()
        page.wait_for_url(address)
        expect_said(page, blocks)


def click_row(page: Page, text: str) -> None:
    """A click on the last cell of the first row that holds the text: the whole row is the link."""
    cell = page.locator("tr.link").filter(has_text=text).first.locator("td").last
    cell.click(force=True)  # the row's link lies over it
