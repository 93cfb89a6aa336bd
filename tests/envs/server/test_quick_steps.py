"""Tests for `longhaul_envs.server.quick_steps`: which requests take the short way, and how."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import uvicorn
from starlette.types import Message, Receive, Scope, Send

from local_workers import until
from longhaul_envs.server.quick_steps import Content, StepProtocol

Written = asyncio.StreamWriter
Exchange = Callable[[asyncio.StreamReader, Written], Awaitable[None]]


class Application:
    """Says which way a request came, and with what."""

    def __init__(self) -> None:
        self.steps = self
        self.waiting: list[Content] = []
        self.num_called = 0
        """Requests that took the ordinary way."""

    def is_step(self, scope: Scope) -> bool:
        return scope["path"] == "/step"

    def begin(self, scope: Scope, body: bytes, content: Content) -> None:
        if body == b"later":
            self.waiting.append(content)
        else:
            content(None if body == b"refused" else b"quick:" + body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.num_called += 1
        body, more = b"", True
        while more:
            message: Message = await receive()
            body, more = body + message["body"], message["more_body"]
        content = b"ordinary:" + body[:20]
        length = (b"content-length", b"%d" % len(content))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": content})


def exchanged(exchange: Exchange, application: Application | None = None) -> None:
    """Run what one client does with a server of `StepProtocol`."""

    async def run() -> None:
        config = uvicorn.Config(
            cast("Any", application or Application()),
            port=0,
            http=StepProtocol,
            lifespan="off",
            log_level="error",
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            async with asyncio.timeout(60):
                await exchange(reader, writer)
        finally:
            writer.close()
            server.should_exit = True
            await serving

    asyncio.run(run())


def request(body: bytes, *, path: str = "/step", headers: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The headers of a response in lower case, and its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith(b"http/1.1 200 ok\r\n")
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head, await reader.readexactly(length)


def test_a_step_takes_the_short_way_and_what_is_refused_there_the_ordinary_one() -> None:
    async def exchange(reader: asyncio.StreamReader, writer: Written) -> None:
        for sent, expected in (
            (request(b"a"), b"quick:a"),
            (request(b"refused"), b"ordinary:refused"),
            (request(b"a", path="/other"), b"ordinary:a"),
            (request(b"b"), b"quick:b"),
        ):
            writer.write(sent)
            head, body = await answer(reader)
            assert body == expected
            assert b"\r\ndate: " in head

    exchanged(exchange)


def test_requests_that_come_at_once_are_answered_in_their_order() -> None:
    async def exchange(reader: asyncio.StreamReader, writer: Written) -> None:
        writer.write(request(b"later") + request(b"b") + request(b"c", path="/other"))
        await until(lambda: bool(application.waiting))
        application.waiting.pop()(b"first")

        bodies = [(await answer(reader))[1] for _ in range(3)]
        assert bodies == [b"first", b"ordinary:b", b"ordinary:c"]

    application = Application()
    exchanged(exchange, application)


def test_a_body_may_come_in_pieces_and_a_large_one_takes_the_ordinary_way() -> None:
    async def exchange(reader: asyncio.StreamReader, writer: Written) -> None:
        for body, expected in (
            (b"x" * 1000, b"quick:" + b"x" * 1000),
            (b"y" * 2**20, b"ordinary:" + b"y" * 20),
        ):
            sent = request(body)
            for start in range(0, len(sent), 2**17):
                writer.write(sent[start : start + 40])
                await asyncio.sleep(0.02)
                writer.write(sent[start + 40 : start + 2**17])
            assert (await answer(reader))[1] == expected

    exchanged(exchange)


def test_a_connection_that_is_to_be_closed_is_and_says_so() -> None:
    async def exchange(reader: asyncio.StreamReader, writer: Written) -> None:
        writer.write(request(b"a", headers="Connection: close\r\n"))
        head, body = await answer(reader)

        assert b"\r\nconnection: close\r\n" in head
        assert body == b"ordinary:a"
        assert await reader.read() == b""

    exchanged(exchange)


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it() -> None:
    async def exchange(reader: asyncio.StreamReader, writer: Written) -> None:
        head, body = request(b"a", headers="Expect: 100-continue\r\n").rsplit(b"\r\n\r\n", 1)
        writer.write(head + b"\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await answer(reader))[1] == b"ordinary:a"

    exchanged(exchange)


def test_an_answer_to_a_client_that_has_gone_is_dropped() -> None:
    async def exchange(reader: asyncio.StreamReader, writer: Written) -> None:
        writer.write(request(b"later"))
        await until(lambda: bool(application.waiting))
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.1)
        application.waiting.pop()(None)

    application = Application()
    exchanged(exchange, application)
    assert application.num_called == 0


def test_a_client_that_does_not_read_is_waited_for() -> None:
    async def exchange(reader: asyncio.StreamReader, writer: Written) -> None:
        large = b"z" * 2**25
        for content in (large, b"second"):
            writer.write(request(b"later"))
            await until(lambda: bool(application.waiting))
            application.waiting.pop()(content)

        assert (await answer(reader))[1] == large
        # Begun anew on the ordinary way, since the first answer was still being written.
        assert (await answer(reader))[1] == b"ordinary:later"

    application = Application()
    exchanged(exchange, application)
