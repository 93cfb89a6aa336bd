"""Runs, curves and episodes in a real browser: addresses, Back, following, themes, a phone."""

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Locator, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from apps.browser import PATIENCE_MS, VIEW, choose, settle
from apps.conftest import SampleStore
from apps.sample_store import SampleRun
from apps.viewer.conftest import Show
from longhaul_core.store.writer import StoreWriter
from longhaul_viewer import links

pytestmark = pytest.mark.slow


def open_page(page: Page, address: str) -> None:
    page.goto(address)
    settle(page)


def shown(page: Page) -> tuple[str, list[str]]:
    """Where the page is, and all that it says in its blocks, as two looks in a row find it.

    Streamlit takes blocks of the page before away only after it has run the page to its end.
    """
    blocks: list[str] = []
    while (now := page.locator(".stHtml").all_inner_texts()) != blocks:
        blocks = now
        settle(page)
    return page.url, blocks


def write_in(page: Page, label: str, text: str) -> None:
    field = page.get_by_role("textbox", name=label)
    field.fill(text)
    field.press("Enter")


def expect_address(page: Page, part: str) -> None:
    page.wait_for_url(lambda url: part in url, timeout=PATIENCE_MS)


VALUES = """() => [...document.querySelectorAll("input")]
    .filter((one) => one.getClientRects().length).map((one) => one.value)"""
"""What stands in the fields of a page."""


def expect_same_elsewhere(page: Page, other: Page, address: str, blocks: list[str]) -> None:
    """Another browser shows the same words, and the same in its fields, at the page's address."""
    open_page(other, address)
    expect(other.locator(".stHtml")).to_have_text(blocks, use_inner_text=True)
    other.wait_for_function(
        f"wanted => JSON.stringify(({VALUES})()) === JSON.stringify(wanted)",
        arg=page.evaluate(VALUES),
        timeout=PATIENCE_MS,
    )


def test_back_takes_back_each_click_and_addresses_say_the_same_in_another_browser(
    page: Page, other: Page, viewer: str, sample: SampleStore
) -> None:
    def head(name: str) -> Locator:
        return page.locator("th a", has_text=name)

    clicks: list[tuple[str, Callable[[], None]]] = [
        ("/run?", lambda: page.locator("tr.link td").last.click(force=True)),
        ("tab=config", lambda: page.locator(".tabs a", has_text="Config").click()),
        ("find=depth", lambda: write_in(page, "Settings named", "depth")),
        ("/episodes?", lambda: page.locator(".tabs a", has_text="Episodes").click()),
        ("phase=train", lambda: choose(page, "Phase", "train")),
        ("sort=return", lambda: head("Return").click()),
        ("after=", lambda: page.get_by_role("link", name="next page").click()),
        ("min_length=", lambda: page.locator(".histogram .bars").nth(1).locator("a").last.click()),
        ("", lambda: page.get_by_role("link", name="take all out").click()),
        ("/runs", lambda: page.locator(".bar a", has_text="Runs").click()),
    ]
    open_page(page, f"{viewer}/{links.RUNS}")
    page.evaluate("() => { window.sameDocument = true; }")  # until the page is loaded anew
    trail: list[tuple[str, list[str]]] = []
    for part, click in clicks:
        trail.append(shown(page))
        if "find=depth" in page.url or "min_length=" in page.url:
            expect_same_elsewhere(page, other, *trail[-1])
        click()
        page.wait_for_url(lambda url, part=part: part in url and url != trail[-1][0])
        expect(page.locator(".stHtml")).not_to_have_text(trail[-1][1], use_inner_text=True)
    for address, blocks in reversed(trail):
        page.go_back()
        page.wait_for_url(lambda url, address=address: url == address)
        expect(page.locator(".stHtml")).to_have_text(blocks, use_inner_text=True)
    assert page.evaluate("() => window.sameDocument") is True


LATE = """
window.WebSocket = class extends WebSocket {
  set onmessage(listener) { super.onmessage = (event) => setTimeout(() => listener(event), 400); }
  addEventListener(kind, listener, ...rest) {
    const late = (event) => setTimeout(() => listener(event), 400);
    super.addEventListener(kind, kind === "message" ? late : listener, ...rest);
  }
};
"""
"""What the server sends arrives 0.4 s late, as from far away or from a busy machine."""


def test_a_page_left_before_it_came_makes_no_entry_in_the_history(
    changed: Page, viewer: str, sample: SampleStore
) -> None:
    start = f"{viewer}/{links.RUNS}"
    changed.add_init_script(LATE)
    open_page(changed, start)
    changed.locator("tr.link a").last.click()
    changed.wait_for_url("**/run?*")
    entries = changed.evaluate("() => history.length")
    changed.wait_for_timeout(100)  # the server has the click, the page has none of the answer
    changed.go_back()
    changed.wait_for_timeout(1_500)
    assert shown(changed)[0] == start
    assert changed.evaluate("() => history.length") == entries
    changed.go_forward()
    changed.wait_for_url("**/run?*")


