"""HTTP around a dialect: what is read, when it is sent, and what is left when a client goes."""

import asyncio
import gzip
import json
import threading
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from fakes import StreamingScriptedPolicy
from gateways import TASK, TRAINING, responder_of
from longhaul_core.clock import now
from longhaul_core.policy import ReplyPart
from longhaul_core.rollout import EpisodeLimits, EpisodeSession, EpisodeSpec
from longhaul_trainer.gateway.app import Lobby, create_app
from longhaul_trainer.gateway.authentication import EpisodeAccess
from longhaul_trainer.gateway.dialects.anthropic_messages import AnthropicMessages
from longhaul_trainer.gateway.dialects.openai_chat import OpenAIChat
from longhaul_trainer.gateway.episode import OpenEpisode
from longhaul_trainer.gateway.exchange import (
    ApiError,
    ChatReply,
    ChatRequest,
    Choice,
    Delta,
    Dialect,
    Usage,
)
from longhaul_trainer.gateway.http import Answer, Incoming, error_response, json_object, respond
from longhaul_trainer.gateway.settings import GatewaySettings
from reading_events import read_events
from virtual_time import in_virtual_time

OnDelta = Callable[[Delta], None] | None
BODY = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}


def reply_of(text: str) -> ChatReply:
    return ChatReply(
        id="1",
        created=1,
        model="m",
        choices=[Choice(text=text)],
        usage=Usage(prompt_tokens=1, reply_tokens=1),
    )


def piece(text: str) -> Delta:
    return Delta(choice=0, part=ReplyPart(text=text))


class Client:
    """One request as a server hands it to an application, and what the application sends."""

    def __init__(
        self, body: bytes = b"", *, headers: Sequence[tuple[str, str]] = (), size: int = 1 << 16
    ) -> None:
        self.leaves = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self.got = asyncio.Event()
        self.is_sent_to = asyncio.Event()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.bodies: list[bytes] = []
        self.ended = False
        self._pieces = [body[start : start + size] for start in range(0, len(body), size)] or [b""]
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers],
        }

    @property
    def body(self) -> bytes:
        return b"".join(self.bodies)

    @property
    def request(self) -> Incoming:
        return Incoming(self.scope, self.receive)

    async def receive(self) -> MutableMapping[str, Any]:
        if self._pieces:
            body = self._pieces.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(self._pieces)}
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.is_sent_to.set()
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.bodies.append(message["body"])
            self.ended = not message.get("more_body", False)
        self.got.set()

    async def next_piece(self) -> None:
        """Wait until more was sent."""
        await self.got.wait()
        self.got.clear()

    async def ask(
        self, dialect: Dialect, answer: Answer, *, stream: bool, keep_alive_seconds: float = 60.0
    ) -> None:
        """Send the request, and read all of the answer."""
        body = {**BODY, "stream": stream}
        response = await respond(
            self.request,
            dialect,
            body,
            path={},
            answer=answer,
            keep_alive_seconds=keep_alive_seconds,
        )
        await response(self.scope, self.receive, self.send)


