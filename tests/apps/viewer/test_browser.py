"""From the command line to what a person sees, in a real browser (headless Chromium)."""

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from apps.browser import running_viewer, settle
from apps.conftest import SampleStore
from apps.sample_store import SampleRun
from longhaul_core.store.writer import StoreWriter
from longhaul_viewer import links

SCREENSHOTS = Path(__file__).parents[1] / "screenshot.py"
pytestmark = pytest.mark.slow


def open_replay(page: Page, viewer: str, episode_id: str, step: int) -> None:
    page.goto(f"{viewer}/{links.address(links.REPLAY, episode=episode_id, step=step)}")
    settle(page)


def test_the_trail_leads_to_the_group_and_back_to_the_run(
    page: Page, viewer: str, sample: SampleStore
) -> None:
    summary = sample.solved.summary
    open_replay(page, viewer, summary.episode_id, 0)
    page.get_by_role("link", name=f"group {summary.group_index}").click()
    page.wait_for_url("**/group?*")
    settle(page)
    page.get_by_role("link", name=sample.run_id).click()
    page.wait_for_url("**/run?*")
    settle(page)
    expect(page.locator(".js-plotly-plot").first).to_be_visible()


@pytest.mark.parametrize("last", [1, 3])
def test_the_ends_of_a_scale_stand_below_the_first_and_the_last_bar(
    page: Page, viewer: str, sample: SampleStore, last: int
) -> None:
    page.set_viewport_size({"width": 1920, "height": 1000})
    address = links.address(
        links.EPISODES, run=sample.run_id, phase="train", from_step=1, to_step=last
    )
    page.goto(f"{viewer}/{address}")
    settle(page)
    steps = page.locator(".histogram").filter(has_text="Training step")
    bars, ends = steps.locator(".bars a"), steps.locator(".ends span")
    expect(bars).to_have_count(last)
    expect(ends).to_have_text(["1"] if last == 1 else ["1", str(last)])
    for end, bar in ((ends.first, bars.first), (ends.last, bars.last)):
        label, column = end.bounding_box(), bar.bounding_box()
        assert label is not None
        assert column is not None
        assert column["x"] - 1 <= label["x"]
        assert label["x"] + label["width"] <= column["x"] + column["width"] + 1


def test_the_viewer_asks_no_other_machine(page: Page, viewer: str, sample: SampleStore) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    open_replay(page, viewer, sample.solved.summary.episode_id, 0)
    strangers = [url for url in asked if not url.startswith((viewer, "data:", "blob:"))]
    assert asked
    assert strangers == []


def test_the_page_of_a_run_follows_it(page: Page, tmp_path: Path) -> None:
    store = str(tmp_path / "live.db")
    with StoreWriter(store) as writer, ThreadPoolExecutor(1) as trainer:
        run = SampleRun(writer=writer, run_id="live", broken_task="")
        run.start()
        # In a thread of its own, because the browser's driver holds this one's event loop.
        trainer.submit(asyncio.run, run.train_once(1)).result()
        with running_viewer(store, tmp_path / "log") as viewer:
            page.goto(f"{viewer}/{links.address(links.RUN, run='live')}")
            expect(page.get_by_text("1 of 12 training steps")).to_be_visible()
            trainer.submit(asyncio.run, run.train_once(2)).result()
            expect(page.get_by_text("2 of 12 training steps")).to_be_visible()
            run.finish()
            expect(page.get_by_text("finished")).to_be_visible()


@pytest.mark.usefixtures("installed_chromium")
def test_the_screenshots_of_the_documentation_can_be_taken(
    sample: SampleStore, tmp_path: Path
) -> None:
    episode_id = sample.solved.summary.episode_id
    subprocess.run(
        [sys.executable, SCREENSHOTS, sample.url, sample.run_id, episode_id, tmp_path, "1"],
        check=True,
        env=os.environ | {"PYTHONPATH": str(SCREENSHOTS.parents[1])},
    )
    pictures = {picture.name: picture.read_bytes() for picture in tmp_path.iterdir()}
    lists = {"runs", "run", "episodes", "groups", "group", "compare"}
    pages = lists | {"replay", "side_by_side", "sql", "storage"}
    assert set(pictures) == {f"{page}.png" for page in pages}
    assert all(picture.startswith(b"\x89PNG") for picture in pictures.values())