def test_a_row_is_a_link_that_opens_in_a_new_tab(
    page: Page, viewer: str, sample: SampleStore
) -> None:
    open_page(page, f"{viewer}/{links.address(links.EPISODES, run=sample.run_id)}")
    row = page.locator("tr.link a").first
    with page.context.expect_page() as opened:
        row.click(modifiers=["Control"])
    tab = opened.value
    tab.wait_for_url("**/replay?episode=*")
    tab.close()
    assert "/episodes?" in page.url


def test_a_click_on_a_point_opens_the_episodes_of_its_training_step(
    page: Page, viewer: str, sample: SampleStore
) -> None:
    open_page(page, f"{viewer}/{links.address(links.RUN, run=sample.run_id)}")
    chart = page.locator(".js-plotly-plot").first
    point = chart.locator(".scatterlayer .trace").first.locator(".points path").nth(3)
    for _ in range(2):  # and again after Back
        box = point.bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x - 3, y - 3)
        page.mouse.move(x, y, steps=3)
        expect(chart.locator(".hoverlayer .legend")).to_be_visible()  # it knows the point
        page.mouse.click(x, y)
        expect_address(page, "from_step=4")
        assert "phase=train" in page.url
        expect(page.get_by_text("16 episodes")).to_be_visible()
        page.go_back()
        expect_address(page, "/run?")
        settle(page)


def test_pages_follow_a_run_from_before_it_begins_to_its_end_and_a_zoom_holds(
    page: Page, show: Show, tmp_path: Path
) -> None:
    store = str(tmp_path / "live.db")
    with StoreWriter(store) as writer, ThreadPoolExecutor(1) as trainer:
        run = SampleRun(writer=writer, run_id="live", broken_task="")

        def train(training_step: int) -> None:
            # In a thread of its own, because the browser's driver holds this one's event loop.
            trainer.submit(asyncio.run, run.train_once(training_step)).result()

        with show(store) as viewer:
            page.goto(f"{viewer}/{links.RUNS}")
            expect(page.get_by_text("holds no runs yet")).to_be_visible()
            run.start()
            expect(page.locator("tr.link", has_text="live")).to_be_visible()

            for training_step in (1, 2, 3, 4):
                train(training_step)
            page.goto(f"{viewer}/{links.address(links.RUN, run='live')}")
            expect(page.get_by_text("4 of 12 training steps")).to_be_visible()
            settle(page)
            train(5)
            expect(page.get_by_text("5 of 12 training steps")).to_be_visible()
            chart = page.locator(".js-plotly-plot").first
            expect_true(page, chart, "chart => Array.from(chart.data[0].x).length === 5")
            expect_zoom_to_hold(page, chart, meanwhile=lambda: train(6))

            page.goto(f"{viewer}/{links.address(links.EPISODES, run='live', phase='train')}")
            expect(page.get_by_text("96 episodes")).to_be_visible()
            train(7)
            expect(page.get_by_text("112 episodes")).to_be_visible()
            run.finish()
            page.goto(f"{viewer}/{links.address(links.RUN, run='live')}")
            expect(page.locator(".badge", has_text="finished")).to_be_visible()


RANGES = "[...{0}._fullLayout.xaxis.range, ...{0}._fullLayout.yaxis.range]"


def ranges(chart: Locator) -> list[float]:
    """What is in view, horizontally and vertically."""
    return chart.evaluate(f"chart => {RANGES.format('chart')}")


def expect_true(
    page: Page, chart: Locator, condition: str, *, patience_ms: float = PATIENCE_MS
) -> None:
    """Wait until a condition on a chart holds."""
    page.wait_for_function(condition, arg=chart.element_handle(), timeout=patience_ms)


def draw_over(page: Page, area: Locator) -> None:
    """Draw a rectangle over the middle of a chart, which zooms into it a moment afterwards."""
    box = area.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.8 * box["height"], steps=8)
    page.mouse.up()


