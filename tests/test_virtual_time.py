"""Hours pass at once, in order, and not while a thread works."""

import asyncio
import time

import pytest

from longhaul_core.clock import now
from virtual_time import in_virtual_time


@in_virtual_time
async def test_what_is_due_first_happens_first_and_time_is_what_was_slept() -> None:
    began, real, woken = now(), time.monotonic(), list[float]()

    async def sleeper(seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append(now() - began)

    await asyncio.gather(*map(sleeper, (7200, 0.5, 3600)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await asyncio.Event().wait()

    assert woken == pytest.approx([0.5, 3600, 7200])
    assert now() - began == pytest.approx(7260)
    assert time.monotonic() - real < 60


@in_virtual_time
async def test_time_stands_still_while_a_thread_works() -> None:
    async with asyncio.timeout(0.001):
        assert await asyncio.to_thread(lambda: time.sleep(0.05) or "done") == "done"


def test_code_that_never_lets_time_pass_is_a_failure() -> None:
    @in_virtual_time
    async def spins() -> None:
        while True:  # noqa: ASYNC110  the fault
            await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="on and on at one moment"):
        spins()
