"""Writes `contents.txt`: what each seed of each page begins with, as a hash. Run as a program.

Takes some minutes of a browser. Hashes have 8 digits: two contents of a page that happen to share
one count as the same content, which leaves a task out and puts none into two splits.
"""

import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path

from longhaul_envs.browser.chromium import BrowserSession, BrowserSettings, chromium_executable
from longhaul_envs.miniwob.page import WINDOW, Look, MiniWoBPage, html_folder
from longhaul_envs.miniwob.tasks import EXCLUDED
from longhaul_envs.task_lists import content_hash

__all__ = ["NUM_SEEDS", "content_of", "names_of_pages"]

NUM_SEEDS = 32


def content_of(look: Look) -> str:
    """The hash of what an episode begins with: 8 hexadecimal digits."""
    return content_hash(f"{look.utterance}\n{look.tree}")[:8]


def names_of_pages() -> list[str]:
    """Every page that is played."""
    return sorted({path.stem for path in html_folder().glob("*.html")} - EXCLUDED.keys())


def write(path: Path, names: Sequence[str]) -> None:
    """Play the start of every seed of `names` and write the file."""
    session = BrowserSession(BrowserSettings(executable=chromium_executable()))
    page = MiniWoBPage()
    lines = [f"miniwob {importlib.metadata.version('miniwob')}"]
    for name in names:
        session.begin(page.open, viewport=WINDOW)
        hashes = session.run(_hashes(page, name))
        lines.append(" ".join([name, *hashes]))
        sys.stderr.write(f"{name}: {len(set(hashes))} contents\n")
    session.close()
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


async def _hashes(page: MiniWoBPage, name: str) -> list[str]:
    """Of each seed. A page that forgets its last episode is loaded twice, others for each seed."""
    hashes = [content_of(await page.begin(name, seed=0, time_limit=False))]
    for seed in range(1, NUM_SEEDS):
        hashes.append(content_of(await page.begin_again(seed=seed, time_limit=False)))
    last = content_of(await page.begin(name, seed=NUM_SEEDS - 1, time_limit=False))
    if last == hashes[-1]:
        return hashes
    return [
        content_of(await page.begin(name, seed=seed, time_limit=False)) for seed in range(NUM_SEEDS)
    ]


if __name__ == "__main__":
    write(Path(__file__).parent / "contents.txt", names_of_pages())