def zoom(page: Page, chart: Locator, area: Locator) -> list[float]:
    """Zoom into the middle of a chart; what is in view then."""
    whole = ranges(chart)
    is_zoomed = (
        f"chart => {RANGES.format('chart')}.every((one, place) => "
        f"place % 2 ? one < {whole}[place] : one > {whole}[place])"
    )
    for _ in range(10):  # a chart that is drawn anew under the mouse takes no zoom
        draw_over(page, area)
        with suppress(PlaywrightTimeoutError):
            expect_true(page, chart, is_zoomed, patience_ms=PATIENCE_MS // 10)
            break
    zoomed = ranges(chart)
    assert whole[0] < zoomed[0] < zoomed[1] < whole[1]
    return zoomed


def point_at_step_3(chart: Locator, area: Locator) -> tuple[float, float]:
    """Where the mouse names the values of training step 3, which a zoom leaves in view."""
    box = area.bounding_box()
    assert box is not None
    right = chart.evaluate("chart => chart._fullLayout.xaxis.d2p(3)")
    return box["x"] + right, box["y"] + box["height"] / 2


def expect_zoom_to_hold(page: Page, chart: Locator, *, meanwhile: Callable[[], None]) -> None:
    """A zoom into a chart of five values holds while a sixth comes, and a double click ends it."""
    area = chart.locator(".nsewdrag").first
    zoomed = zoom(page, chart, area)

    meanwhile()
    has_six = "chart => Array.from(chart.data[0].x).length === 6"
    expect_true(page, chart, has_six)
    assert ranges(chart) == zoomed

    stayed: list[bool] = []
    while True not in stayed and len(stayed) < 10:
        settle(page)
        shown = chart.locator(".hoverlayer .legend")
        x, y = point_at_step_3(chart, area)
        for _ in range(10):  # a chart that is drawn anew under the mouse forgets it
            page.mouse.move(x - 9, y - 9)
            page.mouse.move(x, y, steps=3)
            with suppress(AssertionError):
                expect(shown).to_be_visible(timeout=PATIENCE_MS // 10)
                break
        expect(shown).to_be_visible()  # the point below is named
        page.mouse.dblclick(x, y)
        page.wait_for_timeout(1_000)
        stayed.append("/run?" in page.url)
        if not stayed[-1]:  # a busy browser may hand on the second click too late to be one
            page.go_back()
            settle(page)
            zoom(page, chart, area)  # the page that comes back shows the whole
    assert stayed[-1]
    expect_true(page, chart, "chart => chart._fullLayout.xaxis.range[1] >= 6")


PAGES = (
    "runs",
    "run?run={run}",
    "run?run={run}&tab=config",
    "run?run={run}&tab=provenance",
    "run?run={run}&tab=failures",
    "episodes?run={run}&phase=train",
    "storage?run={run}",
)

# Ratio of a text's luminance to that of what lies behind it, for the worst text of each class.
CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const parsed = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => top.slice(0, 3).map((c, i) => c * top[3] + under[i] * (1 - top[3]));
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((c) => {
      const s = c / 255;
      return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const layers = (node) => (node ? [...layers(node.parentElement), node] : []);
  const found = {};
  for (const node of document.querySelectorAll(".stHtml *")) {
    const says = [...node.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim());
    if (!says || !node.getClientRects().length) continue;
    let behind = [255, 255, 255];
    let opacity = 1;
    for (const layer of layers(node)) {
      const style = getComputedStyle(layer);
      behind = over(parsed(style.backgroundColor), behind);
      opacity *= Number(style.opacity);
    }
    const [r, g, b, a] = parsed(getComputedStyle(node).color);
    const front = over([r, g, b, a * opacity], behind);
    const [high, low] = [luminance(front), luminance(behind)].sort((x, y) => y - x);
    const ratio = (high + 0.05) / (low + 0.05);
    const name = `${node.parentElement.className} > ${node.className || node.tagName}`;
    found[name] = Math.min(found[name] ?? 99, ratio);
  }
  return found;
}"""


def test_every_page_can_be_read_in_both_themes_and_on_screens_of_three_widths(
    page: Page, viewer: str, sample: SampleStore
) -> None:
    themes: list[Literal["dark", "light"]] = ["dark", "light"]
    widths = [1280, 390, 1920]
    for address in PAGES:
        open_page(page, f"{viewer}/{address.format(run=sample.run_id)}")
        expect(page.locator("h1")).to_be_visible()
        for theme in themes:
            page.emulate_media(color_scheme=theme)
            settle(page)
            expect_contrast(page, theme)
        for width in widths:
            page.set_viewport_size({"width": width, "height": 900})
            settle(page)
            expect_fit(page, width, has_one_column=not address.startswith("storage"))
        for tried in (themes, widths):
            tried.reverse()  # the next page begins as this one was left, and is drawn less often
    page.set_viewport_size(VIEW)


def expect_contrast(page: Page, theme: str) -> None:
    behind = page.get_by_test_id("stApp").evaluate("app => getComputedStyle(app).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", behind)[:3])) < 3 * 128) == (theme == "dark")
    ratios: dict[str, float] = page.evaluate(CONTRASTS)
    assert len(ratios) > 5
    assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}  # WCAG 2, AA


def expect_fit(page: Page, width: int, *, has_one_column: bool) -> None:
    """Nothing is wider than the screen, and the screen is used."""
    main = page.get_by_test_id("stMain")
    assert main.evaluate("main => main.scrollWidth - main.clientWidth") <= 0
    used = page.locator(".rows").first
    if used.count() and has_one_column:
        box = used.bounding_box()
        assert box is not None
        assert box["width"] > 0.9 * width - 30


def test_the_run_is_named_at_its_own_address(page: Page, viewer: str, sample: SampleStore) -> None:
    open_page(page, f"{viewer}/run?run=none")
    expect(page.locator(".alert")).to_have_text(re.compile("there is no run 'none'"))
    expect(page.locator(".bar a").first).to_have_text("Runs")
