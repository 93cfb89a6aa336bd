"""Screenshots of a run and of a replay, for the documentation.

    python tests/apps/screenshot.py STORE RUN_ID EPISODE_ID FOLDER [STEP]

Run it from the `tests` folder's parent with `PYTHONPATH=tests`; writes `run.png`,
`replay.png`, `episodes.png` and `group.png` into FOLDER. Needs /usr/bin/chromium, or
another one named by $CHROMIUM.
"""

import sys
import tempfile
from pathlib import Path

from apps.browser import browser_page, running_viewer, settle
from longhaul_viewer import links


def take(store: str, run_id: str, episode_id: str, folder: Path, *, step: int = 0) -> list[Path]:
    """Write the pictures; their paths."""
    _, attempt, phase, training_step, group, _, _ = episode_id.rsplit("/", 6)
    pages = {
        "runs": links.address(links.RUNS),
        "run": links.address(links.RUN, run=run_id),
        "episodes": links.address(links.EPISODES, run=run_id),
        "group": links.address(
            links.GROUP,
            run=run_id,
            attempt=attempt,
            phase=phase,
            training_step=training_step,
            group=group,
        ),
        "replay": links.address(links.REPLAY, episode=episode_id, step=step),
    }
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "viewer.log"
        with running_viewer(store, log) as address, browser_page() as page:
            for name, path in pages.items():
                page.goto(f"{address}/{path}")
                settle(page)
                picture = folder / f"{name}.png"
                page.screenshot(path=picture)
                written.append(picture)
    return written


if __name__ == "__main__":
    store, run_id, episode_id, folder, *step = sys.argv[1:]
    take(store, run_id, episode_id, Path(folder), step=int(step[0]) if step else 0)
