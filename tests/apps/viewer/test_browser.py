"""From the command line to what a person sees, in a real browser (headless Chromium)."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Dialog, Page, expect

from apps.browser import browser_page, running_viewer, settle
from apps.conftest import SampleStore
from apps.sample_store import SampleRun
from longhaul_core.store.writer import StoreWriter
from longhaul_viewer import links
from store_samples import first_reply

SCREENSHOTS = Path(__file__).parents[1] / "screenshot.py"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def viewer(sample: SampleStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_viewer(sample.url, tmp_path_factory.mktemp("viewer") / "log") as address:
        yield address


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser_page() as page:
        yield page


def open_replay(page: Page, viewer: str, episode_id: str, step: int) -> None:
    page.goto(f"{viewer}/{links.address(links.REPLAY, episode=episode_id, step=step)}")
    settle(page)


def test_a_link_opens_on_its_step_and_the_keys_move_it(
    page: Page, viewer: str, sample: SampleStore
) -> None:
    summary = sample.solved.summary
    open_replay(page, viewer, summary.episode_id, 1)
    expect(page.locator("h1")).to_have_text(summary.goal)
    assert first_reply(sample.solved.steps[1]) in page.locator(".tokens").first.inner_text()
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**step=2*")
    settle(page)
    assert first_reply(sample.solved.steps[2]) in page.locator(".tokens").first.inner_text()
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**step=1*")


def test_a_click_on_the_strip_goes_to_the_step(
    page: Page, viewer: str, sample: SampleStore
) -> None:
    open_replay(page, viewer, sample.solved.summary.episode_id, 0)
    last = sample.solved.steps[-1].step_index
    page.locator(".js-plotly-plot .barlayer .point").last.click(force=True)
    page.wait_for_url(f"**step={last}*")


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


def test_hostile_replies_run_nothing(page: Page, viewer: str, sample: SampleStore) -> None:
    dialogs: list[str] = []

    def note(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", note)
    index = next(s.step_index for s in sample.hostile.steps if "<script>" in first_reply(s))
    open_replay(page, viewer, sample.hostile.summary.episode_id, index)
    assert "<script>alert(1)</script>" in page.locator(".tokens").first.inner_text()
    assert page.locator(".tokens img, .tokens script, .text img").count() == 0
    assert dialogs == []


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
            expect(page.get_by_text("1 of 12 training steps")).to_be_visible(timeout=30_000)
            trainer.submit(asyncio.run, run.train_once(2)).result()
            expect(page.get_by_text("2 of 12 training steps")).to_be_visible(timeout=30_000)
            run.finish()
            expect(page.get_by_text("finished")).to_be_visible(timeout=30_000)


def test_data_is_given_to_names_and_pages_of_this_machine_only(viewer: str) -> None:
    own = viewer.removeprefix("http://")
    assert handshake(viewer, host=own, origin=viewer) == 101
    assert handshake(viewer, host="evil.example", origin="http://evil.example") == 403
    assert handshake(viewer, host=own, origin="http://evil.example") == 403


def handshake(viewer: str, *, host: str, origin: str) -> int:
    """Status of the answer to a websocket's first line; all data goes through that."""
    address, port = viewer.removeprefix("http://").split(":")
    lines = [
        "GET /_stcore/stream HTTP/1.1",
        f"Host: {host}",
        f"Origin: {origin}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ]
    with socket.create_connection((address, int(port)), timeout=10) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        return int(connection.recv(4096).split()[1])


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
    assert set(pictures) >= {"run.png", "replay.png"}
    assert all(picture.startswith(b"\x89PNG") for picture in pictures.values())
