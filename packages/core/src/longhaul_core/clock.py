"""Time, for asynchronous code that schedules, expires, retries or gives up.

Its clock is the event loop: `asyncio.sleep` and `asyncio.timeout` count by it, and `now` reads it.
A test gives such code a loop of another time, in which hours pass at once
(`tests/virtual_time.py`). Code in threads has real time.
"""

import asyncio

__all__ = ["now"]


def now() -> float:
    """Seconds since an arbitrary moment, by the running event loop.

    Raises:
        RuntimeError: No event loop runs in this thread.
    """
    return asyncio.get_running_loop().time()
