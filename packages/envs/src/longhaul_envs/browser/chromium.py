"""One Chromium for all episodes of a process that share its settings, driven by Playwright.

Playwright runs on an event loop in a thread of its own, so that an environment may be called from
any thread, from a program with an event loop of its own, and from several threads at once. A
browser starts with the first session that asks for it and ends with the last one that is closed.

When its owner dies, however it dies, Playwright's driver reads the end of its input and Chromium
the end of its pipe, and both end.
"""

import asyncio
import concurrent.futures
import os
import shutil
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from longhaul_core.errors import ConfigError, EnvironmentFailure, EnvironmentTimeout, message_of
from longhaul_envs.browser.fence import Fence

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Playwright

__all__ = ["BrowserSession", "BrowserSettings", "chromium_executable"]

Result = TypeVar("Result")
Opens = Callable[["BrowserContext"], Coroutine[Any, Any, None]]

_EXECUTABLE_VARIABLE = "LONGHAUL_CHROMIUM"
_EXECUTABLE_NAMES = (
    "chromium-headless-shell",  # opens no window for a profile: a quarter of the processor time
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
_START_SECONDS = 60.0
_END_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
"""For a profile whose opening failed. One that takes longer is left to the browser's end."""


def chromium_executable(configured: str = "") -> str:
    """The path of the Chromium to run.

    Args:
        configured: A path that somebody named; empty to look for one.

    Returns:
        What is configured, or the variable `LONGHAUL_CHROMIUM` names, or is found on the path.

    Raises:
        ConfigError: If there is none.
    """
    named = configured or os.environ.get(_EXECUTABLE_VARIABLE, "")
    if named:
        if not os.access(named, os.X_OK):
            raise ConfigError(f"no program to run at {named!r}, which was to be Chromium")
        return named
    for name in _EXECUTABLE_NAMES:
        if found := shutil.which(name):
            return found
    raise ConfigError(
        f"no Chromium found: none of {', '.join(_EXECUTABLE_NAMES)} is on the path. Install one, "
        f"e.g. by `apt-get install chromium`, or name it in {_EXECUTABLE_VARIABLE} or in the "
        "option `chromium`"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSettings:
    """What a browser is started with; sessions of equal settings share one."""

    executable: str
    fence: Fence = field(default_factory=Fence)


class BrowserSession:
    """An environment's share of a browser: one profile at a time, which nothing else sees."""

    def __init__(self, settings: BrowserSettings, *, call_seconds: float = 60.0) -> None:
        """Describe a session; the browser starts with `start` or `begin`.

        Args:
            settings: Of the browser.
            call_seconds: Longest time that a call may take, after which it fails.
        """
        self._settings = settings
        self._call_seconds = call_seconds
        self._held = _Held()
        self._give_back = weakref.finalize(self, _Held.give_back, self._held)

    @property
    def context(self) -> "BrowserContext":
        """The profile of the episode."""
        if self._held.context is None:
            raise EnvironmentFailure("the browser session is not open")
        return self._held.context

    def begin(self, opens: "Opens | None" = None, **context_options: Any) -> None:  # noqa: ANN401  Playwright's own
        """Forget the profile so far, and begin with a fresh one.

        Args:
            opens: What is done in the profile before anyone has it.
            context_options: Of Playwright's `Browser.new_context`. Downloads are refused.

        Raises:
            EnvironmentFailure: If the browser does not start.
        """
        from playwright.async_api import Error

        self.prepare(opens, **context_options)
        held = self._held
        try:
            held.take_prepared()
        except Error:  # the browser died since it was last used
            assert held.chromium is not None
            held.chromium.retired = True
            held.give_back()
            self.prepare(opens, **context_options)
            held.take_prepared()

    def start(self) -> None:
        """Start the browser, unless it runs; `begin` then waits for the profile alone.

        Raises:
            EnvironmentFailure: If the browser does not start.
        """
        if self._held.chromium is None:
            self._held.chromium = _borrow(self._settings)

    def prepare(self, opens: "Opens | None" = None, **context_options: Any) -> None:  # noqa: ANN401  Playwright's own
        """Begin to do what `begin` with the same does, which then waits for the rest of it.

        The profile so far is forgotten. Called again before `begin`, it does nothing.

        Raises:
            EnvironmentFailure: If the browser does not start.
        """
        held = self._held
        if held.prepared is not None:
            return
        self.start()
        assert held.chromium is not None
        before, held.context = held.context, None
        held.prepared = held.chromium.start(
            _fresh(held.chromium.browser, before, opens, context_options),
            seconds=self._call_seconds,
        )

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """What `coroutine` returns, which may use everything of this session's Playwright.

        Raises:
            EnvironmentTimeout: If it takes longer than a call may.
        """
        if self._held.chromium is None:
            coroutine.close()
            raise EnvironmentFailure("the browser session is not open")
        return self._held.chromium.run(coroutine, seconds=self._call_seconds)

    def close(self) -> None:
        """Forget the profile; the browser ends if nobody else uses it. Safe to call again."""
        self._held.give_back()


async def _fresh(
    browser: "Browser",
    before: "BrowserContext | None",
    opens: "Opens | None",
    options: dict[str, Any],
) -> "BrowserContext":
    """A new profile in place of `before`."""
    if before is not None:
        await before.close()
    context = await browser.new_context(accept_downloads=False, **options)
    if opens is not None:
        try:
            await opens(context)
        except BaseException:
            with suppress(Exception):  # what failed first is what is told
                async with asyncio.timeout(_CLOSE_SECONDS):  # the call's deadline may be over
                    await context.close()
            raise
    return context


class _Chromium:
    """A running browser and the thread that drives it."""

    def __init__(self, settings: BrowserSettings) -> None:
        self.settings = settings
        self.num_sessions = 0
        self.retired = False
        """Whether it begins no further profile."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="longhaul-browser", daemon=True
        )
        self._thread.start()
        self._playwright: Playwright | None = None
        try:
            self.browser = self.run(self._start(), seconds=_START_SECONDS)
        except BaseException:
            self.end()
            raise

    @property
    def alive(self) -> bool:
        """Whether the browser can be used."""
        return self.browser.is_connected() and not self.retired

    def run(self, coroutine: Coroutine[Any, Any, Result], *, seconds: float) -> Result:
        """What the coroutine returns, within a deadline."""
        return self.start(coroutine, seconds=seconds).result()

    def start(
        self, coroutine: Coroutine[Any, Any, Result], *, seconds: float
    ) -> "concurrent.futures.Future[Result]":
        """What will come of the coroutine, within a deadline."""
        return asyncio.run_coroutine_threadsafe(_within(coroutine, seconds), self._loop)

    def end(self) -> None:
        """End browser, driver and thread, and return when they are gone."""
        if threading.current_thread() is self._thread:  # a garbage collection in that thread
            threading.Thread(target=self.end, name="longhaul-browser-end").start()
            return
        try:
            self.run(self._stop(), seconds=_END_SECONDS)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _start(self) -> "Browser":
        from playwright.async_api import Error, async_playwright

        self._playwright = await async_playwright().start()
        try:
            return await self._playwright.chromium.launch(
                executable_path=self.settings.executable,
                # The sandbox of Chromium does not work for root; nobody else goes without it.
                chromium_sandbox=os.geteuid() != 0,
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
                args=[*self.settings.fence.flags(), "--disable-gpu", "--mute-audio"],
            )
        except Error as error:
            raise EnvironmentFailure(
                f"{self.settings.executable} did not start: {message_of(error)}"
            ) from error

    async def _stop(self) -> None:
        if self._playwright is not None:
            await self._playwright.stop()  # ends the driver, and with it the browser


class _Held:
    """What a session holds, apart from it, so that it can be given back when nobody has it."""

    def __init__(self) -> None:
        self.chromium: _Chromium | None = None
        self.context: BrowserContext | None = None
        self.prepared: concurrent.futures.Future[BrowserContext] | None = None
        """The profile of the next episode."""

    def take_prepared(self) -> None:
        """Wait for it, and have it."""
        prepared, self.prepared = self.prepared, None
        if prepared is not None:
            self.context = prepared.result()

    def give_back(self) -> None:
        chromium, self.chromium = self.chromium, None
        context, self.context = self.context, None
        prepared, self.prepared = self.prepared, None
        if chromium is None:
            return
        if chromium.alive:  # nobody waits for it
            chromium.start(_forget(context, prepared), seconds=_END_SECONDS)
        _give_back(chromium)


async def _forget(
    context: "BrowserContext | None",
    prepared: "concurrent.futures.Future[BrowserContext] | None",
) -> None:
    if context is not None:
        await context.close()
    if prepared is not None:
        await (await asyncio.wrap_future(prepared)).close()


_RUNNING: dict[BrowserSettings, _Chromium] = {}
_LOCK = threading.RLock()
"""Reentrant: a garbage collection may give a session back while its thread takes another."""


def _borrow(settings: BrowserSettings) -> _Chromium:
    with _LOCK:
        chromium = _RUNNING.get(settings)
        if chromium is None or not chromium.alive:
            chromium = _RUNNING[settings] = _Chromium(settings)
        chromium.num_sessions += 1
        return chromium


def _give_back(chromium: _Chromium) -> None:
    with _LOCK:
        chromium.num_sessions -= 1
        if chromium.num_sessions:
            return
        if _RUNNING.get(chromium.settings) is chromium:
            del _RUNNING[chromium.settings]
    chromium.end()


async def _within(coroutine: Coroutine[Any, Any, Result], seconds: float) -> Result:
    try:
        async with asyncio.timeout(seconds):
            return await coroutine
    except TimeoutError as error:
        raise EnvironmentTimeout(f"the browser did not answer within {seconds:g} s") from error
