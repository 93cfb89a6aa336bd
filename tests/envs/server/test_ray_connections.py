"""The connections to workers on Ray's nodes, with the actor's object in this process."""

import asyncio
import errno
import os
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import ray

from local_workers import in_event_loop, until
from longhaul_core.errors import EnvironmentFailure
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Split
from longhaul_envs.server import ray_workers
from longhaul_envs.server.hosting import Call, Done, Verb, decode_answer, encode_calls
from longhaul_envs.server.workers import Worker
from longhaul_envs.textcraft.tasks import source

SPEC = GymEnvironmentSpec(
    environment_id="longhaul/TextCraft-v0", import_modules=("longhaul_envs.textcraft",)
)
TASK = source({}).tasks(Split.TEST)[0]
RESET = Call(Verb.RESET, 0, TASK.task_id, TASK.seed)
INTERNALS = vars(ray_workers)


class Method:
    def __init__(self, method: Any) -> None:  # noqa: ANN401
        self._method = method

    def remote(self, *arguments: object) -> "asyncio.Future[Any]":
        return asyncio.ensure_future(self._method(*arguments))


class Actor:
    """Calls of an object in this process, as Ray's handle makes them."""

    def __init__(self, of: object) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Method:
        return Method(getattr(self._of, name))


@asynccontextmanager
async def node(*, is_here: bool = False) -> AsyncGenerator[Any]:
    keeper = INTERNALS["_Keeper"](SPEC.to_json(), is_here=is_here)
    try:
        address: str = cast("Any", ray).util.get_node_ip_address()
        yield INTERNALS["_Node"](
            id="here", address=address, num_processors=1.0, actor=Actor(keeper)
        )
    finally:
        await keeper.close()


async def started(node: Any) -> Worker:  # noqa: ANN401
    reply = await node.actor.start.remote()
    assert not isinstance(reply, str), reply
    line = await INTERNALS["_connected"](node, reply)
    return INTERNALS["_RayWorker"](node, reply.number, line)


def inside(node: Any) -> dict[str, Any]:  # noqa: ANN401
    """What the actor's object holds."""
    return vars(cast("object", vars(node.actor)["_of"]))


def num_visitors(node: Any) -> int:  # noqa: ANN401
    """How many wait at the door."""
    return len(inside(node)["_visits"]) - 1  # the one who lets them in is there, too


async def answers(worker: Worker, *calls: Call) -> tuple[Done, ...]:
    return decode_answer(await worker.ask(encode_calls(list(calls))))


@in_event_loop
async def test_each_connection_leads_to_its_worker_and_messages_of_any_size_pass() -> None:
    async with node() as here, asyncio.timeout(120):
        workers = [await started(here) for _ in range(2)]
        for worker in workers:
            (reset,) = await answers(worker, RESET)
            assert not reset.failed
        (stepped,) = await answers(workers[0], Call(Verb.STEP, 0, "x" * 2**20))
        assert not stepped.failed
        assert here.workers == set(workers)


@in_event_loop
async def test_on_the_servers_own_node_a_worker_is_reached_by_a_unix_socket() -> None:
    async with node(is_here=True) as here, asyncio.timeout(120):
        worker = await started(here)
        (reset,) = await answers(worker, RESET)
        assert not reset.failed
        (stepped,) = await answers(worker, Call(Verb.STEP, 0, "x" * 2**20))
        assert not stepped.failed
        line: Any = vars(cast("object", vars(worker)["_line"]))["_transport"]
        assert line.get_extra_info("socket").family == socket.AF_UNIX

        reply = await here.actor.start.remote()
        with pytest.raises(EnvironmentFailure, match="cannot be connected to"):
            await INTERNALS["_connected"](here, reply._replace(key=bytes(len(reply.key))))
        worker.kill("was killed by the test")
        assert "was killed by the test" in await worker.ended
    with pytest.raises(EnvironmentFailure, match="at its Unix socket: ConnectionRefusedError"):
        await INTERNALS["_connected"](here, reply)


