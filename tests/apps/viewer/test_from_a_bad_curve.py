"""The guide docs/guides/from_a_bad_curve.md, carried out in the demo store."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from apps.browser import browser_page, running_viewer

GUIDE = Path(__file__).parents[3] / "docs/guides/from_a_bad_curve.md"
PATIENCE_MS = 60_000


@pytest.mark.slow
def test_the_guide_finds_the_step(tmp_path: Path) -> None:
    steps = GUIDE.read_text(encoding="utf-8").partition("\n1. ")[2]
    told = re.findall(r"\*\*([^*]+)\*\*|^ *> (.+)$", steps, flags=re.MULTILINE)
    doings = [(re.sub(r"\s+", " ", bold), quoted) for bold, quoted in told]
    assert len([bold for bold, _ in doings if bold]) == 5
    assert len([quoted for _, quoted in doings if quoted]) == 3

    with running_viewer(None, tmp_path / "log") as address, browser_page() as page:
        page.set_default_timeout(PATIENCE_MS)
        page.goto(address)
        for bold, quoted in doings:
            if bold:
                clicked(page, bold).click()
            else:
                expect(page.get_by_text(quoted).first).to_be_visible(timeout=PATIENCE_MS)
            page.wait_for_load_state("networkidle")


def clicked(page: Page, name: str) -> Locator:
    """What the guide names: a link, or a button of the replay."""
    return page.get_by_role("link", name=name).or_(page.get_by_role("button", name=name)).first
