"""The guide docs/guides/from_a_bad_curve.md, carried out in the demo store."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from apps.browser import other_words, settle

GUIDE = Path(__file__).parents[3] / "docs/guides/from_a_bad_curve.md"


@pytest.mark.slow
def test_the_guide_finds_the_step(page: Page, demo: str) -> None:
    steps = GUIDE.read_text(encoding="utf-8").partition("\n1. ")[2]
    told = re.findall(r"\*\*([^*]+)\*\*|^ *> (.+)$", steps, flags=re.MULTILINE)
    doings = [(re.sub(r"\s+", " ", bold), quoted) for bold, quoted in told]
    assert len([bold for bold, _ in doings if bold]) == 5
    assert len([quoted for _, quoted in doings if quoted]) == 3

    page.goto(demo)
    settle(page)
    for bold, quoted in doings:
        if not bold:
            expect(page.get_by_text(quoted).first).to_be_visible()
            continue
        link, button = (page.get_by_role(role, name=bold) for role in ("link", "button"))
        expect(link.or_(button).first).to_be_visible()
        if link.count():
            with other_words(page):
                link.first.click()
        else:  # of the replay
            button.first.click()
