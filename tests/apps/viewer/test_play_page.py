"""The Play page in a real browser: keys, reloads, two people, a server's environment, a phone."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from apps.browser import settle
from apps.viewer.conftest import Show
from environment_server import running_server
from longhaul_core.store.session import open_store

pytestmark = pytest.mark.slow
LINE = "play?environment=longhaul%2FNumberLine-v0&split=validation&task="
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def viewer(show: Show, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A viewer of a store that holds nothing yet."""
    store = str(tmp_path_factory.mktemp("play") / "play.db")
    open_store(store).dispose()
    with show(store) as address:
        yield address


def begin(page: Page, address: str) -> None:
    page.goto(address)
    settle(page)
    page.get_by_role("button", name="Play", exact=True).click()
    at_step(page, 0)


def at_step(page: Page, step: int, stage: str = "asked") -> None:
    expect(page.locator(f'.play[data-step="{step}"][data-stage="{stage}"]')).to_be_visible()


def way(page: Page) -> str:
    """The key that leads to the target, as often as it takes, by what the page shows."""
    shown = page.get_by_role("log", name="Observation").inner_text()
    target, current = (int(line.split()[-1]) for line in shown.splitlines()[1:3])
    return ("+" if target > current else "-") * abs(target - current)


def test_an_episode_played_by_keys_alone_is_replayed_and_listed(page: Page, viewer: str) -> None:
    page.goto(f"{viewer}/{LINE}0")
    settle(page)
    page.get_by_role("button", name="Play", exact=True).focus()
    page.keyboard.press("Enter")
    at_step(page, 0)
    keys = way(page)
    page.keyboard.press("/")
    page.keyboard.type(HOSTILE)
    page.keyboard.press("Enter")
    at_step(page, 1)
    page.keyboard.press("Escape")
    for key in keys:
        page.keyboard.press(key)
        page.wait_for_timeout(60)
    at_step(page, len(keys) + 1, "over")

    expect(page.get_by_role("status")).to_contain_text("Solved")
    first = page.locator("ol.turns li").last
    expect(first.locator(".action")).to_have_text(HOSTILE)
    expect(first.locator(".reason")).to_have_text("invalid: not one of the 2 admissible actions")
    assert page.title() != "owned"
    page.get_by_role("link", name="Replay the episode").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/replay?**")
    expect(page.locator(".replay .tick")).to_have_count(len(keys) + 1)
    expect(page.locator(".replay .badges .outcome")).to_contain_text("solved")
    page.go_back()
    page.get_by_role("link", name="Episodes of this run").click()
    page.wait_for_url("**/episodes?**")
    expect(page.locator("tr.link")).to_have_count(1)
    expect(page.locator("tr.link")).to_contain_text("play")
    page.locator("tr.link").click()
    page.wait_for_url("**/replay?**")
    settle(page)
    page.keyboard.press("ArrowRight")
    page.get_by_role("link", name="Play on from this step").and_(
        page.locator('[href$="step=1"]')
    ).click()
    page.wait_for_url("**/play?episode=**")
    settle(page)
    page.get_by_role("button", name="Play on", exact=True).click()
    at_step(page, 1)
    expect(page.get_by_role("link", name="The stored episode")).to_be_visible()


def test_a_reload_goes_on_and_two_people_stay_apart(page: Page, other: Page, viewer: str) -> None:
    begin(page, f"{viewer}/{LINE}1")
    page.keyboard.press(way(page)[0])
    at_step(page, 1)
    begin(other, f"{viewer}/{LINE}2")
    for each in (page, other):
        expect(each).to_have_url(re.compile("sitting="))
    assert other.url.partition("sitting=")[2] != page.url.partition("sitting=")[2]
    page.reload()
    at_step(page, 1)
    at_step(other, 0)
    other.get_by_role("button", name="Give up").click()
    expect(other.get_by_role("status")).to_contain_text("nothing is stored")
    at_step(page, 1)
    page.goto(f"{viewer}/runs")
    settle(page)
    page.go_back()
    at_step(page, 1)
    page.get_by_role("button", name="Give up").click()
    expect(page.get_by_role("status")).to_contain_text("abandoned")
    page.get_by_role("button", name="The next task").click()
    at_step(page, 0)
    expect(page.get_by_text("12/", exact=False).first).to_be_visible()


