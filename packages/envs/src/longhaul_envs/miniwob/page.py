"""A page of MiniWoB++ as the `miniwob` package has it, in a browser with a clock of its own.

Nothing in the page happens by itself: its clock stands still but for the seconds that each step
lets pass, and its random numbers come from the seed of the task. So the same actions give the same
episode, with timers and animations, however busy the machine is.
"""

import importlib.util
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from longhaul_core.errors import EnvironmentFailure
from longhaul_envs.extras import required
from longhaul_envs.miniwob.actions import Action, Place

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

__all__ = ["HEIGHT", "WIDTH", "WINDOW", "Look", "MiniWoBPage", "html_folder"]

WIDTH, HEIGHT = 160, 210
"""Of the part of a page that belongs to the task, in pixels."""

WINDOW = {"width": 332, "height": 214}
"""As the package opens it: the task, and beside it what it shows to people."""
_CLOCK_START = datetime(2016, 12, 1, 12, tzinfo=UTC)
_READY_SECONDS = 10
_FRAME_MS = 16
_NO_LIMIT_MS = 1_000_000_000

# what mouse and keyboard of a headless browser cannot do alike on every machine
_SELECT_FIELD = """number => {
  const field = longhaul.element(number);
  if (field?.type === "date" || field?.type === "time") { field.blur(); field.focus(); }
  else field?.select?.();
}"""
_SELECT_OPTION = """([number, text]) => {
  const list = longhaul.element(number);
  const option = [...(list?.options ?? [])].find((one) => one.text.trim() === text.trim());
  if (!option || option.disabled) return false;
  if (list.multiple) option.selected = true; else list.value = option.value;
  list.dispatchEvent(new Event("input", {bubbles: true}));
  list.dispatchEvent(new Event("change", {bubbles: true}));
  return true;
}"""
_SCROLL = """([number, direction]) => {
  const element = number === null ? document.scrollingElement : longhaul.element(number);
  element.scrollTop += (direction === "down" ? 0.8 : -0.8) * element.clientHeight;
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a page shows and how the task stands."""

    utterance: str
    """What is to be done."""
    tree: str
    """A line for each element that is seen, with its number."""
    state: str
    """The document, what is typed, ticked, selected, scrolled and focused, as text."""
    done: bool
    raw_reward: float
    """The page's own, in [-1, 1]; 0 until it is done."""
    timed_reward: float
    """The same, less where time passed, if it is positive."""


@cache
def html_folder() -> Path:
    """The folder of the installed package's pages."""
    required("miniwob", "web")
    found = importlib.util.find_spec("miniwob")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "html" / "miniwob"


