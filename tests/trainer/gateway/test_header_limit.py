"""A connection whose request never has all its headers is closed, and no other one."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from gateways import Played, messages, playing, said
from longhaul_trainer.gateway.settings import GatewaySettings
from slow_clients import HALF_A_HEADER, last_words
from trainer.gateway.test_episode import LetPolicy

SETTINGS = GatewaySettings(header_seconds=0.2)
WHOLE = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def until_closed(one: Played, *, sent: bytes) -> bytes:
    """What the gateway answers before it closes a connection."""
    return await asyncio.to_thread(last_words, one.gateway.address, sent=sent)


@pytest.mark.parametrize(
    "sent", [b"", b"POST", HALF_A_HEADER], ids=["nothing", "a word", "half a header"]
)
def test_a_client_that_sends_no_whole_header_is_closed(sent: bytes) -> None:
    async def program() -> None:
        async with playing(settings=SETTINGS) as one:
            assert (await until_closed(one, sent=sent)).startswith(b"HTTP/1.1 408 ")

    asyncio.run(program())


def test_so_is_one_whose_later_request_has_none() -> None:
    async def program() -> None:
        async with playing(settings=SETTINGS) as one:
            answer = await until_closed(one, sent=WHOLE + HALF_A_HEADER)
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert answer.count(b"HTTP/1.1 408 ") == 1

    asyncio.run(program())


def test_a_reply_that_takes_longer_is_not_cut() -> None:
    policy = LetPolicy("whole")

    async def program() -> None:
        async with playing(policy, settings=SETTINGS) as one:
            asked = asyncio.create_task(one.chat("hi"))
            await policy.begun.acquire()
            await until_closed(one, sent=HALF_A_HEADER)  # so long has it taken
            policy.let.set()
            assert said(await asked) == "whole"

    asyncio.run(program())


def test_a_body_may_come_later_than_its_headers() -> None:
    async def program() -> None:
        async with playing(settings=SETTINGS) as one:

            async def body() -> AsyncGenerator[bytes]:
                yield b'{"model": "auto", "messages": '
                await until_closed(one, sent=HALF_A_HEADER)
                yield str(messages("hi")).replace("'", '"').encode() + b"}"

            said(await one.http.post("/v1/chat/completions", content=body()))

    asyncio.run(program())
