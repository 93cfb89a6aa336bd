"""Chat completions, read and written by OpenAI's own client."""

import asyncio
from collections.abc import Iterator

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionChunk, ChatCompletionToolParam
from pydantic import BaseModel

from longhaul_core.types import Message, Picture, Tool, ToolCall
from longhaul_trainer.gateway.exchange import CreditReport
from reading_events import read_events
from scripted_gateway import ScriptedGateway

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Now.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


class City(BaseModel):
    city: str


@pytest.fixture(scope="module")
def client(serving: tuple[ScriptedGateway, str]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{serving[1]}/v1", api_key="key", max_retries=0) as client:
        yield client


def test_a_whole_reply_is_what_was_written(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(
        model="everything", messages=[{"role": "user", "content": "Hi"}]
    )

    choice = completion.choices[0]
    assert (completion.id, completion.model) == ("chatcmpl-0123abcd", "everything")
    assert choice.message.content == "Hello, wörld\n"
    assert choice.message.model_extra == {"reasoning_content": "Let me see."}
    assert [
        (call.id, call.function.name, call.function.arguments)
        for call in choice.message.tool_calls or []
        if call.type == "function"
    ] == [("call_a", "weather", '{"city": "Paris"}'), ("call_b", "clock", "{}")]
    assert choice.finish_reason == "tool_calls"
    assert completion.usage is not None
    assert completion.usage.total_tokens == 18
    assert completion.usage.prompt_tokens_details is not None
    assert completion.usage.prompt_tokens_details.cached_tokens == 3
    assert completion._request_id == "req_0123abcd"  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("model", ["everything", "whole"])
def test_the_clients_stream_helper_makes_the_same_of_the_pieces(
    client: openai.OpenAI, model: str
) -> None:
    with client.chat.completions.stream(
        model=model,
        messages=[{"role": "user", "content": "Hi"}],
        stream_options={"include_usage": True},
    ) as stream:
        completion = stream.get_final_completion()
    whole = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Hi"}]
    )

    message, expected = completion.choices[0].message, whole.choices[0].message
    assert message.content == expected.content
    assert [call.function for call in message.tool_calls or [] if call.type == "function"]
    assert [
        (call.id, call.function.name, call.function.arguments) for call in message.tool_calls or []
    ] == [
        (call.id, call.function.name, call.function.arguments)
        for call in expected.tool_calls or []
        if call.type == "function"
    ]
    assert completion.choices[0].finish_reason == whole.choices[0].finish_reason
    assert completion.usage == whole.usage


def test_chunks_are_the_clients_own_and_come_in_its_order(address: str) -> None:
    body = {
        "model": "everything",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    events = read_events(
        httpx.post(f"{address}/v1/chat/completions", json=body, timeout=60).content
    )

    assert [event.name for event in events] == [None] * len(events)
    assert events.pop().data == "[DONE]"
    chunks = [ChatCompletionChunk.model_validate_json(event.data) for event in events]
    assert {(chunk.id, chunk.created) for chunk in chunks} == {(chunks[0].id, chunks[0].created)}
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all('"usage":null' in event.data for event in events[:-1])
    assert chunks[-1].usage is not None
    assert chunks[-1].choices == []
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [
        *[None] * (len(chunks) - 2),
        "tool_calls",
    ]
    calls = [call for chunk in chunks[:-1] for call in chunk.choices[0].delta.tool_calls or []]
    assert [(call.index, call.id, call.function and call.function.name) for call in calls] == [
        (0, "call_a", "weather"),
        (0, None, None),
        (0, None, None),
        (1, "call_b", "clock"),
        (1, None, None),
    ]


def test_choices_are_streamed_side_by_side(client: openai.OpenAI) -> None:
    texts = ["", ""]
    for chunk in client.chat.completions.create(
        model="two", n=2, stream=True, messages=[{"role": "user", "content": "Hi"}]
    ):
        assert chunk.usage is None
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""

    assert texts == ["Hello, wörld\n", "Another"]


@pytest.mark.parametrize(("model", "word"), [("cut", "length"), ("stopped", "stop")])
def test_the_reason_for_the_end_is_passed_on(client: openai.OpenAI, model: str, word: str) -> None:
    completion = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Hi"}], stop=["END"]
    )

    assert completion.choices[0].finish_reason == word


def test_everything_that_the_client_sends_is_read(
    client: openai.OpenAI, gateway: ScriptedGateway
) -> None:
    client.chat.completions.create(
        model="text",
        messages=[
            {"role": "developer", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_a",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city":1}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_a", "content": "Rain"},
        ],
        tools=TOOLS,
        tool_choice="auto",
        temperature=0.5,
        top_p=0.9,
        max_completion_tokens=99,
        stop="END",
        frequency_penalty=0.5,
        presence_penalty=0,
        logit_bias={"7": -100},
        seed=3,
        user="me",
        store=False,
        metadata={"a": "b"},
        extra_body={"top_k": 40, "longhaul": {"reward": 1, "agent": "planner"}},
        extra_headers={"Longhaul-Anchor-State": "kitchen", "Idempotency-Key": "once"},
    )

    asked = gateway.last
    picture = asked.messages[1].content[1]
    assert isinstance(picture, Picture)
    assert picture.media_type == "image/png"
    assert asked.messages == (
        Message(role="system", content="Be brief."),
        Message(role="user", content=("What is this?", picture)),
        Message(
            role="assistant",
            content="",
            tool_calls=(ToolCall(id="call_a", name="weather", arguments='{"city":1}'),),
        ),
        Message(role="tool", content="Rain", tool_call_id="call_a"),
    )
    schema = '{"type": "object", "properties": {"city": {"type": "string"}}}'
    assert asked.tools == (Tool(name="weather", description="Now.", parameters=schema),)
    assert (asked.temperature, asked.top_p, asked.max_tokens) == (0.5, 0.9, 99)
    assert asked.stop == ("END",)
    assert asked.altered == {"frequency_penalty": 0.5, "logit_bias": {"7": -100.0}, "top_k": 40}
    assert asked.credit == CreditReport(reward=1.0, anchor_state="kitchen", agent="planner")
    assert asked.idempotency_key == "once"


def test_what_the_client_got_is_what_it_sends_back(
    client: openai.OpenAI, gateway: ScriptedGateway
) -> None:
    completion = client.chat.completions.create(
        model="everything", messages=[{"role": "user", "content": "Hi"}]
    )
    client.chat.completions.create(
        model="text",
        messages=[
            {"role": "user", "content": "Hi"},
            completion.choices[0].message,  # pyright: ignore[reportArgumentType]
            {"role": "tool", "tool_call_id": "call_a", "content": "Rain"},
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


def test_a_parsed_reply_is_a_constraint_on_its_form(
    client: openai.OpenAI, gateway: ScriptedGateway
) -> None:
    completion = client.chat.completions.parse(
        model="json", messages=[{"role": "user", "content": "Hi"}], response_format=City
    )

    assert completion.choices[0].message.parsed == City(city="Paris")
    constraint = gateway.last.altered["structured_outputs"]
    assert isinstance(constraint, dict)
    assert constraint["json"]["required"] == ["city"]


@pytest.mark.parametrize(
    ("choice", "names", "altered"),
    [
        ("none", [], {}),
        ("auto", ["weather"], {}),
        ("required", ["weather"], {"tool_choice": "required"}),
        (
            {"type": "function", "function": {"name": "weather"}},
            ["weather"],
            {"tool_choice": {"name": "weather"}},
        ),
    ],
)
def test_the_choice_of_tools_is_read(
    client: openai.OpenAI,
    gateway: ScriptedGateway,
    choice: object,
    names: list[str],
    altered: dict[str, object],
) -> None:
    client.chat.completions.create(
        model="text",
        messages=[{"role": "user", "content": "Hi"}],
        tools=TOOLS,
        tool_choice=choice,  # pyright: ignore[reportArgumentType]
    )

    assert [tool.name for tool in gateway.last.tools] == names
    assert gateway.last.altered == altered


def test_tokens_and_logprobs_come_back_where_they_are_asked_for(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(
        model="text",
        messages=[{"role": "user", "content": "Hi"}],
        logprobs=True,
        extra_body={"return_token_ids": True},
    )

    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    tokens = logprobs.content or []
    assert [(one.token, one.logprob) for one in tokens] == [
        ("Hello, w\\xc3", -0.5),  # a half of a character, as OpenAI's server writes it
        ("\\xb6rld\n", -0.25),
    ]
    said = completion.choices[0].message.content
    assert b"".join(bytes(one.bytes or ()) for one in tokens).decode() == said
    assert completion.model_extra == {"prompt_token_ids": [1, 2, 3]}
    assert completion.choices[0].model_extra == {"token_ids": [5, 6]}


def test_tokens_have_their_ids_for_names_where_that_is_asked_for(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(
        model="text",
        messages=[{"role": "user", "content": "Hi"}],
        logprobs=True,
        extra_body={"return_tokens_as_token_ids": True},
    )

    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    assert [one.token for one in logprobs.content or []] == ["token_id:5", "token_id:6"]


def test_errors_before_the_first_piece_have_their_status(client: openai.OpenAI) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="8 calls of 8 are made") as caught:
            client.chat.completions.create(
                model="refused", messages=[{"role": "user", "content": "Hi"}], stream=stream
            )
        assert caught.value.code == "episode_limit_reached"


def test_errors_in_the_midst_of_a_stream_reach_the_program(client: openai.OpenAI) -> None:
    text = ""
    with pytest.raises(openai.APIError, match="the endpoint is away"):
        for chunk in client.chat.completions.create(
            model="fails", messages=[{"role": "user", "content": "Hi"}], stream=True
        ):
            text += chunk.choices[0].delta.content or ""
    assert text == "Hello, wörld\n"


def test_an_interrupted_reply_is_an_error_that_the_client_repeats(
    client: openai.OpenAI,
) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(
            model="aborted", messages=[{"role": "user", "content": "Hi"}]
        )

    assert caught.value.status_code == 503
    assert caught.value.response.headers["x-should-retry"] == "true"


def test_the_asynchronous_client_streams_too(address: str) -> None:
    async def stream() -> str:
        text = ""
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="key") as client:
            async for chunk in await client.chat.completions.create(
                model="text", messages=[{"role": "user", "content": "Hi"}], stream=True
            ):
                text += chunk.choices[0].delta.content or ""
        return text

    assert asyncio.run(stream()) == "Hello, wörld\n"


@pytest.mark.parametrize(
    ("further", "parameter"),
    [
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"temperature": 3}, "temperature"),
        ({"n": True}, "n"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}
                        ],
                    }
                ]
            },
            "messages[0].content[0].image_url.url",
        ),
        ({"longhaul": {"reward": "much"}}, "longhaul.reward"),
        ({"longhaul": {"rewards": 1}}, "longhaul.rewards"),
    ],
)
def test_what_is_not_understood_is_named(
    client: openai.OpenAI, further: dict[str, object], parameter: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model="text", messages=[{"role": "user", "content": "Hi"}], extra_body=further
        )

    assert caught.value.param == parameter
