"""From the command line to what a person sees, in a real browser (headless Chromium)."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from apps.browser import settle
from apps.conftest import SampleStore
from apps.screenshot import take
from longhaul_viewer import links

pytestmark = pytest.mark.slow


def open_replay(page: Page, viewer: str, episode_id: str, step: int) -> None:
    page.goto(f"{viewer}/{links.address(links.REPLAY, episode=episode_id, step=step)}")
    settle(page)


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


def test_the_screenshots_of_the_documentation_can_be_taken(
    page: Page, viewer: str, sample: SampleStore, tmp_path: Path
) -> None:
    take(page, viewer, sample.solved.summary.episode_id, tmp_path, step=1)
    pictures = {picture.name: picture.read_bytes() for picture in tmp_path.iterdir()}
    lists = {"runs", "run", "episodes", "groups", "group", "compare"}
    pages = lists | {"replay", "side_by_side", "sql", "storage"}
    assert set(pictures) == {f"{page}.png" for page in pages}
    assert all(picture.startswith(b"\x89PNG") for picture in pictures.values())
