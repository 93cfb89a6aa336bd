"""The page SQL in a real browser."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from apps.browser import choose, settle
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
    expect(link).to_have_text(episode)
    assert str(link.get_attribute("href")) == f"replay?episode={quote(episode, safe='')}&step=1"
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV", exact=True).click()
    lines = download.value.path().read_text("utf-8").splitlines()
    assert lines[0] == "episode_id,step_index"
    assert len(lines) == 1 + len(sample.solved.steps)


Drawn = list[tuple[str, str | None, list[float], list[float] | None]]


def drawn(page: Page, num_traces: int) -> Drawn:
    """Kind, name and values of what the chart shows, once it shows so many."""
    chart = page.locator(".js-plotly-plot")
    expect(chart).to_be_visible()
    page.wait_for_function(
        "([chart, count]) => chart.data?.length === count",
        arg=[chart.element_handle(), num_traces],
    )
    return chart.evaluate(
        "chart => chart.data.map(each => [each.type, each.name ?? null,"
        " Array.from(each.x), each.y ? Array.from(each.y) : null])"
    )


@pytest.mark.slow
def test_a_chart_is_built_from_columns_and_its_address_builds_it_again(
    page: Page, other: Page, viewer: str
) -> None:
    sql = (
        "SELECT training_step, count(*) AS num_episodes, sum(num_steps) AS num_steps "
        "FROM episode_summary WHERE phase = 'train' GROUP BY training_step ORDER BY training_step"
    )
    opened(page, viewer, sql)
    run(page)
    expect(page.locator(".rows tbody tr")).to_have_count(12)
    cells = [
        [float(cell) for cell in row.locator("td").all_inner_texts()]
        for row in page.locator(".rows tbody tr").all()
    ]
    steps, num_episodes, num_steps = ([row[place] for row in cells] for place in range(3))
    page.get_by_text("Chart", exact=True).click()
    choose(page, "Kind", "line")
    assert drawn(page, 1) == [["scatter", "num_episodes", steps, num_episodes]]
    expect(page).to_have_url(re.compile("kind=line&x=training_step&y=num_episodes"))

    choose(page, "y", "num_steps")
    page.keyboard.press("Escape")
    both = [
        ["scatter", "num_episodes", steps, num_episodes],
        ["scatter", "num_steps", steps, num_steps],
    ]
    assert drawn(page, 2) == both
    expect(page).to_have_url(re.compile("y=num_episodes&y=num_steps"))
    other.goto(page.url)
    settle(other)
    expect(other.locator(".js-plotly-plot")).to_have_count(0)  # a link runs nothing
    run(other)
    assert drawn(other, 2) == both

    choose(page, "Kind", "histogram")
    page.wait_for_function(
        "() => document.querySelector('.js-plotly-plot')?.data?.[0].type === 'histogram'"
    )
    assert drawn(page, 1) == [["histogram", None, steps, None]]


def test_what_a_model_wrote_is_text(page: Page, viewer: str) -> None:
    hostile = (
        "<img src=x onerror=\"document.title='planted'\"><script>document.title='planted'</script>"
    )
    opened(page, viewer, "SELECT '" + hostile.replace("'", "''") + "' AS reply")
    run(page)
    expect(page.locator(".rows tbody td").first).to_have_text(hostile)
    assert page.title() != "planted"


def test_a_mistake_says_where_it_is(page: Page, viewer: str) -> None:
    opened(page, viewer, "SELECT adventage\nFROM steps")
    run(page)
    expect(page.get_by_text("did you mean advantage")).to_be_visible()
    expect(page.get_by_text("line 1, column 8")).to_be_visible()


def test_a_question_about_an_episode_that_is_not_there_is_not_asked(
    page: Page, viewer: str
) -> None:
    page.goto(f"{viewer}/sql")
    settle(page)
    choose(page, "A question", "What did the memory drop before an episode's last step?")
    page.get_by_label("episode: The episode.").fill("nobody's")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_text('no episode "nobody\'s" in the store')).to_be_visible()


def test_a_question_is_put_into_the_editor(page: Page, viewer: str, sample: SampleStore) -> None:
    page.goto(f"{viewer}/sql")
    settle(page)
    choose(page, "A question", "Which groups gave no signal?")
    page.get_by_role("button", name="Put into the editor").click()
    filled = re.compile(re.escape(f"run_id = '{sample.run_id}'"))
    expect(page.locator(EDITOR)).to_have_value(filled)