def test_the_prompt_is_there_to_be_opened(page: Page, viewer: str) -> None:
    begin(page, f"{viewer}/{LINE}3")
    message = page.locator(".message").last
    expect(message).to_be_hidden()
    page.get_by_text("The prompt that a model would get").click()
    expect(message).to_contain_text("Write one action as <action>your action</action>.")


def test_an_environment_is_played_on_a_server(page: Page, viewer: str, tmp_path: Path) -> None:
    line = {
        "id": "longhaul/NumberLine-v0",
        "options": {"max_position": 5},
        "import_modules": ["longhaul_envs.registry"],
    }
    with running_server(line, folder=tmp_path) as server:
        page.goto(f"{viewer}/play")
        settle(page)
        page.get_by_text("Options, and environments on a server").click()
        field = page.get_by_role("textbox", name="Environment server")
        field.fill(server.address)
        field.press("Enter")
        begin_button = page.get_by_role("button", name="Play", exact=True)
        expect(begin_button).to_be_visible()
        settle(page)
        begin_button.click()
        at_step(page, 0)
        expect(page.get_by_text(f"played by {server.address}")).to_be_visible()
        keys = way(page)
        for place, key in enumerate(keys, start=1):
            page.keyboard.press(key)
            at_step(page, place, "over" if place == len(keys) else "asked")
        expect(page.get_by_role("status")).to_contain_text("Solved")


def test_many_actions_are_found_by_typing_and_a_wait_says_what_for(
    page: Page, viewer: str, tmp_path: Path
) -> None:
    with running_server({"id": "served/Shelves-v0"}, folder=tmp_path) as server:
        page.goto(f"{viewer}/play")
        settle(page)
        page.get_by_text("Options, and environments on a server").click()
        field = page.get_by_role("textbox", name="Environment server")
        field.fill(server.address)
        field.press("Enter")
        begin_button = page.get_by_role("button", name="Play", exact=True)
        expect(begin_button).to_be_visible()
        settle(page)
        begin_button.click()
        at_step(page, 0)
        buttons = page.get_by_role("group", name="Admissible actions").get_by_role("button")
        expect(buttons).to_have_count(60)
        expect(
            page.get_by_text("80 actions are admissible; type to find the other 20")
        ).to_be_visible()
        action = page.get_by_role("textbox", name="Action")
        expect(action).to_be_focused()  # so many have no keys
        page.keyboard.type("SHELF d 7")
        expect(buttons).to_have_text(["take book 7 from shelf d", "take book 17 from shelf d"])
        expect(page.get_by_text("2 of 80 admissible actions")).to_be_visible()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        at_step(page, 1)
        expect(page.locator("ol.turns li .action")).to_have_text(["take book 7 from shelf d"])

        wait = page.get_by_role("timer", name="What is waited for")
        expect(wait).to_be_hidden()
        action.fill("hang")
        action.press("Enter")
        said = r"Waiting for served/Shelves-v0 to answer: \d+ s so far, 120 s at most"
        expect(wait).to_have_text(re.compile(said))
        page.reload()
        expect(wait).to_have_text(re.compile(said))
    expect(page.get_by_role("status")).to_contain_text("The episode failed")
    expect(wait).to_be_hidden()


def test_a_phone_shows_it_without_scrolling_sideways(page: Page, viewer: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    begin(page, f"{viewer}/{LINE}4")
    settle(page)
    widths = page.evaluate(
        "() => [document.scrollingElement.scrollWidth, document.querySelector"
        "('[data-testid=\"stMain\"]').scrollWidth, window.innerWidth]"
    )
    assert max(widths) == 390
    page.get_by_role("button", name="+", exact=True).click()
    at_step(page, 1)
