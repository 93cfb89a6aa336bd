"""The tabs of an episode: what they show, and what actions do to them."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from longhaul_core.errors import EnvironmentFailure, message_of
from longhaul_envs.browser.chromium import BrowserSession
from longhaul_envs.browser.tree import ElementNumbers, ask, read_tree
from longhaul_envs.webarena.actions import Action
from longhaul_envs.webarena.tasks import WebArenaOptions

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page, Request

__all__ = ["Seen", "Tabs"]

_MAX_TABS = 8
_SCROLL = """direction => {
  const element = document.scrollingElement || document.body;
  element.scrollTop += (direction === "down" ? 1 : -1) * window.innerHeight;
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the current tab shows."""

    url: str
    tabs: str
    """A line with the titles of all tabs."""
    tree: str
    """The page as lines of its accessibility tree."""
    state: str
    """What tells two states apart: addresses and lines, without the numbers of elements."""


class Tabs:
    """An episode's tabs. Its methods belong to the browser's thread (`BrowserSession.run`)."""

    def __init__(self, session: BrowserSession, options: WebArenaOptions) -> None:
        self._session = session
        self._options = options
        self._pages: list[Page] = []
        self._current = 0
        self._numbers = ElementNumbers()
        self._protocols: dict[Page, CDPSession] = {}
        self._loading: set[Request] = set()
        """Requests for pages that are under way: what follows a click begins before it is shown."""
        self._navigated = asyncio.Event()
        """Set while there is none."""
        self._opened: list[Page] = []
        """Every page of the episode, to tell the elements of one from those of another."""

    @property
    def page(self) -> "Page":
        """The tab in front."""
        if not self._pages:
            raise EnvironmentFailure("no tab is open")
        return self._pages[self._current]

    async def open(self, urls: list[str]) -> None:
        """Begin an episode with a tab for each address, the first in front."""
        from playwright.async_api import Error

        self._pages, self._opened, self._current = [], [], 0
        self._numbers, self._protocols = ElementNumbers(), {}
        self._loading, self._navigated = set(), asyncio.Event()
        self._navigated.set()
        context = self._session.context
        context.on("request", self._begins)
        context.on("requestfinished", self._ends)
        context.on("requestfailed", self._ends)
        context.set_default_timeout(self._options.page_seconds * 1000)
        for url in urls:
            refusal = self._options.fence.refusal(url)
            if refusal is not None:
                raise EnvironmentFailure(f"the task begins with a closed page: {refusal}")
            page = await context.new_page()
            try:
                await page.goto(url, wait_until="load")
            except Error as error:
                raise EnvironmentFailure(
                    f"the site at {url[:200]!r} does not open, is it running? {message_of(error)}"
                ) from error
        await self._settle()

    async def look(self) -> Seen:
        """What is to be seen in the tab in front."""
        page = self.page
        place = self._opened.index(page)
        width, height = self._options.viewport
        lines = await read_tree(
            await self._protocol(page),
            number_of=lambda backend_id: self._numbers.number_of(place, backend_id),
            view=None if self._options.whole_page else (width, height),
        )
        titles = [await tab.title() for tab in self._pages]
        tabs = " | ".join(
            f"Tab {index}{' (current)' * (index == self._current)}: {title}"
            for index, title in enumerate(titles)
        )
        bare = [line.partition("] ")[2] for line in lines]
        addresses = [tab.url for tab in self._pages]
        return Seen(
            url=page.url,
            tabs=tabs,
            tree="\n".join(lines),
            state=repr((addresses, self._current, bare)),
        )

    async def picture(self) -> bytes:
        """The window as a PNG file."""
        return await self.page.screenshot(caret="hide")

    async def do(self, action: Action) -> str:
        """Do it, and wait for the page; returns why it cannot be done, empty if it was."""
        from playwright.async_api import Error

        num_tabs = len(self._session.context.pages)
        try:
            refusal = await self._done(action)
        except Error as error:  # such as a site that does not answer
            refusal = f"the browser could not do it: {message_of(error, limit=200).splitlines()[0]}"
        await self._settle()
        if len(self._pages) > num_tabs:  # as the authors: a new tab comes to the front
            self._current = len(self._pages) - 1
        return refusal or await self._left_the_sites()

    async def _done(self, action: Action) -> str:
        match action.verb:
            case "click" | "hover" | "type":
                return await self._on_element(action)
            case "press":
                await self.page.keyboard.press(action.text)
            case "scroll":
                await self.page.evaluate(_SCROLL, action.text)
            case "goto":
                refusal = self._options.fence.refusal(action.text)
                if refusal is not None:
                    return refusal
                await self.page.goto(action.text, wait_until="load")
            case "go_back":
                await self.page.go_back(wait_until="load")
            case "go_forward":
                await self.page.go_forward(wait_until="load")
            case _:
                return await self._on_tabs(action)
        return ""

    async def _on_element(self, action: Action) -> str:
        backend_id = self._numbers.element(self._opened.index(self.page), action.number)
        if backend_id is None:
            return f"the page has shown no element with the number {action.number}"
        point = await self._middle(backend_id)
        if point is None:
            return f"element {action.number} is not on the page any more, or not to be seen"
        if action.verb == "hover":
            await self.page.mouse.move(*point)
            return ""
        await self.page.mouse.click(*point)
        if action.verb == "type":
            await self.page.keyboard.type(action.text)
            if action.presses_enter:
                await self.page.keyboard.press("Enter")
        return ""

    async def _on_tabs(self, action: Action) -> str:
        context = self._session.context
        if action.verb == "new_tab":
            if len(self._pages) >= _MAX_TABS:
                return f"there are {_MAX_TABS} tabs already"
            await context.new_page()
        elif action.verb == "tab_focus":
            if action.number >= len(self._pages):
                return f"there is no tab {action.number}"
            self._current = action.number
            await self.page.bring_to_front()
        else:  # close_tab
            await self.page.close()
            if not context.pages:
                await context.new_page()
            self._current = len(context.pages) - 1
        return ""

    async def _middle(self, backend_id: int) -> tuple[float, float] | None:
        """The middle of an element's first line in the window, scrolled into view."""
        from playwright.async_api import Error

        protocol = await self._protocol(self.page)
        element = {"backendNodeId": backend_id}
        try:
            await ask(protocol, "DOM.scrollIntoViewIfNeeded", element)
            shape = await ask(protocol, "DOM.getContentQuads", element)
        except Error:  # it is gone, or has no box
            return None
        quads: list[list[float]] = shape["quads"]
        if not quads:
            return None
        return sum(quads[0][0::2]) / 4, sum(quads[0][1::2]) / 4

    async def _settle(self) -> None:
        """Wait until the tab in front has loaded, and know the tabs that there are now."""
        from playwright.async_api import TimeoutError as NotInTime

        pages = self._session.context.pages
        in_front = self._pages[self._current] if self._current < len(self._pages) else None
        for page in pages[_MAX_TABS:]:  # a page may open as many as it likes
            await page.close()
        self._pages = pages[:_MAX_TABS]
        self._opened.extend(page for page in self._pages if page not in self._opened)
        if in_front in self._pages:
            self._current = self._pages.index(in_front)
        self._current = min(self._current, len(self._pages) - 1)
        try:
            await self.page.wait_for_timeout(self._options.pause_seconds * 1000)
            async with asyncio.timeout(self._options.page_seconds):
                await self._navigated.wait()
            await self.page.wait_for_load_state("load")
        except (NotInTime, TimeoutError):
            pass  # it is shown as it is
        late = [page for page in self._session.context.pages if page not in self._pages]
        self._pages.extend(late[: _MAX_TABS - len(self._pages)])
        self._opened.extend(page for page in late if page in self._pages)

    def _begins(self, request: "Request") -> None:
        if request.is_navigation_request():
            self._loading.add(request)
            self._navigated.clear()

    def _ends(self, request: "Request") -> None:
        self._loading.discard(request)
        if not self._loading:
            self._navigated.set()

    async def _left_the_sites(self) -> str:
        """Go back from a page that is none of the sites', and say so."""
        url = self.page.url
        if url == "about:blank" or self._options.fence.refusal(url) is None:
            return ""
        await self.page.goto("about:blank")
        return f"{url[:200]} is not among the sites of this environment"

    async def _protocol(self, page: "Page") -> "CDPSession":
        if page not in self._protocols:
            self._protocols[page] = await self._session.context.new_cdp_session(page)
        return self._protocols[page]
