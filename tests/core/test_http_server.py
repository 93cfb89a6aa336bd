"""The one server: what it does with signals, how it stops, and what a client gets meanwhile."""

import asyncio
import os
import signal
import threading
import urllib.request
from collections.abc import Callable

import pytest
from starlette.types import Receive, Scope, Send

from longhaul_core.http_server import HttpServer
from longhaul_core.serving import address_of, bound_socket


async def greeting(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def server_of(on_signal: Callable[[], None] | None = None) -> tuple[HttpServer, str]:
    """A server on a free port, and its address."""
    listener = bound_socket("127.0.0.1", 0)
    server = HttpServer(
        greeting,
        listener,
        header_seconds=30,
        stop_seconds=0,
        on_signal=on_signal,
        lifespan="off",
    )
    return server, address_of(listener)


async def answered(address: str) -> None:
    """Return once the server answers; a client may connect before it does."""
    with await asyncio.to_thread(urllib.request.urlopen, address, timeout=60) as reply:
        assert reply.read() == b"hello"


def test_it_leaves_signals_to_its_owner_and_stops_when_it_is_told() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def owner() -> None:
        server, address = server_of()
        serving = server.start()
        await answered(address)
        assert signal.getsignal(signal.SIGTERM) == before
        await server.stop()
        assert serving.done()
        with pytest.raises(OSError, match="refused"):
            await answered(address)

    asyncio.run(owner())


def test_it_tells_of_a_signal_which_it_does_not_raise_again_and_stops_at_a_second_one() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def owner() -> None:
        told = asyncio.Event()
        server, address = server_of(told.set)
        serving = server.start()
        await answered(address)
        os.kill(os.getpid(), signal.SIGTERM)
        await told.wait()
        await answered(address)  # its owner decides when it stops
        assert not serving.done()
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
        assert signal.getsignal(signal.SIGTERM) == before

    asyncio.run(owner())


def test_one_that_has_a_loop_of_its_own_ends_at_a_signal_and_raises_it_again() -> None:
    server, address = server_of()
    raised: list[int] = []

    def end_it() -> None:
        with urllib.request.urlopen(address, timeout=60) as reply:
            assert reply.read() == b"hello"
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, lambda number, _frame: raised.append(number))
    client = threading.Thread(target=end_it)
    client.start()
    try:
        server.run()
    finally:
        signal.signal(signal.SIGTERM, before)
        client.join()
    assert raised == [signal.SIGTERM]
