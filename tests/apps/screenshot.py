"""Screenshots of every page, for the documentation.

    python tests/apps/screenshot.py STORE RUN_ID EPISODE_ID FOLDER [STEP]

Run it from the `tests` folder's parent with `PYTHONPATH=tests`; writes `runs.png`, `run.png`,
`episodes.png`, `groups.png`, `group.png`, `replay.png`, `compare.png` (first and last result of the
run), `side_by_side.png` (its first task, one that flipped if any did), `sql.png` and `storage.png`
into FOLDER, and of the demo `play.png`. STORE is `demo` for the viewer's own. Needs Chromium, or
another one named by $LONGHAUL_CHROMIUM.
"""

import json
import sys
import tempfile
from pathlib import Path
from urllib.request import urlopen

from playwright.sync_api import Page

from apps.browser import browser_page, running_viewer, settle
from longhaul_viewer import links


def take(store: str, run_id: str, episode_id: str, folder: Path, *, step: int = 0) -> list[Path]:
    """Write the pictures; their paths."""
    _, attempt, phase, training_step, group, _, _ = episode_id.rsplit("/", 6)
    pages = {
        "runs": links.address(links.RUNS),
        "run": links.address(links.RUN, run=run_id),
        "episodes": links.address(links.EPISODES, run=run_id, sort="invalid actions"),
        "group": links.address(
            links.GROUP,
            run=run_id,
            attempt=attempt,
            phase=phase,
            training_step=training_step,
            group=group,
        ),
        "groups": links.address(links.GROUPS, run=run_id),
        "replay": links.address(links.REPLAY, episode=episode_id, step=step),
        "sql": links.address(links.SQL),
        "storage": links.address(links.STORAGE, run=run_id),
    }
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "viewer.log"
        shown = None if store == "demo" else store
        with running_viewer(shown, log) as address, browser_page() as page:
            with urlopen(f"{address}/api/runs/{run_id}/results", timeout=60) as answer:
                steps = sorted({result["training_step"] for result in json.load(answer)})
            a, b = (f"{run_id}@{each}" for each in (steps[0], steps[-1]))
            pages["compare"] = links.address(links.COMPARE, a=a, b=b)
            for name, path in pages.items():
                page.goto(f"{address}/{path}")
                settle(page)
                picture = folder / f"{name}.png"
                page.screenshot(path=picture)
                written.append(picture)
            page.goto(f"{address}/{links.address(links.COMPARE, a=a, b=b, show='all')}")
            written.append(side_by_side(page, folder / "side_by_side.png"))
            if store == "demo":  # another one would keep the episode
                written.append(play(page, address, folder / "play.png"))
    return written


def side_by_side(page: Page, picture: Path) -> Path:
    """From the comparison that is open to the episodes of its first task."""
    settle(page)
    page.locator("tr.link a").first.click()
    page.locator(".pair article").first.wait_for()
    settle(page)
    page.screenshot(path=picture)
    return picture


def play(page: Page, address: str, picture: Path) -> Path:
    """Play a few steps of a game of cards, and write what is seen then."""
    page.set_viewport_size({"width": 1440, "height": 860})
    page.goto(f"{address}/{links.address(links.PLAY, environment='longhaul/Points24-v0', task=1)}")
    settle(page)
    page.get_by_text("Options, and environments on a server").click()
    options = page.get_by_role("textbox", name="Options of the environment")
    options.fill('observation = "image"')
    options.press("Control+Enter")
    settle(page)
    page.get_by_role("button", name="Play", exact=True).click()
    for step, action in enumerate(("(", "deal again", "2", "+")):
        page.locator(f'.play[data-step="{step}"][data-stage="asked"]').wait_for()
        page.get_by_role("textbox", name="Action").fill(action)
        page.keyboard.press("Enter")
    page.locator('.play[data-step="4"][data-stage="asked"]').wait_for()
    settle(page)
    page.screenshot(path=picture)
    return picture


if __name__ == "__main__":
    store, run_id, episode_id, folder, *step = sys.argv[1:]
    take(store, run_id, episode_id, Path(folder), step=int(step[0]) if step else 0)