@in_event_loop
async def test_who_does_not_know_the_key_of_a_worker_reaches_none() -> None:
    async with node() as here, asyncio.timeout(120):
        reply = await here.actor.start.remote()
        wrong = bytes(len(reply.key))
        for sent in (wrong, b"short", b"\xff" * 100, reply.key[:-1], reply.key[:-1] + b"\n"):
            reader, writer = await asyncio.open_connection(here.address, reply.door)
            writer.write(sent)
            writer.write_eof()
            with pytest.raises(ConnectionResetError):
                if await reader.read() == b"":
                    raise ConnectionResetError
            writer.close()
        line = await INTERNALS["_connected"](here, reply)
        used = (await here.actor.start.remote())._replace(key=reply.key)
        with pytest.raises(EnvironmentFailure, match="cannot be connected to"):
            await INTERNALS["_connected"](here, used)
        line.kill()


@in_event_loop
async def test_a_worker_that_nobody_reached_is_ended_and_forgotten() -> None:
    async with node() as here, asyncio.timeout(120):
        reply = await here.actor.start.remote()
        keeper = inside(here)
        (worker,) = keeper["_workers"].values()
        with pytest.raises(EnvironmentFailure, match="cannot be connected to"):
            await INTERNALS["_connected"](here, reply._replace(key=bytes(len(reply.key))))
        await until(lambda: not keeper["_workers"])
        assert keeper["_by_key"] == {}
        assert "was ended, since nobody reached it," in worker.ended.result()


@in_event_loop
async def test_a_worker_that_accepts_a_connection_and_says_nothing_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_workers, "_ANSWER_SECONDS", 1.0)
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # the key, and then the end
        ended.set()
        writer.close()

    async with node() as here, asyncio.timeout(120):
        reply = await here.actor.start.remote()
        server = await asyncio.start_server(silent, here.address, 0)
        port: int = server.sockets[0].getsockname()[1]
        async with server:
            with pytest.raises(EnvironmentFailure, match=f"at port {port}: TimeoutError"):
                await INTERNALS["_connected"](here, reply._replace(door=port))
            await ended.wait()


@in_event_loop
async def test_a_visitor_that_cannot_be_accepted_closes_no_door() -> None:
    loop: Any = asyncio.get_running_loop()
    accept = loop.sock_accept
    failures = [OSError(errno.EMFILE, "Too many open files"), ConnectionAbortedError()]

    async def sock_accept(door: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            raise failures.pop()
        return await accept(door)

    loop.sock_accept = sock_accept
    async with node() as here, asyncio.timeout(120):
        (reset,) = await answers(await started(here), RESET)
        assert not reset.failed
    assert not failures


@in_event_loop
async def test_no_more_than_a_number_of_visitors_wait_at_the_door(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_workers, "_MOST_VISITORS", 2)
    async with node() as here, asyncio.timeout(120):
        reply = await here.actor.start.remote()
        visitors = [await asyncio.open_connection(here.address, reply.door) for _ in range(3)]
        refused = asyncio.create_task(visitors[2][0].read())
        assert await asyncio.wait_for(refused, 60) == b""
        visitors[0][1].close()
        await until(lambda: num_visitors(here) == 1)
        line = await INTERNALS["_connected"](here, reply)
        line.kill()
        for _, writer in visitors:
            writer.close()


@in_event_loop
async def test_a_worker_whose_connection_is_cut_is_ended() -> None:
    async with node() as here, asyncio.timeout(120):
        worker = await started(here)
        vars(worker)["_line"].kill("was cut")
        assert "the connection to its node was cut" in await worker.ended
        assert not here.workers


@in_event_loop
async def test_a_worker_that_dies_or_is_killed_fails_what_was_asked_and_says_why() -> None:
    async with node() as here, asyncio.timeout(120):
        worker = await started(here)
        asked = worker.ask(encode_calls([RESET, Call(Verb.STEP, 0, "wait")]))
        worker.kill("was killed by the test")
        with pytest.raises(EnvironmentFailure):
            await asked
        assert "was killed by the test" in await worker.ended

        worker = await started(here)
        keeper = cast("object", vars(here.actor)["_of"])
        (kept,) = cast("dict[int, object]", vars(keeper)["_workers"]).values()
        os.kill(vars(kept)["_pid"], signal.SIGKILL)
        assert "SIGKILL" in await worker.ended
        with pytest.raises(EnvironmentFailure):
            await worker.ask(encode_calls([RESET]))
