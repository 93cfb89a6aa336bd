"""Awaiting the other side of a boundary: attributed, and not for ever."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from longhaul_core.errors import EpisodeError, attributed_to

__all__ = ["deadline"]


@asynccontextmanager
async def deadline(
    seconds: float, action: str, *, failure: type[EpisodeError], late: type[EpisodeError]
) -> AsyncGenerator[None]:
    """Cancel the block when its time is up.

    Args:
        seconds: Time for the block.
        action: What is being done, for the message.
        failure: What any other error of the block becomes, a `TimeoutError` of its own
            (of a socket, say) included.
        late: Raised if the time ran out.
    """
    try:
        async with asyncio.timeout(seconds):
            with attributed_to(failure, action):
                yield
    except TimeoutError as error:
        raise late(f"{action}: no answer within {seconds:g} s") from error
