"""What the viewer does to a store beside showing it: long work, one after another, in one thread.

A page is drawn anew many times while an archive of gigabytes is written, and its reader may leave:
the work goes on, and every page of the viewer sees how far it is.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import NamedTuple

import streamlit as st

from longhaul_core.errors import LonghaulError

__all__ = ["Piece", "begin", "close", "ended", "pieces"]

MOST_PIECES = 12
"""Listed; more only while more wait."""
_lock = Lock()


class Piece(NamedTuple):
    """One piece of work."""

    title: str
    asked_at: float
    """Unix time."""
    future: Future[str]
    writes: str | None
    """Name of the file that it makes."""

    @property
    def state(self) -> str:
        """`waits`, `running`, `done`, `failed` or `cancelled`."""
        if self.future.cancelled():
            return "cancelled"
        if not self.future.done():
            return "running" if self.future.running() else "waits"
        return "done" if self.future.exception() is None else "failed"

    @property
    def said(self) -> str:
        """What came of it, or why it failed; empty until then."""
        if not self.future.done() or self.future.cancelled():
            return ""
        match self.future.exception():
            case None:
                return self.future.result()
            case LonghaulError() | LookupError() | OSError() as error:
                return str(error.args[0]) if isinstance(error, KeyError) else str(error)
            case error:
                return f"{type(error).__name__}: {error}"


def begin(title: str, work: Callable[[], str], *, writes: str | None = None) -> None:
    """Do `work` as soon as what was asked for before is done.

    Args:
        title: What it is, for people.
        work: Returns a sentence on what came of it.
        writes: Name of the file that it makes.
    """
    with _lock:
        pool, listed = _state()
        listed.appendleft(Piece(title, time.time(), pool.submit(work), writes))
        old = [each for each in listed if each.future.done()]
        for each in old[::-1][: max(0, len(listed) - MOST_PIECES)]:
            listed.remove(each)


def pieces() -> Sequence[Piece]:
    """What was asked for since the viewer started, the newest first."""
    with _lock:
        return list(_state()[1])


def ended() -> tuple[float, ...]:
    """When each piece that has ended was asked for: another tuple once something has ended."""
    return tuple(each.asked_at for each in pieces() if each.future.done())


def close() -> None:
    """Do nothing more of what waits; what is being done is done to its end."""
    with _lock:
        pool, _ = _state()
        pool.shutdown(wait=False, cancel_futures=True)
        _state.clear()


@st.cache_resource(show_spinner=False)
def _state() -> tuple[ThreadPoolExecutor, deque[Piece]]:
    pool = ThreadPoolExecutor(1, thread_name_prefix="store-work")
    return pool, deque()
