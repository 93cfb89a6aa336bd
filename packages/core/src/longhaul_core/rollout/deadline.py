"""Awaiting the other side of a boundary: attributed, and not for ever."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

from longhaul_core.errors import EpisodeError, attributed_to

__all__ = ["awaited", "deadline"]


@contextmanager
def awaited(action: str, *, failure: type[EpisodeError]) -> Generator[None]:
    """Turn what the block raises into `failure`, including a cancellation that nobody requested.

    Where the other side awaits something of its own that is cancelled, its `CancelledError`
    comes out here. Let through, it would end whatever awaits the episode; a cancellation of this
    task passes.

    Args:
        action: What is being done, for the message.
        failure: What an error of the block becomes.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError(f"{action} is awaited outside of a task")
    num_asked_before = task.cancelling()
    try:
        with attributed_to(failure, action):
            yield
    except asyncio.CancelledError as error:
        if task.cancelling() > num_asked_before:
            raise
        raise failure(f"{action}: CancelledError: it cancelled itself") from error


@asynccontextmanager
async def deadline(
    seconds: float, action: str, *, failure: type[EpisodeError], late: type[EpisodeError]
) -> AsyncGenerator[None]:
    """Cancel the block when its time is up.

    Args:
        seconds: Time for the block.
        action: What is being done, for the message.
        failure: What any other error of the block becomes, a `TimeoutError` (of a socket, say)
            or a `CancelledError` of its own included.
        late: Raised if the time ran out.
    """
    try:
        async with asyncio.timeout(seconds):
            with awaited(action, failure=failure):
                yield
    except TimeoutError as error:
        raise late(f"{action}: no answer within {seconds:g} s") from error
