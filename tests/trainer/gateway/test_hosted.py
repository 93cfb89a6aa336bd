"""Tests for `longhaul_trainer.gateway.hosted`: vendors' APIs, spoken to servers that have them."""

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Literal

import pytest

from fakes import ScriptedEnvironment, make_task
from longhaul_core.actions import ActionFormat, ActionParser
from longhaul_core.memory import FullHistory, PromptTemplate
from longhaul_core.policy import NoTokens, ReplyPart
from longhaul_core.rollout import (
    Agent,
    EpisodeLimits,
    EpisodeOutcome,
    EpisodeSpec,
    run_episode,
)
from longhaul_core.types import FinishReason, Message, Picture, Tool, ToolCall, Trajectory
from longhaul_trainer.gateway.exchange import ApiError, ChatReply, ChatRequest, Delta, Usage
from longhaul_trainer.gateway.hosted import Endpoint, HostedModel, model
from longhaul_trainer.gateway.hosted.model import (
    LONGEST_PAUSE_SECONDS,
    pause_before,
    retry_after,
)
from longhaul_trainer.gateway.hosted.policy import UpstreamPolicy
from longhaul_trainer.gateway.upstream import UpstreamAnswer
from running_servers import running
from scripted_gateway import Script, ScriptedGateway, choice_of

Kind = Literal["openai", "anthropic"]
KEY = "sk-secret-0123456789"
SAID = [ReplyPart(text="Go "), ReplyPart(text="north.")]
CALLS = [
    ReplyPart(text="Let me look."),
    ReplyPart(tool_place=0, tool_id="c0", tool_name="look", tool_arguments='{"at":'),
    ReplyPart(tool_place=0, tool_arguments='"access"}'),
    ReplyPart(tool_place=1, tool_id="c1", tool_name="wait", tool_arguments="{}"),
]
PIXEL = Picture.of(b"\x89PNG\r\n\x1a\nrest")


class Endpoints(ScriptedGateway):
    """A server of both vendors' APIs, which may refuse first."""

    def __init__(self) -> None:
        super().__init__()
        self.address = ""
        self.refusals: list[ApiError] = []
        self.scripts = {
            "small": Script(choices=[SAID]),
            "tools": Script(choices=[CALLS], finish_reason=FinishReason.TOOL_CALLS),
            "thinks": Script(choices=[[ReplyPart(reasoning="Hm."), *SAID]]),
            "two": Script(choices=[SAID, [ReplyPart(text="South.")]]),
            "slow": Script(choices=[SAID], waits=0.5),
            "breaks": Script(choices=[SAID], error=ApiError("overloaded", "too much")),
            "long": Script(choices=[SAID], finish_reason=FinishReason.LENGTH),
        }

    async def answer(
        self, request: ChatRequest, on_delta: Callable[[Delta], None] | None
    ) -> ChatReply:
        if self.refusals:
            self.seen.append(request)
            raise self.refusals.pop(0)
        return await super().answer(request, on_delta)


@pytest.fixture(scope="module")
def endpoints() -> Iterator[Endpoints]:
    one = Endpoints()
    with running(one.app) as one.address:
        yield one


def asked(
    endpoints: Endpoints,
    model: str = "small",
    *,
    api: Kind = "openai",
    on_delta: Callable[[Delta], None] | None = None,
    request: ChatRequest | None = None,
    **settings: object,
) -> UpstreamAnswer:
    """One answer of an endpoint."""
    address = endpoints.address
    endpoint = Endpoint(
        url=f"{address}/v1" if api == "openai" else address, model=model, api=api, key=KEY
    )
    chat = request or ChatRequest(model="judge", messages=(Message(role="user", content="Way?"),))

    async def ask() -> UpstreamAnswer:
        hosted = HostedModel(replace(endpoint, **settings))  # pyright: ignore[reportArgumentType]
        try:
            return await hosted.answer(chat, on_delta=on_delta)
        finally:
            await hosted.close()

    return asyncio.run(ask())


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_a_reply_with_tool_calls_comes_back_as_it_was_whole_and_in_pieces(
    endpoints: Endpoints, api: Kind, streams: bool
) -> None:
    deltas: list[Delta] = []

    answer = asked(endpoints, "tools", api=api, on_delta=deltas.append if streams else None)

    (choice,) = answer.reply.choices
    assert choice.text == "Let me look."
    assert choice.finish_reason is FinishReason.TOOL_CALLS
    assert [(call.id, call.name) for call in choice.tool_calls] == [("c0", "look"), ("c1", "wait")]
    assert choice.tool_calls[0].arguments == '{"at":"access"}'
    assert answer.reply.model == "judge"
    assert answer.reply.usage == Usage(prompt_tokens=11, reply_tokens=7, cached_tokens=3)
    gathered = choice_of([delta.part for delta in deltas])
    assert not streams or (gathered.text, gathered.tool_calls) == (choice.text, choice.tool_calls)
    assert streams or not deltas


