"""The life of a browser: shared, apart in what it remembers, and gone with who used it."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from longhaul_core.errors import ConfigError, EnvironmentFailure, EnvironmentTimeout
from longhaul_envs.browser import chromium
from longhaul_envs.browser.chromium import BrowserSession, BrowserSettings, chromium_executable
from longhaul_envs.browser.fence import Fence, place_of
from web_sites import Site, datagram_canary, running_site

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

pytestmark = pytest.mark.slow

_GONE_SECONDS = 60


def runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def descendants() -> list[psutil.Process]:
    """The processes below this one that run."""
    return [one for one in psutil.Process().children(recursive=True) if runs(one)]


def browsers(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those of the processes that are a browser, and not a part of one."""
    lines: list[tuple[psutil.Process, list[str]]] = []
    for one in processes:
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            lines.append((one, one.cmdline()))
    return [
        one
        for one, line in lines
        if "--remote-debugging-pipe" in line
        and Path(line[0]).name != "sh"  # the script that waits for it
        and not any(word.startswith("--type=") for word in line)
    ]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _GONE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def still_there(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that run after some time."""
    _, alive = psutil.wait_procs(processes, timeout=_GONE_SECONDS)
    return [one for one in alive if runs(one)]


@pytest.fixture(scope="module")
def sites() -> Iterator[tuple[Site, Site]]:
    """One that the browser may reach, and one that it may not."""
    with running_site() as closed, running_site(closed.address) as site:
        yield site, closed


@pytest.fixture(scope="module")
def settings(installed_chromium: str, sites: tuple[Site, Site]) -> BrowserSettings:
    fence = Fence((place_of(sites[0].address),))
    return BrowserSettings(executable=installed_chromium, fence=fence)


@pytest.fixture(scope="module")
def kept(settings: BrowserSettings) -> Iterator[BrowserSession]:
    """A session that keeps the browser running from test to test."""
    session = BrowserSession(settings)
    session.begin()
    yield session
    session.close()


async def cookies(session: BrowserSession, url: str, *, add: bool) -> str:
    page = await session.context.new_page()
    await page.goto(url)
    if add:
        await page.evaluate("document.cookie = 'secret=1'; localStorage.secret = 1")
    return str(await page.evaluate("document.cookie + (localStorage.secret ?? '')"))


def test_sessions_share_a_browser_and_nothing_that_it_remembers(
    kept: BrowserSession, settings: BrowserSettings, sites: tuple[Site, Site]
) -> None:
    other = BrowserSession(settings)
    other.begin()
    try:
        assert kept.run(cookies(kept, sites[0].address, add=True)) == "secret=11"
        assert other.run(cookies(other, sites[0].address, add=False)) == ""
        kept.begin()
        assert kept.run(cookies(kept, sites[0].address, add=False)) == ""
        assert len(browsers(descendants())) == 1
    finally:
        other.close()


def test_threads_use_one_browser_at_once(
    kept: BrowserSession, settings: BrowserSettings, sites: tuple[Site, Site]
) -> None:
    """Each with a session of its own, as environments in threads have."""
    seen: list[str] = []

    def play() -> None:
        session = BrowserSession(settings)
        session.begin()
        seen.append(session.run(cookies(session, sites[0].address, add=True)))
        session.close()

    threads = [threading.Thread(target=play) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == ["secret=11"] * 3


_REACH = """async ([closed, closedPort, datagrams]) => {
  const reached = [];
  const ways = ['127.0.0.1', 'localhost', '[::1]', '0.0.0.0', '2130706433', '127.1'];
  for (const host of ways) {
    const url = `http://${host}:${closedPort}/reached`;
    await fetch(url, {mode: 'no-cors'}).then(() => reached.push(url), () => {});
  }
  await fetch('/away', {mode: 'no-cors'}).then(() => reached.push('redirect'), () => {});
  new Image().src = `${closed}/reached.png`;
  const frame = document.createElement('iframe');
  frame.src = `${closed}/reached`;
  document.body.append(frame);
  new WebSocket(`ws://127.0.0.1:${closedPort}/reached`).onerror = () => {};
  const worker = new Worker(URL.createObjectURL(new Blob(
    [`fetch('${closed}/reached', {mode: 'no-cors'}).finally(() => postMessage(1))`])));
  await new Promise((done) => { worker.onmessage = done; worker.onerror = done; });
  const call = new RTCPeerConnection({iceServers: [
    {urls: `stun:127.0.0.1:${datagrams}`},
    {urls: `turn:127.0.0.1:${closedPort}?transport=tcp`, username: 'a', credential: 'b'}]});
  call.createDataChannel('x');
  await call.setLocalDescription(await call.createOffer());
  await new Promise((done) => {
    call.onicegatheringstatechange = () => call.iceGatheringState === 'complete' && done();
    setTimeout(done, 5000);
  });
  return reached;
}"""


def test_a_page_reaches_its_site_and_nothing_else(
    kept: BrowserSession, sites: tuple[Site, Site]
) -> None:
    """By name or address, request, redirect, frame, socket, worker or datagram."""
    site, closed = sites

    async def reach(datagrams: int) -> list[str]:
        page = await kept.context.new_page()
        await page.goto(site.address)
        return await page.evaluate(_REACH, [closed.address, closed.port, datagrams])

    with datagram_canary() as canary:
        reached = kept.run(reach(canary.getsockname()[1]))
        with pytest.raises(BlockingIOError):
            canary.recv(1)
    assert reached == []
    assert closed.requests == []
    assert "GET /away" in site.requests


def test_a_prepared_profile_is_the_next_one_or_is_forgotten(
    kept: BrowserSession, settings: BrowserSettings
) -> None:
    opened: list[object] = []

    async def open_page(context: "BrowserContext") -> None:
        opened.append(await context.new_page())

    browser = kept.context.browser
    assert browser is not None
    before = len(browser.contexts)
    session = BrowserSession(settings)
    session.begin(open_page)
    first = session.context
    for _ in range(2):
        session.prepare(open_page)
    session.begin(open_page)
    assert session.context is not first
    assert session.context.pages == opened[1:]
    assert len(opened) == 2
    session.prepare(open_page)
    wait_until(lambda: len(opened) == 3)
    assert len(browser.contexts) == before + 1
    session.close()
    wait_until(lambda: len(browser.contexts) == before)


def test_a_page_that_never_answers_costs_the_call_and_not_the_browser(
    kept: BrowserSession, settings: BrowserSettings
) -> None:
    session = BrowserSession(settings, call_seconds=5)
    session.begin()

    async def hang() -> None:
        page = await session.context.new_page()
        await page.evaluate("for (;;) {}")

    with pytest.raises(EnvironmentTimeout, match="did not answer within 5 s"):
        session.run(hang())
    session.close()
    kept.begin()


def test_a_profile_that_neither_opens_nor_closes_is_given_up(
    settings: BrowserSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chromium, "_CLOSE_SECONDS", 1.0)
    session = BrowserSession(settings, call_seconds=5)
    session.begin()

    async def never() -> None:
        await asyncio.Event().wait()

    async def opens(context: "BrowserContext") -> None:
        monkeypatch.setattr(context, "close", never)
        await never()

    session.prepare(opens)
    prepared = vars(session)["_held"].prepared
    with pytest.raises(EnvironmentTimeout, match="did not answer within 5 s"):
        prepared.result(timeout=60)
    session.close()


def test_a_browser_that_died_is_replaced(settings: BrowserSettings) -> None:
    other = BrowserSettings(executable=settings.executable)
    session = BrowserSession(other)
    before = set(descendants())
    session.begin()
    started = [one for one in descendants() if one not in before]
    killed = browsers(started)
    assert len(killed) == 1
    killed[0].kill()
    assert still_there(killed) == []
    session.begin()
    session.close()
    assert still_there(started) == []


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Of temporary files: Chromium's sockets lie in it, whose paths have 107 characters at most."""
    with tempfile.TemporaryDirectory(prefix="longhaul-") as folder:
        yield Path(folder)


@pytest.mark.usefixtures("installed_chromium")
def test_closing_the_last_session_frees_processes_threads_and_files(short_folder: Path) -> None:
    program = (
        "import os, psutil, threading\n"
        "from longhaul_envs.browser.chromium import *\n"
        "def held():\n"
        "    me = psutil.Process()\n"
        "    alive = [c for c in me.children(recursive=True) if runs(c)]\n"
        "    return len(alive), threading.active_count(), me.num_fds()\n"
        "def runs(process):\n"
        "    try: return process.status() != 'zombie'\n"
        "    except psutil.NoSuchProcess: return False\n"
        "def use():\n"
        "    sessions = [BrowserSession(BrowserSettings(executable=chromium_executable()))"
        " for _ in range(2)]\n"
        "    for session in sessions: session.begin()\n"
        "    assert held()[0] > 3\n"
        "    sessions[0].prepare()\n"  # for an episode that never comes
        "    return sessions\n"
        "for session in use(): session.close()\n"
        "before = held()\n"
        "for session in use(): session.close()\n"
        "assert held() == before, (held(), before)\n"
        "assert before[:2] == (0, 1), before\n"
        "sessions = use()\n"
        "del session, sessions\n"  # nobody closes them
        "import gc; gc.collect()\n"
        "assert held() == before, (held(), before)\n"
        "assert not os.listdir(os.environ['TMPDIR']), os.listdir(os.environ['TMPDIR'])\n"
    )
    subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(short_folder)},
        check=True,
        timeout=300,
    )


