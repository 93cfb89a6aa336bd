"""Time, for asynchronous code that schedules, expires, retries or gives up.

Its clock is the event loop: `asyncio.sleep` and `asyncio.timeout` count by it, and `now` reads it.
A test gives such code a loop of another time, in which hours pass at once
(`tests/virtual_time.py`). Code in threads has real time.

A loop's time may be of whole milliseconds, and stands still within a turn (uvloop): a duration that
is reported is `time.perf_counter`'s.
"""

import asyncio

__all__ = ["now"]


def now() -> float:
    """Seconds since an arbitrary moment, by the running event loop.

    Raises:
        RuntimeError: No event loop runs in this thread.
    """
    return asyncio.get_running_loop().time()