@pytest.mark.parametrize("streams", [False, True])
def test_thoughts_and_several_choices_are_read_apart(endpoints: Endpoints, streams: bool) -> None:
    on_delta = list[Delta]().append if streams else None
    two = ChatRequest(
        model="judge", messages=(Message(role="user", content="Way?"),), num_choices=2
    )

    thinks = asked(endpoints, "thinks", on_delta=on_delta)
    both = asked(endpoints, "two", on_delta=on_delta, request=two)

    assert [(one.reasoning, one.text) for one in thinks.reply.choices] == [("Hm.", "Go north.")]
    assert [one.text for one in both.reply.choices] == ["Go north.", "South."]
    assert endpoints.last.num_choices == 2


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_an_endpoint_reads_the_conversation_that_was_sent(endpoints: Endpoints, api: Kind) -> None:
    call = ToolCall(id="c0", name="look", arguments='{"at": "access"}')
    tool = Tool(
        name="look",
        description="Looks.",
        parameters='{"type": "object", "properties": {"at": {"type": "string"}}}',
    )
    messages = (
        Message(role="system", content="Be brief."),
        Message(role="user", content=("What is this?", PIXEL)),
        Message(role="assistant", content="I look.", tool_calls=(call,), reasoning="Hm."),
        Message(role="tool", content="A access.", tool_call_id="c0"),
    )
    request = ChatRequest(
        model="judge",
        messages=messages,
        tools=(tool,),
        max_tokens=33,
        temperature=0.25,
        top_p=0.5,
        stop=("END",),
        altered={"tool_choice": {"name": "look"}, "top_k": 5},
    )

    asked(endpoints, api=api, request=request)

    seen = endpoints.last
    # Thoughts stay here: vendors refuse those that they did not sign.
    assert seen.messages == (*messages[:2], replace(messages[2], reasoning=""), messages[3])
    assert seen.tools == (tool,)
    assert (seen.max_tokens, seen.temperature, seen.top_p) == (33, 0.25, 0.5)
    assert seen.stop == ("END",)
    assert seen.altered == {"tool_choice": {"name": "look"}, "top_k": 5}


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_an_environments_tools_reach_a_hosted_model_and_its_calls_are_actions(
    endpoints: Endpoints, api: Kind
) -> None:
    """Of the two calls of each reply the first alone is done, and has a result."""
    tool = Tool(name="look", description="Looks.", parameters='{"type": "object"}')
    environment = ScriptedEnvironment(rewards=[0.0, 1.0])
    address = endpoints.address
    endpoint = Endpoint(
        url=f"{address}/v1" if api == "openai" else address, model="tools", api=api, key=KEY
    )

    async def play() -> EpisodeOutcome:
        hosted = HostedModel(endpoint)
        agent = Agent(
            policy=UpstreamPolicy(hosted, name="judge"),
            renderer=NoTokens(),
            parser=ActionParser(format=ActionFormat.TOOL_CALL),
            build_memory=lambda: FullHistory(template=PromptTemplate(system="Be brief.")),
            tools=(tool,),
        )
        try:
            return await run_episode(
                EpisodeSpec(task=make_task(3), seed=11, sample_index=0),
                agent=agent,
                make_environment=lambda task: environment,
                limits=EpisodeLimits(horizon=2, max_prompt_tokens=9_000),
            )
        finally:
            await hosted.close()

    before = len(endpoints.seen)
    outcome = asyncio.run(play())

    assert isinstance(outcome, Trajectory), outcome
    assert environment.actions == ['{"name": "look", "arguments": {"at": "access"}}'] * 2
    assert all(step.action_valid for step in outcome.steps)
    assert [step.calls[0].tools for step in outcome.steps] == [(tool,), (tool,)]
    first, second = endpoints.seen[before:]
    assert [request.tools for request in (first, second)] == [(tool,), (tool,)]
    system, user, assistant, result = second.messages
    (call,) = assistant.tool_calls
    assert (system.role, user.text) == ("system", "start 3")
    assert (assistant.text, call.id, call.name) == ("Let me look.", "c0", "look")
    assert json.loads(call.arguments) == {"at": "access"}
    assert result == Message(role="tool", content="after 1", tool_call_id="c0")


