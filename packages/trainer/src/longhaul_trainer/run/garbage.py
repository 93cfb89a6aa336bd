"""When the garbage collector of a busy process may look: by the clock, and never while Ray ends."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Generator

__all__ = ["collect_what_is_due", "nothing_collected", "spare_what_is_loaded"]

COLLECTION_SECONDS = 2.0
"""Between two looks at young objects."""
_NEW_OBJECTS = 10_000
"""Fewer are left to the next look."""
_TOO_MANY_OBJECTS = 1_000_000
"""At which Python collects by itself, e.g. in a forked process, which has no thread for it."""


def spare_what_is_loaded() -> None:
    """Keep the garbage collector from what this process holds now, and from its busy moments.

    With verl, vLLM and torch loaded a full collection takes hundreds of milliseconds, in which the
    process plays no episode and answers no program.

    Python collects young objects when many were made: so in the midst of 64 requests at once, and
    each time through the token ids of their prompts. From now on a thread does it by the clock,
    which knows nothing of requests; most of what these made is gone by then without it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_TOO_MANY_OBJECTS, *gc.get_threshold()[1:])
    if not any(thread.name == _COLLECTOR for thread in threading.enumerate()):
        threading.Thread(target=_collect_by_the_clock, name=_COLLECTOR, daemon=True).start()


_COLLECTOR = "garbage collector"
_COLLECTING = threading.Lock()


@contextlib.contextmanager
def nothing_collected() -> Generator[None]:
    """While the block runs, the garbage collector frees nothing.

    Ray ends a process at once, with status 1 and without a word, where a reference of its own is
    freed on one thread while another shuts it down.
    """
    with _COLLECTING:
        gc.disable()
        try:
            yield
        finally:
            gc.enable()


def _collect_by_the_clock() -> None:
    while True:
        time.sleep(COLLECTION_SECONDS)
        collect_what_is_due()


def collect_what_is_due() -> None:
    """Collect each generation as often, in relation to the younger one, as Python does."""
    young, middle, old = gc.get_count()
    _, more, most = gc.get_threshold()
    if young >= _NEW_OBJECTS:
        with _COLLECTING:
            gc.collect(2 if old >= most else 1 if middle >= more else 0)