class MiniWoBPage:
    """One episode's page. Its methods belong to the browser's thread (`BrowserSession.run`)."""

    def __init__(self) -> None:
        self._page: Page | None = None
        self._url = ""
        self._mouse: tuple[float, float] | None = None
        """Where it is, in the window; None until it was moved."""

    async def open(self, context: "BrowserContext") -> None:
        """Open an empty page, whose clock stands still, in the profile of an episode."""
        self._mouse = None
        page = self._page = await context.new_page()
        await page.clock.install(time=_CLOCK_START - timedelta(hours=1))
        await page.clock.pause_at(_CLOCK_START)  # later: it runs until here
        await page.add_init_script(_script())

    async def begin(self, task: str, *, seed: int, time_limit: bool) -> Look:
        """Begin an episode of `task`, e.g. `click-button`."""
        self._url = (html_folder() / f"{task}.html").as_uri()
        await self.page.goto(self._url)
        # Real time passed before the clock was stopped. Frames come every 16 ms of that time, so
        # it is brought to a frame, and the clock to its start.
        passed = cast("float", await self.page.evaluate("performance.now()"))
        await self.page.clock.run_for(_FRAME_MS - int(passed) % _FRAME_MS)
        await self.page.clock.set_system_time(_CLOCK_START)
        return await self.begin_again(seed=seed, time_limit=time_limit)

    async def begin_again(self, *, seed: int, time_limit: bool) -> Look:
        """Begin an episode in the page as it is, which may remember earlier ones."""
        page = self.page
        # as `miniwob` begins an episode: seed, mode, problem
        await page.evaluate(
            "([seed, limit]) => { core.endEpisode(0); longhaul.renumber(); Math.seedrandom(seed);"
            " core.setDataMode('train'); if (limit) core.EPISODE_MAX_TIME = limit;"
            " core.startEpisodeReal(); }",
            [str(seed), None if time_limit else _NO_LIMIT_MS],
        )
        for _ in range(_READY_SECONDS):
            if await page.evaluate("WOB_TASK_READY"):
                return await self.look()
            await page.clock.run_for(1000)
        raise EnvironmentFailure(f"{self._url} is not ready after {_READY_SECONDS} s")

    async def pass_time(self, seconds: float) -> None:
        """Let the page's clock run, and all that is due by it happen."""
        await self._notice_mouse()
        await self.page.clock.run_for(round(seconds * 1000))
        await self._notice_mouse()

    async def _notice_mouse(self) -> None:
        """Let the page know what lies under the mouse now, which Chromium does at its leisure."""
        if self._mouse is not None:
            await self.page.mouse.move(*self._mouse)

    async def look(self) -> Look:
        """What is to be seen now."""
        if self.page.url.partition("#")[0] != self._url:
            raise EnvironmentFailure(f"the page left its task for {self.page.url[:200]!r}")
        seen = cast(
            "dict[str, object]",
            await self.page.evaluate(
                "() => ({utterance: core.getUtterance(), tree: longhaul.look(),"
                " state: longhaul.state(), done: WOB_DONE_GLOBAL,"
                " raw: WOB_RAW_REWARD_GLOBAL, timed: WOB_REWARD_GLOBAL})"
            ),
        )
        utterance = seen["utterance"]
        if isinstance(utterance, dict):  # a few pages give their fields beside the text
            utterance = cast("dict[str, object]", utterance)["utterance"]
        return Look(
            utterance=str(utterance),
            tree=str(seen["tree"]),
            state=str(seen["state"]),
            done=bool(seen["done"]),
            raw_reward=float(cast("float", seen["raw"])),
            timed_reward=float(cast("float", seen["timed"])),
        )

    async def do(self, action: Action) -> str:
        """Do it with mouse and keyboard; returns why it cannot be done, empty if it was."""
        start = await self._point(action.place)
        end = await self._point(action.to)
        if isinstance(start, str) or isinstance(end, str):
            return f"{start if isinstance(start, str) else end}"
        mouse = self.page.mouse
        if start is None:
            return await self._without_a_place(action)
        self._mouse = start
        match action.verb:
            case "click" | "double_click" | "triple_click":
                count = ("click", "double_click", "triple_click").index(action.verb) + 1
                await mouse.click(*start, click_count=count)
            case "hover":
                await mouse.move(*start)
            case "type":
                await mouse.click(*start)
                await self.page.evaluate(_SELECT_FIELD, action.place)
                await self.page.keyboard.type(action.text)
            case "select":
                if not await self.page.evaluate(_SELECT_OPTION, [action.place, action.text]):
                    return "that element has no such option"
            case "scroll":
                await self.page.evaluate(_SCROLL, [action.place, action.text])
            case _:  # drag
                across, down = action.by or (0, 0)
                self._mouse = end or (start[0] + across, start[1] + down)
                await mouse.move(*start)
                await mouse.down()
                await mouse.move(*self._mouse, steps=8)
                await mouse.up()
        return ""

    async def _without_a_place(self, action: Action) -> str:
        if action.verb == "press":
            await self.page.keyboard.press(action.text)
        elif action.verb == "scroll":
            await self.page.evaluate(_SCROLL, [None, action.text])
        return ""  # `wait` is the passing of time

    async def _point(self, place: Place | None) -> tuple[float, float] | str | None:
        """A point of the window, scrolled into view, or why there is none."""
        if isinstance(place, tuple):
            inside = place[0] < WINDOW["width"] and place[1] < WINDOW["height"]
            return place if inside else f"the page has no point {place[0]},{place[1]}"
        if place is None:
            return None
        middle = cast("list[float] | None", await self.page.evaluate(f"longhaul.middle({place})"))
        return f"no element has the number {place}" if middle is None else (middle[0], middle[1])

    async def picture(self) -> bytes:
        """The task's part of the page as a PNG file, `HEIGHT` by `WIDTH` pixels."""
        return await self.page.screenshot(
            clip={"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT}, caret="hide"
        )

    @property
    def page(self) -> "Page":
        """Playwright's."""
        if self._page is None:
            raise EnvironmentFailure("no page is open")
        return self._page


@cache
def _script() -> str:
    return (Path(__file__).parent / "page.js").read_text(encoding="utf-8")
