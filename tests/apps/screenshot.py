"""Screenshots of every page, for the documentation.

    python tests/apps/screenshot.py STORE EPISODE_ID FOLDER [STEP]

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

from apps.browser import VIEW, browser_page, running_viewer, settle
from longhaul_viewer import links


def take(
    page: Page, address: str, episode_id: str, folder: Path, *, step: int, demo: bool = False
) -> None:
    """Write the pictures of the viewer at that address."""
    run_id, attempt, phase, training_step, group, _, _ = episode_id.rsplit("/", 6)
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
    page.set_viewport_size(VIEW)
    with urlopen(f"{address}/api/runs/{run_id}/results", timeout=60) as answer:
        steps = sorted({result["training_step"] for result in json.load(answer)})
    a, b = (f"{run_id}@{each}" for each in (steps[0], steps[-1]))
    pages["compare"] = links.address(links.COMPARE, a=a, b=b)
    for name, path in pages.items():
        page.goto(f"{address}/{path}")
        settle(page)
        page.screenshot(path=folder / f"{name}.png")
    page.goto(f"{address}/{links.address(links.COMPARE, a=a, b=b, show='all')}")
    side_by_side(page, folder / "side_by_side.png")
    if demo:  # another store would keep the episode
        play(page, address, folder / "play.png")


def side_by_side(page: Page, picture: Path) -> None:
    """From the comparison that is open to the episodes of its first task."""
    settle(page)
    page.locator("tr.link a").first.click()
    page.locator(".pair article").first.wait_for()
    settle(page)
    page.screenshot(path=picture)


def play(page: Page, address: str, picture: Path) -> None:
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


if __name__ == "__main__":
    store, episode_id, folder, *step = sys.argv[1:]
    demo = store == "demo"
    with (
        tempfile.TemporaryDirectory() as scratch,
        running_viewer(None if demo else store, Path(scratch) / "log") as address,
        browser_page() as page,
    ):
        to = Path(folder)
        take(page, address, episode_id, to, step=int(step[0]) if step else 0, demo=demo)