def text_of(client: Client) -> str:
    """What the chunks of a chat completion say."""
    events = [event.data for event in read_events(client.body)]
    assert events.pop() == "[DONE]"
    return "".join(json.loads(event)["choices"][0]["delta"].get("content", "") for event in events)


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test in virtual time, and hold it to leave no task behind."""

    @in_virtual_time
    async def whole() -> None:
        await test()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    whole()


def test_a_piece_is_sent_before_the_next_one_is_written() -> None:
    async def test() -> None:
        client, more = Client(), asyncio.Event()

        async def answer(request: ChatRequest, on_delta: OnDelta) -> ChatReply:
            assert on_delta is not None
            on_delta(piece("Hell"))
            await more.wait()
            on_delta(piece("o"))
            return reply_of("Hello")

        asking = asyncio.create_task(client.ask(OpenAIChat(), answer, stream=True))
        while b"Hell" not in client.body:
            await client.next_piece()
        assert not client.ended
        more.set()
        await asking
        assert text_of(client) == "Hello"
        assert client.headers["content-type"].startswith("text/event-stream")
        assert client.headers["x-request-id"].startswith("req_")

    run(test)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_cancels_its_answer(stream: bool) -> None:
    async def test() -> None:
        client, cancelled, began = Client(), asyncio.Event(), asyncio.Event()

        async def answer(request: ChatRequest, on_delta: OnDelta) -> ChatReply:
            if on_delta is not None:
                on_delta(piece("Hell"))
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)  # whoever answers may need a moment to tell the engine
                cancelled.set()
                raise
            raise AssertionError

        asking = asyncio.create_task(client.ask(OpenAIChat(), answer, stream=stream))
        await began.wait()
        client.leaves.set()
        await asking
        assert cancelled.is_set()
        assert b"[DONE]" not in client.body

    run(test)


@pytest.mark.parametrize("leaves", [True, False])
def test_a_stream_that_is_lost_when_its_reply_is_there_is_sent_again_and_not_sampled_again(
    leaves: bool,
) -> None:
    policy = StreamingScriptedPolicy(["first", "second"])
    session = EpisodeSession(
        EpisodeSpec(task=TASK, seed=11), limits=EpisodeLimits(horizon=20, max_prompt_tokens=4_096)
    )

    async def test() -> None:
        episode = OpenEpisode(
            session,
            access=EpisodeAccess(address="http://127.0.0.1"),
            models={"policy": responder_of(policy)},
            rules=TRAINING,
            task=TASK,
        )
        lobby = Lobby()
        lobby.add(episode)
        app = create_app(lobby, GatewaySettings())
        headers = [("host", "127.0.0.1"), ("authorization", f"Bearer {episode.access.key}")]
        body = json.dumps({**BODY, "model": "auto", "stream": True}).encode()
        clients = [Client(body, headers=headers) for _ in range(2)]
        for client in clients:
            client.scope["path"] = f"/e/{episode.access.id}/v1/chat/completions"
        first, again = clients

        first.reads.clear()
        asking = asyncio.ensure_future(app(first.scope, first.receive, first.send))
        await first.is_sent_to.wait()
        await episode.requests.settled()
        (first.leaves if leaves else first.reads).set()
        await asking
        await app(again.scope, again.receive, again.send)

        assert b"[DONE]" in (again.body if leaves else first.body)
        assert text_of(again) == ("first" if leaves else "second")
        assert len(policy.prompts) == session.num_steps == (1 if leaves else 2)
        await episode.close()

    run(test)


def test_a_server_that_stops_cancels_the_answer_too() -> None:
    async def test() -> None:
        client, began = Client(), asyncio.Event()

        async def answer(request: ChatRequest, on_delta: OnDelta) -> ChatReply:
            began.set()
            await asyncio.Event().wait()
            raise AssertionError

        asking = asyncio.create_task(client.ask(OpenAIChat(), answer, stream=True))
        await began.wait()
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()

    run(test)


def test_a_slow_client_costs_no_more_than_the_reply() -> None:
    async def test() -> None:
        client = Client()
        client.reads.clear()
        words = [f"{number} " for number in range(20_000)]

        async def answer(request: ChatRequest, on_delta: OnDelta) -> ChatReply:
            assert on_delta is not None
            for word in words:
                on_delta(piece(word))
                if word.endswith("00 "):
                    await asyncio.sleep(0)
            client.reads.set()
            return reply_of("".join(words))

        await client.ask(OpenAIChat(), answer, stream=True)
        assert text_of(client) == "".join(words)
        assert len(read_events(client.body)) < 10

    run(test)


def test_a_client_that_reads_nothing_for_long_counts_as_gone() -> None:
    async def test() -> None:
        client, began = Client(), now()
        client.reads.clear()

        async def answer(request: ChatRequest, on_delta: OnDelta) -> ChatReply:
            assert on_delta is not None
            on_delta(piece("Hello"))
            await asyncio.Event().wait()
            raise AssertionError

        await client.ask(OpenAIChat(), answer, stream=True)
        assert client.bodies == []
        assert now() - began == pytest.approx(300)

    run(test)


@pytest.mark.parametrize(
    ("dialect", "sign", "at_its_beginning"),
    [
        (OpenAIChat(), b": waiting\n\n", 0),
        (AnthropicMessages(), b'data: {"type":"ping"}\n\n', 1),
    ],
)
def test_a_silent_engine_is_no_silent_stream(
    dialect: Dialect, sign: bytes, at_its_beginning: int
) -> None:
    async def test() -> None:
        client = Client()

        async def answer(request: ChatRequest, on_delta: OnDelta) -> ChatReply:
            await asyncio.sleep(200)
            return reply_of("Hello")

        await client.ask(dialect, answer, stream=True)
        assert client.body.count(sign) - at_its_beginning == 3  # after 60, 120 and 180 s
        assert b"Hello" in client.body

    run(test)


def test_an_error_before_the_first_piece_is_an_answer_and_one_after_it_an_event() -> None:
    async def test() -> None:
        async def refuses(request: ChatRequest, on_delta: OnDelta) -> ChatReply:
            raise ApiError("rate_limited", "slower")

        async def breaks(request: ChatRequest, on_delta: OnDelta) -> ChatReply:
            assert on_delta is not None
            on_delta(piece("Hell"))
            raise ApiError("rate_limited", "slower")

        before, after = Client(), Client()
        await before.ask(OpenAIChat(), refuses, stream=True)
        await after.ask(OpenAIChat(), breaks, stream=True)

        assert (before.status, after.status) == (429, 200)
        assert json.loads(before.body)["error"]["message"] == "slower"
        assert before.headers["x-should-retry"] == "true"
        *_, last = read_events(after.body)
        assert json.loads(last.data)["error"]["message"] == "slower"
        assert after.ended

    run(test)


def test_a_mistake_of_ours_is_raised_on_and_told_to_nobody() -> None:
    async def test() -> None:
        async def crashes(request: ChatRequest, on_delta: OnDelta) -> ChatReply:
            if on_delta is not None:
                on_delta(piece("Hell"))
            raise RuntimeError("secret")

        for stream in (False, True):
            client = Client()
            with pytest.raises(RuntimeError, match="secret"):
                await client.ask(OpenAIChat(), crashes, stream=stream)
            assert b"secret" not in client.body
        *_, last = read_events(client.body)
        assert json.loads(last.data)["error"]["code"] == "internal_error"

    run(test)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_another_cancels_is_gone(stream: bool) -> None:
    async def test() -> None:
        client = Client()

        async def answer(request: ChatRequest, on_delta: OnDelta) -> ChatReply:
            raise asyncio.CancelledError  # as when its episode is closed

        await client.ask(OpenAIChat(), answer, stream=stream)
        assert client.status == 410
        assert client.headers["x-should-retry"] == "false"

    run(test)


def test_a_body_that_the_dialect_refuses_is_never_answered() -> None:
    async def test() -> None:
        client = Client()

        async def answer(request: ChatRequest, on_delta: OnDelta) -> ChatReply:
            raise AssertionError

        response = await respond(
            client.request, OpenAIChat(), {"model": "m"}, path={}, answer=answer
        )
        assert response.status_code == 400
        assert response.headers["content-type"] == "application/json"

    run(test)


def test_a_key_that_is_wrong_is_asked_for_again() -> None:
    response = error_response(OpenAIChat(), ApiError("authentication", "no such key"))

    assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")


def body_of(client: Client, *, max_bytes: int = 1_000) -> dict[str, object]:
    request = client.request
    sent = asyncio.run(request.read(max_bytes=max_bytes))
    encoding = request.headers.get("content-encoding", "identity")
    return asyncio.run(json_object(sent, encoding=encoding, max_bytes=max_bytes))


def zipped(client_body: bytes) -> Client:
    return Client(client_body, headers=[("content-encoding", "gzip")], size=50)


def test_a_body_may_be_packed() -> None:
    text = json.dumps({"a": "ä" * 100}).encode()

    assert body_of(Client(text)) == body_of(zipped(gzip.compress(text))) == {"a": "ä" * 100}


SHORT = {"role": "user", "content": [{"type": "text", "text": "ä"}], "number": 1.5, "none": None}
LARGE = {
    "many": [SHORT] * 10_000,
    "one": [{"content": [{"text": str(number)} for number in range(30_000)]}, SHORT],
    "deep": [[[[["x"] * 100_000]]]],
    "long": "\\n" * 300_000,
}


@pytest.mark.parametrize("indent", [None, 1])
def test_a_large_body_is_read_in_parts_as_a_whole(indent: int | None) -> None:
    text = "\n " + json.dumps({"model": "m", **LARGE}, indent=indent)

    assert body_of(Client(text.encode()), max_bytes=10_000_000) == json.loads(text)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ('"many": [{"a": 1}, {"a" 1}]', "no JSON"),
        ('"many": [{"a": "\\x"}]', "no JSON"),
        ('"many": [1, 2', "no JSON"),
        ('"many": ' + "[" * 101 + "]" * 101, "nested deeper than 100 levels"),
    ],
)
def test_what_is_wrong_in_a_part_of_a_large_body_is_said(fault: str, said: str) -> None:
    text = f'{{"large": {json.dumps(LARGE["many"])}, {fault}}}'

    with pytest.raises(ApiError, match=said):
        body_of(Client(text.encode()), max_bytes=10_000_000)


@pytest.mark.parametrize(
    ("num_bytes", "encoding"), [(1_000, None), (262_144, None), (262_145, None), (1_000, "gzip")]
)
def test_a_long_body_is_parsed_and_read_beside_the_event_loop(
    num_bytes: int, encoding: str | None
) -> None:
    takes_long = num_bytes > 262_144 or encoding is not None
    read_in: list[str] = []

    class Reads(OpenAIChat):
        def read(self, body: Mapping[str, object], *, path: Mapping[str, str]) -> ChatRequest:
            read_in.append(threading.current_thread().name)
            return super().read(body, path=path)

    async def answer(request: ChatRequest, on_delta: OnDelta) -> ChatReply:
        return reply_of("Hello")

    async def test() -> list[str]:
        threads: list[str] = []
        asyncio.get_running_loop().set_default_executor(Watched(threads))
        text = json.dumps({**BODY, "user": ""}).encode()
        text = text.replace(b'"user": "', b'"user": "' + b"a" * (num_bytes - len(text)))
        sent = text if encoding is None else gzip.compress(text)
        headers = [] if encoding is None else [("content-encoding", encoding)]
        request = Client(sent, headers=headers).request
        body = await json_object(
            await request.read(max_bytes=num_bytes),
            encoding=encoding or "identity",
            max_bytes=num_bytes,
        )
        response = await respond(request, Reads(), body, path={}, answer=answer)
        assert response.status_code == 200
        return threads

    threads = asyncio.run(test())
    assert len(threads) == (2 if num_bytes > 262_144 else int(takes_long))
    assert (read_in != [threading.current_thread().name]) == takes_long


@pytest.mark.parametrize("num_bytes", [1_000, 262_144, 300_000, 9_000_000])
def test_a_long_packed_body_does_not_hold_the_event_loop(num_bytes: int) -> None:
    text = json.dumps({"a": "b" * (num_bytes - len('{"a": ""}'))}).encode()
    threads: list[str] = []

    async def unpacked(max_bytes: int) -> dict[str, object]:
        asyncio.get_running_loop().set_default_executor(Watched(threads))
        return await json_object(gzip.compress(text), encoding="gzip", max_bytes=max_bytes)

    assert asyncio.run(unpacked(num_bytes)) == json.loads(text)
    assert bool(threads) == (num_bytes > 262_145)
    with pytest.raises(ApiError, match=f"{num_bytes - 1:,} bytes"):
        asyncio.run(unpacked(num_bytes - 1))


class Watched(ThreadPoolExecutor):
    """Says that work was given to it."""

    def __init__(self, given: list[str]) -> None:
        super().__init__(max_workers=1)
        self._given = given

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ANN401
        self._given.append(repr(fn))
        return super().submit(fn, *args, **kwargs)


def test_a_body_is_bounded_as_it_is_sent_and_as_it_is_unpacked() -> None:
    for client in (
        Client(b'"' + b"a" * 2_000),
        zipped(gzip.compress(b"a" * 100_000_000, mtime=0)),
        zipped(gzip.compress(b'"' + b"a" * 1_000, mtime=0)),
    ):
        with pytest.raises(ApiError, match="1,000 bytes") as caught:
            body_of(client)
        assert caught.value.status == 413


@pytest.mark.parametrize(
    "client",
    [
        Client(b""),
        Client(b"{"),
        Client(b"[]"),
        Client(b'{"a": NaN}'),
        Client(b'{"a": 1e999}'),
        Client(b'{"a": "\\ud800"}'),
        Client(b'{"a": "\xff"}'),
        Client(b'{"a":' * 101 + b"{}" + b"}" * 101),
        Client(b"[" * 900),
        Client(b"{}", headers=[("content-encoding", "br")]),
        zipped(b"{}"),
        zipped(gzip.compress(b"{}", mtime=0)[:-9]),
        zipped(gzip.compress(b"{}", mtime=0) * 2),
    ],
    ids=lambda client: repr(client._pieces[0][:20]),  # pyright: ignore[reportPrivateUsage]
)
def test_a_body_that_is_no_object_of_json_is_refused(client: Client) -> None:
    with pytest.raises(ApiError) as caught:
        body_of(client)

    assert caught.value.status == 400
