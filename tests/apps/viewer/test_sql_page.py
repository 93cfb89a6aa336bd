"""The page SQL in a real browser."""

import re
from urllib.parse import quote

from playwright.sync_api import Page, expect

from apps.browser import settle
from apps.conftest import SampleStore

EDITOR = ".st-key-sql_editor textarea"


def opened(page: Page, viewer: str, sql: str) -> None:
    page.goto(f"{viewer}/sql?sql={quote(sql)}")
    settle(page)


def run(page: Page) -> None:
    page.get_by_role("button", name="Run", exact=True).click()


def test_a_link_fills_the_editor_and_runs_nothing(page: Page, viewer: str) -> None:
    sql = "SELECT run_id AS planted FROM run_summary"
    opened(page, viewer, sql)
    expect(page.locator(EDITOR)).to_have_value(sql)
    expect(page.get_by_text("The answer will stand here")).to_be_visible()
    expect(page.locator(".rows table")).to_have_count(0)


def test_a_row_opens_its_episode_at_its_step(page: Page, viewer: str, sample: SampleStore) -> None:
    episode = sample.solved.summary.episode_id
    opened(page, viewer, f"SELECT episode_id, step_index FROM steps WHERE episode_id = '{episode}'")
    run(page)
    link = page.locator(".rows table a").nth(1)
    expect(link).to_have_text(episode, timeout=30_000)
    assert str(link.get_attribute("href")) == f"replay?episode={quote(episode, safe='')}&step=1"
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV", exact=True).click()
    lines = download.value.path().read_text("utf-8").splitlines()
    assert lines[0] == "episode_id,step_index"
    assert len(lines) == 1 + len(sample.solved.steps)


def test_what_a_model_wrote_is_text(page: Page, viewer: str) -> None:
    hostile = (
        "<img src=x onerror=\"document.title='planted'\"><script>document.title='planted'</script>"
    )
    opened(page, viewer, "SELECT '" + hostile.replace("'", "''") + "' AS reply")
    run(page)
    expect(page.locator(".rows tbody td").first).to_have_text(hostile, timeout=30_000)
    assert page.title() != "planted"


def test_a_mistake_says_where_it_is(page: Page, viewer: str) -> None:
    opened(page, viewer, "SELECT adventage\nFROM steps")
    run(page)
    expect(page.get_by_text("did you mean advantage")).to_be_visible(timeout=30_000)
    expect(page.get_by_text("line 1, column 8")).to_be_visible()


def test_a_question_is_put_into_the_editor(page: Page, viewer: str, sample: SampleStore) -> None:
    page.goto(f"{viewer}/sql")
    settle(page)
    page.get_by_role("combobox", name="A question").click()
    page.get_by_role("option", name="Which groups gave no signal?").click()
    settle(page)
    page.get_by_role("button", name="Put into the editor").click()
    filled = re.compile(re.escape(f"run_id = '{sample.run_id}'"))
    expect(page.locator(EDITOR)).to_have_value(filled, timeout=30_000)