@pytest.mark.usefixtures("installed_chromium")
def test_nothing_is_left_of_an_owner_that_was_killed(short_folder: Path) -> None:
    program = (
        "import sys, threading\n"
        "from longhaul_envs.browser.chromium import *\n"
        "session = BrowserSession(BrowserSettings(executable=chromium_executable()))\n"
        "session.begin()\n"
        "session.run(session.context.new_page())\n"
        "print('ready', flush=True)\n"
        "threading.Event().wait()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(short_folder)},
    )
    assert owner.stdout is not None
    with owner.stdout:
        assert owner.stdout.readline() == b"ready\n"
        started = psutil.Process(owner.pid).children(recursive=True)
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
    assert len(started) > 3
    assert still_there(started) == []
    assert list(short_folder.iterdir()) == []


def test_a_missing_browser_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no program to run at '/no/chromium'"):
        chromium_executable("/no/chromium")
    monkeypatch.setenv("LONGHAUL_CHROMIUM", sys.executable)
    assert chromium_executable() == sys.executable
    session = BrowserSession(BrowserSettings(executable=chromium_executable()))
    with pytest.raises(EnvironmentFailure, match=f"{sys.executable} did not start"):
        session.begin()
    monkeypatch.delenv("LONGHAUL_CHROMIUM")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="apt-get install chromium"):
        chromium_executable()
    for name in ("chromium", "chromium-headless-shell"):
        (tmp_path / name).symlink_to(sys.executable)
        assert chromium_executable() == str(tmp_path / name)
    gc.collect()