def test_a_limit_that_the_vendor_demands_is_there_where_a_client_names_none(
    endpoints: Endpoints,
) -> None:
    asked(endpoints, api="anthropic", max_reply_tokens=77)
    assert endpoints.last.max_tokens == 77

    asked(endpoints, api="openai", max_reply_tokens=77)
    assert endpoints.last.max_tokens is None


def test_a_reply_costs_what_its_tokens_do(endpoints: Endpoints) -> None:
    priced = asked(endpoints, price_prompt=3.0, price_reply=15.0)
    streamed = asked(endpoints, on_delta=list[Delta]().append, price_prompt=3.0, price_reply=15.0)

    assert priced.cost_usd == pytest.approx((11 * 3 + 7 * 15) / 1e6)
    assert streamed.cost_usd == priced.cost_usd
    assert asked(endpoints).cost_usd is None


def test_what_may_pass_is_asked_again(endpoints: Endpoints) -> None:
    endpoints.refusals = [ApiError("rate_limited", "later"), ApiError("overloaded", "later")]
    before = len(endpoints.seen)

    answer = asked(endpoints)

    assert answer.reply.choices[0].text == "Go north."
    assert len(endpoints.seen) == before + 3
    assert answer.queue_seconds > 0.5  # two pauses


def test_what_does_not_pass_is_an_error_with_its_status_and_without_the_key(
    endpoints: Endpoints, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    endpoints.refusals = [ApiError("rate_limited", f"key {KEY} has no quota")] * 2

    with pytest.raises(ApiError) as spent:
        asked(endpoints, max_retries=1)
    endpoints.refusals = [ApiError("authentication", f"wrong key {KEY}")]
    with pytest.raises(ApiError) as wrong:
        asked(endpoints)
    endpoints.refusals = [ApiError("invalid_request", "temperature is not for this model")]
    with pytest.raises(ApiError) as refused:
        asked(endpoints)
    endpoints.refusals = []

    assert "status 429" in spent.value.message
    assert "tried 2 times" in spent.value.message
    assert (wrong.value.kind, "status 401" in wrong.value.message) == ("upstream", True)
    assert (refused.value.kind, refused.value.status) == ("invalid_request", 400)
    assert "temperature is not for this model" in refused.value.message
    for message in (spent.value.message, wrong.value.message, caplog.text):
        assert KEY not in message
        assert "has no quota" in message or message is not spent.value.message


def test_an_endpoint_that_is_not_there_and_one_that_is_slow_are_named(
    endpoints: Endpoints,
) -> None:
    with pytest.raises(ApiError, match=r"connection failed.*tried once"):
        asked(endpoints, url="http://127.0.0.1:9/v1", max_retries=0)
    with pytest.raises(ApiError, match=r"no answer within 0\.2 s"):
        asked(endpoints, "slow", deadline_seconds=0.2)
    with pytest.raises(ApiError, match=r"status 404"):
        asked(endpoints, url=f"{endpoints.address}/nowhere")


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_an_error_in_mid_reply_is_not_asked_again(endpoints: Endpoints, api: Kind) -> None:
    before, deltas = len(endpoints.seen), list[Delta]()

    with pytest.raises(ApiError, match="too much"):
        asked(endpoints, "breaks", api=api, on_delta=deltas.append)

    assert deltas
    assert len(endpoints.seen) == before + 1


def test_a_pause_is_what_the_endpoint_asks_for_within_a_bound() -> None:
    assert pause_before(0, asked=retry_after("7")) == 7
    assert pause_before(0, asked=retry_after("86400")) == LONGEST_PAUSE_SECONDS
    assert pause_before(0, asked=retry_after("Wed, 21 Oct 2015 07:28:00 GMT")) == 0
    assert retry_after("soon") is None
    assert 0.25 <= pause_before(0, asked=None) <= 0.5
    assert pause_before(50, asked=None) <= LONGEST_PAUSE_SECONDS


def test_no_more_requests_are_in_flight_than_allowed(endpoints: Endpoints) -> None:
    address = endpoints.address
    endpoint = Endpoint(url=f"{address}/v1", model="slow", max_concurrent=1)
    request = ChatRequest(model="judge", messages=(Message(role="user", content="Way?"),))

    async def both() -> list[UpstreamAnswer]:
        hosted = HostedModel(endpoint)
        try:
            return await asyncio.gather(*(hosted.answer(request, on_delta=None) for _ in "ab"))
        finally:
            await hosted.close()

    first, second = asyncio.run(both())
    assert second.queue_seconds - first.queue_seconds > 0.5


def test_a_key_is_in_no_representation_of_an_endpoint() -> None:
    assert KEY not in repr(Endpoint(url="http://x", model="m", key=KEY))


def test_a_connection_that_ends_in_mid_reply_is_not_asked_again_and_an_asked_pause_is_kept() -> (
    None
):
    chunk = b'data: {"choices": [{"index": 0, "delta": {"content": "Go"}}]}\n\n'
    answers = [
        b"HTTP/1.1 429 Slow\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + chunk,
    ]
    times: list[float] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        times.append(asyncio.get_running_loop().time())
        writer.write(answers[len(times) - 1])
        await writer.drain()
        writer.close()

    async def ask() -> list[Delta]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        hosted = HostedModel(Endpoint(url=f"http://127.0.0.1:{port}/v1", model="m"))
        request = ChatRequest(model="judge", messages=(Message(role="user", content="Way?"),))
        deltas: list[Delta] = []
        try:
            with pytest.raises(ApiError, match="in mid-reply"):
                await hosted.answer(request, on_delta=deltas.append)
        finally:
            await hosted.close()
            server.close()
        return deltas

    assert [delta.part.text for delta in asyncio.run(ask())] == ["Go"]
    assert len(times) == 2
    assert times[1] - times[0] >= 1


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy is set, and nobody listens there."""
    for name in ("http_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")


@pytest.mark.usefixtures("proxied")
@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_a_model_of_this_machine_is_asked_past_the_proxy(endpoints: Endpoints, api: Kind) -> None:
    assert asked(endpoints, api=api).reply.choices[0].text == "Go north."


@pytest.mark.usefixtures("proxied")
def test_a_proxy_that_does_not_answer_is_named(endpoints: Endpoints) -> None:
    with pytest.raises(ApiError, match=r"through the proxy of HTTP_PROXY.*add models\.example"):
        asked(endpoints, url="http://models.example/v1", max_retries=0)


def test_requests_in_flight_all_learn_the_newer_name_of_the_longest_reply() -> None:
    """OpenAI's newer models refuse `max_tokens`; the refusals of several requests come at once."""
    num_requests = 3
    all_there = asyncio.Event()
    refusal = b"Use 'max_completion_tokens' instead of 'max_tokens'."
    said = b'{"choices": [{"message": {"content": "Go"}, "finish_reason": "stop"}]}'
    bodies: list[dict[str, object]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        bodies.append(body)
        if len(bodies) == num_requests:
            all_there.set()
        await all_there.wait()
        status, answer = (b"400 Bad", refusal) if "max_tokens" in body else (b"200 OK", said)
        writer.write(b"HTTP/1.1 %s\r\nConnection: close\r\n" % status)
        writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(answer), answer))
        await writer.drain()
        writer.close()

    async def ask() -> list[UpstreamAnswer]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        hosted = HostedModel(Endpoint(url=f"http://127.0.0.1:{port}/v1", model="m"))
        chat = ChatRequest(
            model="judge", messages=(Message(role="user", content="Way?"),), max_tokens=9
        )
        try:
            asking = (hosted.answer(chat, on_delta=None) for _ in range(num_requests))
            return await asyncio.gather(*asking)
        finally:
            await hosted.close()
            server.close()

    answers = asyncio.run(ask())

    assert [answer.reply.choices[0].text for answer in answers] == ["Go"] * num_requests
    assert len(bodies) == 2 * num_requests


def test_a_connection_that_nobody_takes_is_tried_again_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model, "CONNECT_SECONDS", 0.2)
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listener.getsockname()
        for _ in range(8):  # what the kernel accepts before anybody does
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)

        async def ask() -> None:
            url = f"http://127.0.0.1:{address[1]}/v1"
            hosted = HostedModel(Endpoint(url=url, model="m", max_retries=1))
            chat = ChatRequest(model="judge", messages=(Message(role="user", content="Way?"),))
            try:
                await hosted.answer(chat, on_delta=None)
            finally:
                await hosted.close()

        with pytest.raises(ApiError, match=r"connection failed.*tried 2 times"):
            asyncio.run(ask())
