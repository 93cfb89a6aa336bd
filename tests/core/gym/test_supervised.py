"""Tests for `longhaul_core.gym.supervised`, with programs that play no environment."""

import asyncio
import errno
import resource
import socket
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from longhaul_core.errors import EnvironmentFailure
from longhaul_core.gym.supervised import Channel, ForkServer, WorkerProcess, framed


@asynccontextmanager
async def worker_of(program: str, argument: str) -> AsyncGenerator[WorkerProcess]:
    server = await ForkServer.start(f"worker_programs:{program}", argument)
    try:
        yield await server.spawn()
    finally:
        await server.stop()


def test_any_bytes_pass_unharmed_and_requests_are_answered_in_their_order() -> None:
    every_byte = bytes(range(256)) * 10_000

    async def main() -> None:
        async with worker_of("recorder", "hello 🧭") as worker:
            assert (await worker.greeting()).decode() == "hello 🧭"
            requests = (every_byte, b"1", b"2", b"3")
            answers = await asyncio.gather(*(worker.ask(each) for each in requests))
            assert answers == [every_byte + rest for rest in (b"", b"1", b"12", b"123")]

    asyncio.run(main())


def test_a_request_that_is_cancelled_in_the_queue_is_never_sent() -> None:
    async def main() -> None:
        async with worker_of("recorder", "") as worker:
            tasks = [asyncio.create_task(worker.ask(each)) for each in (b"1", b"2", b"3")]
            await asyncio.sleep(0)
            tasks[1].cancel()
            await asyncio.wait(tasks)
            assert tasks[1].cancelled()
            assert tasks[2].result() == b"13"

    asyncio.run(main())


def test_a_killed_worker_leaves_no_temporary_file() -> None:
    made: list[Path] = []

    async def main() -> None:
        async with worker_of("writing", "profile-") as worker:
            made.append(Path((await worker.greeting()).decode()))
            worker.kill()

    asyncio.run(main())
    folder = made[0].parent
    assert folder.parent == Path(tempfile.gettempdir())
    assert not folder.exists()


def test_half_a_message_holds_up_nobody_but_who_waits_for_it() -> None:
    async def main() -> None:
        async with worker_of("raw", "00000010 41") as worker:
            for wanted in (TimeoutError, EnvironmentFailure):  # it has not returned for 1 s
                with pytest.raises(wanted):
                    async with asyncio.timeout(1.1):
                        await worker.ask(b"go on")
            assert not worker.alive

    asyncio.run(main())


@pytest.mark.parametrize(
    ("sent", "cause"),
    [
        ("00000000", "sent a message of 0 bytes; the limit is 16777216"),
        ("ff000000", "sent a message of 4278190080 bytes; the limit is 16777216"),
        ("00000002 5a21", "sent an unrequested message: b'Z!'"),
        ("00000002 4121 00000002 4122", "sent an unrequested message: b'A\"'"),
    ],
)
def test_a_worker_that_sends_nonsense_is_killed(sent: str, cause: str) -> None:
    async def main() -> None:
        async with worker_of("raw", sent) as worker:
            with pytest.raises(EnvironmentFailure, match=cause):
                for _ in range(2):
                    await worker.ask(b"go on")
                    await asyncio.sleep(0.1)
            assert not worker.alive

    asyncio.run(main())


def test_a_server_that_cannot_load_its_program_and_a_worker_that_never_greets_are_failures() -> (
    None
):
    async def begin(program: str, argument: str) -> None:
        async with worker_of(program, argument):
            pass

    with pytest.raises(EnvironmentFailure, match="the fork server ended while it started"):
        asyncio.run(begin("refusing", "no license"))
    with pytest.raises(EnvironmentFailure, match="the worker process exited with status 4"):
        asyncio.run(begin("exiting", "4"))


@contextmanager
def without_descriptors() -> Generator[None]:
    """Let this process open no further file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with TemporaryFile() as next_one:
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_one.fileno(), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_owner_that_may_open_no_file_gets_neither_a_server_nor_a_worker() -> None:
    async def main() -> None:
        with without_descriptors(), pytest.raises(EnvironmentFailure, match="Too many open files"):
            await ForkServer.start("worker_programs:recorder", "")
        server = await ForkServer.start("worker_programs:recorder", "")
        try:
            with (
                without_descriptors(),
                pytest.raises(EnvironmentFailure, match="Too many open files"),
            ):
                await server.spawn()
            worker = await server.spawn()
            assert await worker.ask(b"1") == b"1"
        finally:
            await server.stop()

    asyncio.run(main())


def test_a_connection_that_ends_within_a_message_brings_no_request() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(theirs)
    with ours, theirs:
        ours.sendall(framed(b"whole") + framed(b"halved")[:-3])
        ours.shutdown(socket.SHUT_WR)
        assert channel.receive() == b"whole"
        assert channel.receive() is None


class Unreachable(socket.socket):
    """As TCP reports a network that is gone."""

    def recv_into(self, buffer: object, nbytes: int = 0, flags: int = 0) -> int:
        raise OSError(errno.EHOSTUNREACH, "No route to host")

    def sendall(self, *arguments: object) -> None:
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")


def test_an_owner_that_the_network_does_not_reach_any_more_is_gone() -> None:
    with Unreachable() as connection:
        channel = Channel(connection)
        assert channel.receive() is None
        channel.send(framed(b"an answer"))


def test_a_worker_leaves_none_of_its_connections_to_the_programs_that_it_starts() -> None:
    async def main() -> None:
        async with worker_of("inheritable", "") as worker:
            assert await worker.greeting() == b"0 1 2"
            ours, theirs = socket.socketpair()
            with ours, theirs:
                worker.hand_over(theirs)
                theirs.close()
                ours.setblocking(False)
                loop = asyncio.get_running_loop()
                assert (await loop.sock_recv(ours, 100))[5:] == b"0 1 2"

    asyncio.run(main())
