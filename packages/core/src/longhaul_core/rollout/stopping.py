"""An episode that nobody waits for any more."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from longhaul_core.errors import EpisodeStopped

__all__ = ["until_stopped"]

T = TypeVar("T")


async def until_stopped(playing: Coroutine[None, None, T], stop: asyncio.Event) -> T:
    """Play to the end, or until `stop` is set.

    An episode that has ended by the time it is stopped has ended.

    Raises:
        EpisodeStopped: It was stopped, and has released what it held.
    """
    episode = asyncio.create_task(playing)
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({episode, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not episode.done():
            episode.cancel()
            await asyncio.wait({episode})
        if episode.cancelled():
            raise EpisodeStopped("nobody waits for it any more")
        return episode.result()
    finally:
        stopped.cancel()
        if not episode.done():  # whoever waits for this one was cancelled
            episode.cancel()
            await asyncio.wait({episode})
