"""How fast the replay draws: an episode of 50 steps whose prompts grow to 15,000 tokens.

    PYTHONPATH=tests uv run python benchmarks/replay.py [--presses 40]

A viewer over a generated store, looked at by a headless Chromium that has the application's files:
the page until a step is drawn and keys are answered, a key until its step is drawn, presses 60 ms
apart that arrive, and the engine's view of the longest prompt, fetched and from memory.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from playwright.sync_api import Page

from apps.browser import VIEW, browser_page, running_viewer
from apps.long_episode import EPISODE_ID, NUM_STEPS, PROMPT_TOKENS, write_long_store
from longhaul_viewer import links

GOALS = {"page": 1500, "key": 50, "lost presses": 0, "tokens": 200, "tokens again": 200}
"""Milliseconds, and presses."""
WHAT = {
    "page": "page until a step is drawn and keys are answered, ms",
    "key": "key until its step is drawn, ms",
    "lost presses": "lost of 20 presses 60 ms apart",
    "tokens": "engine's view of the longest prompt, first time, ms",
    "tokens again": "the same from memory, ms",
}

FIND_REPLAY = """
  const replay = document.querySelector('.replay') ?? [...document.querySelectorAll('*')]
    .map(element => element.shadowRoot?.querySelector('.replay')).find(Boolean)
  const painted = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)))
"""
KEY_TO_DRAWN = f"""async key => {{
  {FIND_REPLAY}
  const begin = performance.now()
  document.dispatchEvent(new KeyboardEvent('keydown', {{ key, bubbles: true }}))
  replay.getBoundingClientRect()
  await painted()
  return performance.now() - begin
}}"""
"""From the event until the browser has laid out and painted the frame that follows it."""
CLICK_TO_TOKENS = f"""async call => {{
  {FIND_REPLAY}
  delete replay.dataset.tokens
  const buttons = [...replay.querySelectorAll('.choice button')]
  const begin = performance.now()
  buttons.find(button => button.textContent === 'tokens').click()
  while (replay.dataset.tokens !== call) await painted()
  await painted()
  return performance.now() - begin
}}"""
"""From the click until the tokens are there, laid out and painted."""


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--presses", type=int, default=40, help="keys that are timed (40)")
    presses = parser.parse_args().presses
    with tempfile.TemporaryDirectory() as scratch:
        store = str(Path(scratch) / "store.db")
        write_long_store(store)
        with (
            running_viewer(store, Path(scratch) / "log") as viewer,
            browser_page() as page,
        ):
            page.set_viewport_size({"width": 1280, "height": VIEW["height"]})
            measured = measure(page, viewer, presses=presses)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    print(
        f"\n| {NUM_STEPS} steps, prompts up to {PROMPT_TOKENS:,} tokens | median | worst | goal |"
    )
    print("|---|---:|---:|---:|")
    for what, values in measured.items():
        middle, worst = statistics.median(values), max(values)
        print(f"| {WHAT[what]} | {middle:,.0f} | {worst:,.0f} | {GOALS[what]:,} |")


def measure(page: Page, viewer: str, *, presses: int) -> dict[str, list[float]]:
    """Milliseconds of each kind; of lost presses, how many."""

    def address(step: int, **query: str) -> str:
        return f"{viewer}/{links.address(links.REPLAY, episode=EPISODE_ID, step=step, **query)}"

    def drawn(step: int) -> None:
        page.wait_for_selector(f'.replay[data-drawn="{EPISODE_ID}#{step}"]', timeout=60_000)

    def took(work: Callable[[], None]) -> float:
        begin = perf_counter()
        work()
        return 1000 * (perf_counter() - begin)

    def load(step: int) -> None:
        page.goto(address(step))
        drawn(step)

    load(0)  # the application's files are in the browser from here on
    found = {"page": [took(lambda step=step: load(step)) for step in (25, 10, 49)]}
    load(0)
    page.wait_for_timeout(3000)  # all steps are there
    keys = [
        "ArrowRight" if press % NUM_STEPS < NUM_STEPS - 1 else "Home" for press in range(presses)
    ]
    found["key"] = [page.evaluate(KEY_TO_DRAWN, key) for key in keys]
    page.keyboard.press("Home")
    for _ in range(20):
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(60)
    page.wait_for_timeout(300)
    found["lost presses"] = [20 - int(page.locator(".replay").get_attribute("data-step") or 0)]
    call = f"{EPISODE_ID}#49/0"
    found |= {"tokens": [], "tokens again": []}
    for _ in range(3):
        load(49)
        page.wait_for_timeout(3000)
        found["tokens"].append(page.evaluate(CLICK_TO_TOKENS, call))
        page.locator(".choice button", has_text="messages").click()
        found["tokens again"].append(page.evaluate(CLICK_TO_TOKENS, call))
    return found


if __name__ == "__main__":
    main()
