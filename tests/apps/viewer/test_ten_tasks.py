"""Ten tasks of a researcher in the demo store, each in at most four clicks from the start page.

A click is a press of the mouse's button or of a key that stands for one; typing is none. Prints a
table: `pytest -s tests/apps/viewer/test_ten_tasks.py`.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from apps.browser import settle

pytestmark = pytest.mark.slow
MOST_CLICKS = 4


@dataclass
class Researcher:
    """Counts what is clicked from the start page on."""

    page: Page
    address: str
    num_clicks: int = 0
    began: float = field(default_factory=time.monotonic)

    def click(self, where: Locator) -> None:
        """Click, when it is there and the page is drawn, so that nothing takes its place."""
        expect(where).to_be_visible()
        settle(self.page)
        where.click()
        self.num_clicks += 1

    def press(self, key: str) -> None:
        """Press a key, as good as a click."""
        self.page.keyboard.press(key)
        self.num_clicks += 1

    def link(self, name: str) -> Locator:
        """The first link of that text."""
        return self.page.get_by_role("link", name=name).first

    def choose(self, label: str, option: str) -> None:
        """Open a menu of that label, type and take the first option with that text: two clicks."""
        menu = self.page.get_by_test_id("stSelectbox").filter(has_text=label)
        expect(menu).to_be_visible()
        field = menu.get_by_role("combobox")
        self.click(field)
        field.fill(option)  # a long menu has only those in sight
        self.click(self.page.get_by_role("option").filter(has_text=option).first)

    def open_episodes(self, run: str) -> None:
        """The episodes of a run: two clicks."""
        self.click(self.link(run))
        self.click(self.link("Episodes"))

    def first_row(self) -> Locator:
        """The first row of a table of episodes."""
        return self.page.locator('tr.link a[href^="replay?"]').first


def worst_episode_of_the_last_step(one: Researcher) -> None:
    one.click(one.page.locator('a[href*="invalid_action_rate"]', has_text="step 6"))
    one.click(one.link("Episodes"))
    one.click(one.page.locator("th a", has_text="Invalid"))  # the run's page links to invalid ones
    expect(one.page.locator("th[aria-sort]", has_text="Invalid")).to_be_visible()
    one.click(one.first_row())
    expect(one.page.get_by_text("horizon reached").first).to_be_visible()
    expect(one.page.get_by_text("invalid", exact=False).first).to_be_visible()


def what_changed_in_the_prompt(one: Researcher) -> None:
    one.open_episodes("boxes-gigpo")
    one.click(one.first_row())
    expect(one.page.get_by_role("option", name="step 1").first).to_be_visible()
    one.press("ArrowRight")
    expect(one.page.locator(".line.added").first).to_be_attached()


def groups_without_signal(one: Researcher) -> None:
    one.click(one.link("errands"))
    one.click(one.link("Groups"))
    one.choose("Show", "no signal")
    expect(one.page.locator("tr.link", has_text="no signal").first).to_be_visible()


def two_runs_compared(one: Researcher) -> None:
    one.click(one.link("Compare"))
    one.click(one.page.locator("a", has_text="boxes-planned").filter(has_text="boxes-gigpo").first)
    expect(one.page.get_by_text("95% interval").first).to_be_visible()


def tasks_that_flipped(one: Researcher) -> None:
    one.click(one.link("Compare"))
    one.click(one.page.locator("a", has_text="errands").first)
    expect(one.page.get_by_text("gained").first).to_be_visible()
    expect(one.page.locator("tr.link").first).to_be_visible()


def repeated_actions(one: Researcher) -> None:
    one.click(one.link("SQL"))
    one.choose("A question", "repeat")
    one.click(one.page.get_by_role("button", name="Ask"))
    expect(one.page.get_by_text("rows in").first).to_be_visible()


def a_free_query(one: Researcher) -> None:
    one.click(one.link("SQL"))
    editor = one.page.get_by_role("textbox").last
    one.click(editor)
    editor.fill("SELECT count(*) AS num_steps_here FROM steps")
    one.press("Control+Enter")
    expect(one.page.get_by_text("num_steps_here").last).to_be_visible()


def a_word_in_the_observations(one: Researcher) -> None:
    one.open_episodes("four-games")
    expect(one.first_row()).to_be_visible()
    one.click(one.page.get_by_role("textbox", name="Text", exact=True))
    one.page.keyboard.type("recipes")
    one.press("Enter")
    expect(one.page.locator(".filters .taken", has_text="recipes")).to_be_visible()
    expect(one.first_row()).to_be_visible()


def export_for_sft(one: Researcher) -> None:
    one.open_episodes("errands")
    with one.page.expect_download() as download:
        one.click(one.link("conversations"))
    assert '"messages"' in Path(download.value.path()).read_text(encoding="utf-8")


def a_comment_on_a_step(one: Researcher) -> None:
    one.open_episodes("team")
    one.click(one.first_row())
    expect(one.page.locator(".replay[data-drawn]")).to_be_visible()
    expect(one.page.get_by_role("button", name="Save")).to_be_visible()
    settle(one.page)
    one.page.get_by_label("Name", exact=True).fill("comment")
    one.page.get_by_label("Remark", exact=True).fill("goes in circles here")
    one.click(one.page.get_by_role("button", name="Save"))
    expect(one.page.get_by_text("goes in circles here").first).to_be_visible()


TASKS: tuple[Callable[[Researcher], None], ...] = (
    worst_episode_of_the_last_step,
    what_changed_in_the_prompt,
    groups_without_signal,
    two_runs_compared,
    tasks_that_flipped,
    repeated_actions,
    a_free_query,
    a_word_in_the_observations,
    export_for_sft,
    a_comment_on_a_step,
)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_a_task_takes_four_clicks_at_most(
    task: Callable[[Researcher], None], demo: str, page: Page, capsys: pytest.CaptureFixture[str]
) -> None:
    page.goto(demo)
    expect(page.locator("tr.link").first).to_be_visible()
    one = Researcher(page, demo)
    task(one)
    seconds = time.monotonic() - one.began
    row = f"| {task.__name__.replace('_', ' ')} | {one.num_clicks} | {seconds:.1f} |\n"
    with capsys.disabled():
        sys.stdout.write(row)
    assert one.num_clicks <= MOST_CLICKS
