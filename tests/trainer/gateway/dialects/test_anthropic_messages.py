"""Messages, read and written by Anthropic's own client."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types import MessageParam, RawMessageStreamEvent, ToolParam
from pydantic import TypeAdapter

from longhaul_core.types import Message, Picture, Tool, ToolCall
from longhaul_trainer.gateway.exchange import CreditReport
from reading_events import read_events
from scripted_gateway import ScriptedGateway

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
HI: list[MessageParam] = [{"role": "user", "content": "Hi"}]
TOOLS: list[ToolParam] = [
    {"name": "weather", "description": "Now.", "input_schema": {"type": "object"}}
]
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture(scope="module")
def client(serving: tuple[ScriptedGateway, str]) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=serving[1], api_key="key", max_retries=0) as client:
        yield client


def test_a_whole_reply_is_what_was_written(client: anthropic.Anthropic) -> None:
    message = client.messages.create(
        model="everything", max_tokens=9, messages=HI, thinking=THINKING
    )

    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block.input for block in message.content if block.type == "tool_use"] == [
        {"city": "Paris"},
        {},
    ]
    assert (message.id, message.stop_reason) == ("msg_0123abcd", "tool_use")
    assert message.usage.input_tokens == 8
    assert message.usage.cache_read_input_tokens == 3
    assert message._request_id == "req_0123abcd"  # pyright: ignore[reportPrivateUsage]


def test_thoughts_are_shown_to_those_who_ask(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(model="everything", max_tokens=9, messages=HI)
    with client.messages.stream(model="everything", max_tokens=9, messages=HI) as stream:
        streamed = stream.get_final_message()

    for message in (whole, streamed):
        assert message.content[0].type == "text"


@pytest.mark.parametrize("model", ["everything", "whole", "text", "empty", "cut", "stopped"])
def test_the_clients_stream_helper_makes_the_same_of_the_pieces(
    client: anthropic.Anthropic, model: str
) -> None:
    whole = client.messages.create(
        model=model, max_tokens=9, messages=HI, thinking=THINKING, stop_sequences=["END"]
    )
    with client.messages.stream(
        model=model, max_tokens=9, messages=HI, thinking=THINKING, stop_sequences=["END"]
    ) as stream:
        streamed = stream.get_final_message()

    expected = whole.model_dump(exclude_unset=True)
    assert streamed.model_dump(include=set(expected), exclude_unset=True) == expected
    reasons = {"cut": "max_tokens", "stopped": "stop_sequence", "text": "end_turn"}
    assert streamed.stop_reason == reasons.get(model, streamed.stop_reason)


def test_events_are_the_clients_own_and_come_in_its_order(address: str) -> None:
    body = {
        "model": "everything",
        "messages": HI,
        "max_tokens": 9,
        "stream": True,
        "thinking": THINKING,
    }
    events = read_events(httpx.post(f"{address}/v1/messages", json=body, timeout=60).content)

    events = [event for event in events if event.name != "ping"]
    adapter = TypeAdapter[RawMessageStreamEvent](RawMessageStreamEvent)
    read = [adapter.validate_json(event.data) for event in events]
    assert [event.name for event in events] == [event.type for event in read]
    kinds = [
        event.delta.type if event.type == "content_block_delta" else event.type for event in read
    ]
    assert kinds == [
        "message_start",
        "content_block_start",
        *["thinking_delta"] * 2,
        *["signature_delta", "content_block_stop"],
        "content_block_start",
        *["text_delta"] * 3,
        "content_block_stop",
        *["content_block_start", "input_json_delta", "content_block_stop"] * 2,
        *["message_delta", "message_stop"],
    ]
    places = [
        place for event in events if (place := json.loads(event.data).get("index")) is not None
    ]
    assert places == sorted(places)


def test_arguments_that_are_no_json_do_not_break_the_client(
    client: anthropic.Anthropic, gateway: ScriptedGateway
) -> None:
    with client.messages.stream(model="broken_call", max_tokens=9, messages=HI) as stream:
        streamed = stream.get_final_message()
    whole = client.messages.create(model="broken_call", max_tokens=9, messages=HI)

    for message in (whole, streamed):
        block = message.content[0]
        assert block.type == "tool_use"
        assert block.input == {"INVALID_JSON": '{"city" "Paris"'}
    client.messages.create(
        model="text",
        max_tokens=9,
        messages=[
            *HI,
            {"role": "assistant", "content": streamed.content},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "call_a", "content": "Eh?"}],
            },
        ],
    )
    assert gateway.last.messages[1].tool_calls == (
        ToolCall(id="call_a", name="weather", arguments='{"city" "Paris"'),
    )


def test_everything_that_the_client_sends_is_read(
    client: anthropic.Anthropic, gateway: ScriptedGateway
) -> None:
    client.messages.create(
        model="text",
        max_tokens=9,
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
            {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
        ],
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "call_a", "name": "weather", "input": {"a": 1}},
                    {"type": "tool_use", "id": "call_b", "name": "weather", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_a",
                        "content": [{"type": "text", "text": "Rain"}],
                    },
                    {"type": "tool_result", "tool_use_id": "call_b", "content": "Sun"},
                    {"type": "text", "text": "Well?"},
                ],
            },
        ],
        tools=TOOLS,
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        stop_sequences=["END"],
        extra_body={"temperature": 0.5, "top_k": 5, "longhaul": {"train": False}},
    )

    asked = gateway.last
    picture = asked.messages[1].content[1]
    assert isinstance(picture, Picture)
    assert asked.messages == (
        Message(role="system", content="Be brief."),
        Message(role="user", content=("What is this?", picture)),
        Message(
            role="assistant",
            content="I look.",
            reasoning="Hm.",
            tool_calls=(
                ToolCall(id="call_a", name="weather", arguments='{"a": 1}'),
                ToolCall(id="call_b", name="weather", arguments="{}"),
            ),
        ),
        Message(role="tool", content="Rain", tool_call_id="call_a"),
        Message(role="tool", content="Sun", tool_call_id="call_b"),
        Message(role="user", content="Well?"),
    )
    schema = '{"type": "object"}'
    assert asked.tools == (Tool(name="weather", description="Now.", parameters=schema),)
    assert asked.altered == {"top_k": 5, "tool_choice": "required", "parallel_tool_calls": False}
    assert (asked.max_tokens, asked.temperature, asked.stop) == (9, 0.5, ("END",))
    assert asked.credit == CreditReport(train=False)


def test_what_the_client_got_is_what_it_sends_back(
    client: anthropic.Anthropic, gateway: ScriptedGateway
) -> None:
    message = client.messages.create(
        model="everything", max_tokens=9, messages=HI, thinking=THINKING
    )
    client.messages.create(
        model="text",
        max_tokens=9,
        messages=[
            *HI,
            {"role": "assistant", "content": message.content},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "call_a", "content": "Rain"}],
            },
        ],
    )

    assert gateway.last.messages[1] == Message(
        role="assistant",
        content="Hello, wörld\n",
        reasoning="Let me see.",
        tool_calls=(
            ToolCall(id="call_a", name="weather", arguments='{"city": "Paris"}'),
            ToolCall(id="call_b", name="clock", arguments="{}"),
        ),
    )


SEARCH: Any = {"name": "search", "input_schema": {"type": "object"}}
CLOCK: Any = {
    "name": "clock",
    "description": "Tells “now”.",
    "input_schema": {"type": "object", "properties": {"zone": {"type": "string"}}},
    "defer_loading": True,
}
PLACEHOLDER: Any = {**CLOCK, "name": "placeholder"}
READ_CLOCK = Tool(
    name="clock",
    description="Tells “now”.",
    parameters='{"type": "object", "properties": {"zone": {"type": "string"}}}',
)


def found(*names: str) -> list[Any]:
    """A conversation in which a search has found tools."""
    call: Any = {"type": "tool_use", "id": "call_a", "name": "search", "input": {}}
    references = [{"type": "tool_reference", "tool_name": name} for name in names]
    result = {"type": "tool_result", "tool_use_id": "call_a", "content": references}
    return [
        *HI,
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]


def test_a_deferred_tool_is_told_of_where_a_result_refers_to_it(
    client: anthropic.Anthropic, gateway: ScriptedGateway
) -> None:
    tools = [SEARCH, CLOCK, PLACEHOLDER]
    client.messages.create(model="text", max_tokens=9, messages=HI, tools=tools)
    before = gateway.last
    client.messages.create(model="text", max_tokens=9, messages=found("clock"), tools=tools)
    after = gateway.last

    assert [tool.name for tool in before.tools] == [tool.name for tool in after.tools] == ["search"]
    assert (before.loaded_tools, after.loaded_tools) == ((), (READ_CLOCK,))
    first, told, last = after.messages[-1].text.split("\n")
    assert (first, last) == ("<functions>", "</functions>")
    schema = told.removeprefix("<function>").removesuffix("</function>")
    assert json.loads(schema) == {
        "description": READ_CLOCK.description,
        "name": "clock",
        "parameters": json.loads(READ_CLOCK.parameters),
    }
    assert "“now”" in schema


def test_tools_that_are_referred_to_among_texts_stand_where_they_were(
    client: anthropic.Anthropic, gateway: ScriptedGateway
) -> None:
    messages = found("clock", "search")
    content = messages[-1]["content"][0]["content"]
    content.insert(0, {"type": "text", "text": "Found:"})
    content.append({"type": "text", "text": "That is all."})
    client.messages.create(model="text", max_tokens=9, messages=messages, tools=[SEARCH, CLOCK])

    before, told, after = gateway.last.messages[-1].content
    assert (before, after) == ("Found:", "That is all.")
    assert isinstance(told, str)
    assert [line.partition('"name": ')[2][:7] for line in told.split("\n")[1:-1]] == [
        '"clock"',
        '"search',
    ]
    assert gateway.last.loaded_tools == (READ_CLOCK,), "the other one was offered"


@pytest.mark.parametrize(
    "tools",
    [
        [{"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}, SEARCH],
        [{**SEARCH, "defer_loading": True}],
    ],
    ids=["the vendor's server would search", "nothing else is offered"],
)
def test_deferred_tools_that_no_client_can_load_are_offered_at_once(
    client: anthropic.Anthropic, gateway: ScriptedGateway, tools: list[Any]
) -> None:
    client.messages.create(model="text", max_tokens=9, messages=HI, tools=[CLOCK, *tools])

    assert [tool.name for tool in gateway.last.tools] == ["clock", "search"]
    assert gateway.last.loaded_tools == ()


def test_a_tool_that_is_demanded_may_be_a_loaded_one(
    client: anthropic.Anthropic, gateway: ScriptedGateway
) -> None:
    demanded: Any = {"type": "tool", "name": "clock"}
    asked: dict[str, Any] = {"model": "text", "max_tokens": 9, "tools": [SEARCH, CLOCK]}
    client.messages.create(messages=found("clock"), tool_choice=demanded, **asked)

    assert gateway.last.altered == {"tool_choice": {"name": "clock"}}
    with pytest.raises(anthropic.BadRequestError, match=r"tool_choice\.name is 'clock'"):
        client.messages.create(messages=HI, tool_choice=demanded, **asked)
    client.messages.create(messages=found("clock"), tool_choice={"type": "none"}, **asked)
    assert (gateway.last.tools, gateway.last.loaded_tools) == ((), ())


def test_a_reference_to_no_tool_is_refused(client: anthropic.Anthropic) -> None:
    place = r"messages\[2\]\.content\[0\]\.content\[0\]\.tool_name is 'clock'"
    with pytest.raises(anthropic.BadRequestError, match=place):
        client.messages.create(
            model="text", max_tokens=9, messages=found("clock"), tools=[SEARCH, PLACEHOLDER]
        )


def test_tokens_are_counted_of_the_same_prompt(
    client: anthropic.Anthropic, gateway: ScriptedGateway
) -> None:
    counted = client.messages.count_tokens(
        model="text", messages=HI, system="Be brief.", tools=TOOLS
    )

    assert counted.input_tokens == 42
    assert gateway.last.messages[0] == Message(role="system", content="Be brief.")
    assert [tool.name for tool in gateway.last.tools] == ["weather"]


def test_errors_are_the_clients_own_before_and_in_the_midst_of_a_stream(
    client: anthropic.Anthropic,
) -> None:
    for stream in (False, True):
        with pytest.raises(anthropic.BadRequestError, match="8 calls of 8 are made"):
            client.messages.create(model="refused", max_tokens=9, messages=HI, stream=stream)
    text = ""
    with pytest.raises(anthropic.APIStatusError, match="the endpoint is away"):
        with client.messages.stream(model="fails", max_tokens=9, messages=HI) as stream:
            for piece in stream.text_stream:
                text += piece
    assert text == "Hello, wörld\n"


def test_the_asynchronous_client_streams_too(address: str) -> None:
    async def stream() -> str:
        async with anthropic.AsyncAnthropic(base_url=address, api_key="key") as client:
            async with client.messages.stream(model="text", max_tokens=9, messages=HI) as stream:
                return await stream.get_final_text()

    assert asyncio.run(stream()) == "Hello, wörld\n"


@pytest.mark.parametrize(
    ("further", "named"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"mcp_servers": [{"url": "https://a.b"}]}, "mcp_servers"),
        ({"messages": [*HI, {"role": "assistant", "content": "{"}]}, "messages[1]"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"thinking": {"type": "deep"}}, "thinking.type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice.type"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image", "source": {"type": "url", "url": "https://a.b/c"}}
                        ],
                    }
                ]
            },
            "messages[0].content[0].source.type",
        ),
    ],
)
def test_what_is_not_understood_is_named(
    client: anthropic.Anthropic, further: dict[str, object], named: str
) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(model="text", max_tokens=9, messages=HI, extra_body=further)

    assert caught.value.response.json()["error"]["message"].startswith(f"{named} is ")
