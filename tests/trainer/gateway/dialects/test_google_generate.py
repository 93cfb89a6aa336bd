"""generateContent, read and written by Google's own client."""

import asyncio
import base64
from collections.abc import Iterator

import httpx
import pytest
from google import genai
from google.genai import errors, types

from longhaul_core.types import Message, Picture, Tool, ToolCall
from longhaul_trainer.gateway.dialects.google_generate import GoogleGenerate
from longhaul_trainer.gateway.exchange import CreditReport
from reading_events import read_events
from scripted_gateway import ScriptedGateway

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
THINKING = types.GenerateContentConfig(
    thinking_config=types.ThinkingConfig(include_thoughts=True),
)
WEATHER = types.FunctionDeclaration(
    name="weather",
    description="Now.",
    parameters=types.Schema(
        type=types.Type.OBJECT,
        properties={"city": types.Schema(type=types.Type.STRING, nullable=True, max_length=9)},
        required=["city"],
    ),
)


@pytest.fixture(scope="module")
def client(serving: tuple[ScriptedGateway, str]) -> Iterator[genai.Client]:
    client = genai.Client(api_key="key", http_options=types.HttpOptions(base_url=serving[1]))
    yield client
    client.close()


def parts_of(response: types.GenerateContentResponse) -> list[types.Part]:
    """Parts of the only candidate."""
    assert response.candidates
    content = response.candidates[0].content
    assert content is not None
    return content.parts or []


def joined(parts: list[types.Part]) -> tuple[str, str, list[types.FunctionCall]]:
    """Thoughts, text and calls of a reply."""
    return (
        "".join(part.text or "" for part in parts if part.thought),
        "".join(part.text or "" for part in parts if not part.thought),
        [part.function_call for part in parts if part.function_call],
    )


def test_a_whole_reply_is_what_was_written(client: genai.Client) -> None:
    response = client.models.generate_content(model="everything", contents="Hi", config=THINKING)

    thought, text, *calls = parts_of(response)
    assert (thought.text, thought.thought) == ("Let me see.", True)
    assert text.text == "Hello, wörld\n"
    assert [call.function_call for call in calls] == [
        types.FunctionCall(id="call_a", name="weather", args={"city": "Paris"}),
        types.FunctionCall(id="call_b", name="clock", args={}),
    ]
    assert response.candidates is not None
    assert response.candidates[0].finish_reason is types.FinishReason.STOP
    assert (response.response_id, response.model_version) == ("0123abcd", "everything")
    assert response.usage_metadata is not None
    assert response.usage_metadata.total_token_count == 18


def test_tokens_have_their_texts_and_ids_beside_their_logprobs(client: genai.Client) -> None:
    config = types.GenerateContentConfig(response_logprobs=True)
    response = client.models.generate_content(model="text", contents="Hi", config=config)

    assert response.candidates is not None
    result = response.candidates[0].logprobs_result
    assert result is not None
    assert [
        (one.token, one.token_id, one.log_probability) for one in result.chosen_candidates or []
    ] == [("Hello, w\\xc3", 5, -0.5), ("\\xb6rld\n", 6, -0.25)]


@pytest.mark.parametrize("model", ["everything", "whole", "text", "cut"])
def test_a_stream_has_the_same_parts(client: genai.Client, model: str) -> None:
    whole = client.models.generate_content(model=model, contents="Hi", config=THINKING)
    chunks = list(
        client.models.generate_content_stream(model=model, contents="Hi", config=THINKING)
    )

    streamed = [part for chunk in chunks for part in parts_of(chunk)]
    assert joined(streamed) == joined(parts_of(whole))
    assert chunks[-1].candidates
    assert whole.candidates
    assert chunks[-1].candidates[0].finish_reason == whole.candidates[0].finish_reason
    assert chunks[-1].usage_metadata == whole.usage_metadata


def test_chunks_are_the_clients_own(address: str) -> None:
    events = read_events(
        httpx.post(
            f"{address}/v1/models/everything:streamGenerateContent?alt=sse",
            json={"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
            timeout=60,
        ).content
    )

    chunks = [types.GenerateContentResponse.model_validate_json(event.data) for event in events]
    assert all(event.name is None for event in events)
    reasons = [chunk.candidates[0].finish_reason for chunk in chunks if chunk.candidates]
    assert reasons == [*[None] * (len(chunks) - 1), types.FinishReason.STOP]
    assert {chunk.response_id for chunk in chunks} == {"0123abcd"}
    assert not any(part.thought for chunk in chunks for part in parts_of(chunk))


def test_everything_that_the_client_sends_is_read(
    client: genai.Client, gateway: ScriptedGateway
) -> None:
    client.models.generate_content(
        model="two",
        contents=[
            types.UserContent(
                parts=[
                    types.Part(text="What is this?"),
                    types.Part.from_bytes(data=base64.b64decode(PNG), mime_type="image/png"),
                ]
            ),
            types.ModelContent(
                parts=[
                    types.Part(text="Hm.", thought=True),
                    types.Part(text="I look."),
                    types.Part.from_function_call(name="weather", args={"city": "Paris"}),
                    types.Part.from_function_call(name="weather", args={"city": "Rome"}),
                ]
            ),
            types.UserContent(
                parts=[
                    types.Part.from_function_response(name="weather", response={"result": "Rain"}),
                    types.Part.from_function_response(name="weather", response={"result": "Sun"}),
                ]
            ),
        ],
        config=types.GenerateContentConfig(
            system_instruction="Be brief.",
            temperature=0.5,
            top_p=0.9,
            top_k=40,
            candidate_count=2,
            max_output_tokens=9,
            stop_sequences=["END"],
            presence_penalty=0.5,
            seed=3,
            response_mime_type="application/json",
            safety_settings=[],
            tools=[types.Tool(function_declarations=[WEATHER])],
            tool_config=types.ToolConfig(
                function_calling_config=types.FunctionCallingConfig(
                    mode=types.FunctionCallingConfigMode.ANY
                )
            ),
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
            http_options=types.HttpOptions(extra_body={"longhaul": {"anchor_state": "hall"}}),
        ),
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
                ToolCall(id="call_1", name="weather", arguments='{"city": "Paris"}'),
                ToolCall(id="call_2", name="weather", arguments='{"city": "Rome"}'),
            ),
        ),
        Message(role="tool", content='{"result": "Rain"}', tool_call_id="call_1"),
        Message(role="tool", content='{"result": "Sun"}', tool_call_id="call_2"),
    )
    schema = (
        '{"type": "object", "properties": {"city": {"maxLength": 9, "type": ["string", "null"]}}, '
        '"required": ["city"]}'
    )
    (tool,) = asked.tools
    assert (tool.name, tool.description) == ("weather", "Now.")
    assert sorted(tool.parameters) == sorted(schema)
    assert asked.altered == {
        "presence_penalty": 0.5,
        "top_k": 40,
        "structured_outputs": {"json_object": True},
        "tool_choice": "required",
    }
    assert (asked.temperature, asked.top_p, asked.num_choices) == (0.5, 0.9, 2)
    assert (asked.max_tokens, asked.stop) == (9, ("END",))
    assert asked.credit == CreditReport(anchor_state="hall")


def test_what_the_client_got_is_what_it_sends_back(
    client: genai.Client, gateway: ScriptedGateway
) -> None:
    chat = client.chats.create(model="everything", config=THINKING)
    chat.send_message("Hi")  # pyright: ignore[reportUnknownMemberType]
    chat.send_message(  # pyright: ignore[reportUnknownMemberType]
        [types.Part.from_function_response(name="clock", response={"result": "Noon"})]
    )

    assert gateway.last.messages == (
        Message(role="user", content="Hi"),
        Message(
            role="assistant",
            content="Hello, wörld\n",
            reasoning="Let me see.",
            tool_calls=(
                ToolCall(id="call_a", name="weather", arguments='{"city": "Paris"}'),
                ToolCall(id="call_b", name="clock", arguments="{}"),
            ),
        ),
        Message(role="tool", content='{"result": "Noon"}', tool_call_id="call_b"),
    )


def test_a_field_may_have_its_name_in_snake_case() -> None:
    asked = GoogleGenerate().read(
        {
            "system_instruction": {"parts": [{"text": "Be brief."}]},
            "contents": [{"parts": [{"text": "Hi"}]}],
            "generation_config": {"max_output_tokens": 9},
            "tools": [
                {
                    "function_declarations": [
                        {"name": "f", "parameters_json_schema": {"type": "object"}}
                    ]
                }
            ],
        },
        path={"model": "m", "method": "generateContent"},
    )

    assert asked.messages[0] == Message(role="system", content="Be brief.")
    assert asked.tools == (Tool(name="f", parameters='{"type": "object"}'),)
    assert (asked.max_tokens, asked.stream) == (9, False)


def test_malformed_arguments_are_told_by_the_finish_reason(client: genai.Client) -> None:
    whole = client.models.generate_content(model="broken_call", contents="Hi")
    *_, last = client.models.generate_content_stream(model="broken_call", contents="Hi")

    for response in (whole, last):
        assert response.candidates
        reason = response.candidates[0].finish_reason
        assert reason is types.FinishReason.MALFORMED_FUNCTION_CALL
        assert not response.function_calls


def test_tokens_are_counted_of_the_same_prompt(
    client: genai.Client, gateway: ScriptedGateway
) -> None:
    counted = client.models.count_tokens(model="text", contents="Hi")

    assert counted.total_tokens == 42
    assert gateway.last.messages == (Message(role="user", content="Hi"),)


def test_errors_are_the_clients_own_before_and_in_the_midst_of_a_stream(
    client: genai.Client,
) -> None:
    with pytest.raises(errors.ClientError, match="8 calls of 8 are made") as caught:
        client.models.generate_content(model="refused", contents="Hi")
    assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")
    with pytest.raises(errors.ClientError, match="8 calls of 8 are made"):
        list(client.models.generate_content_stream(model="refused", contents="Hi"))
    text = ""
    with pytest.raises(errors.ServerError, match="the endpoint is away"):
        for chunk in client.models.generate_content_stream(model="fails", contents="Hi"):
            text += chunk.text or ""
    assert text == "Hello, wörld\n"


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
def test_the_asynchronous_client_streams_too(address: str) -> None:
    async def stream() -> str:
        options = types.HttpOptions(base_url=address)
        async with genai.Client(api_key="key", http_options=options).aio as client:
            text = ""
            async for chunk in await client.models.generate_content_stream(
                model="text", contents="Hi"
            ):
                text += chunk.text or ""
            return text

    assert asyncio.run(stream()) == "Hello, wörld\n"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"contents": []}, "contents"),
        ({"contents": [{"role": "system", "parts": [{"text": "x"}]}]}, "contents[0].role"),
        ({"contents": [{"parts": [{"fileData": {"fileUri": "gs://a"}}]}]}, "contents[0].parts[0]"),
        ({"contents": [{"role": "model", "parts": [{"text": "x"}]}]}, "contents[0]"),
        (
            {"contents": [{"parts": [{"functionResponse": {"name": "f"}}]}]},
            "contents[0].parts[0].functionResponse",
        ),
        ({"cachedContent": "caches/1"}, "cachedContent"),
        ({"generationConfig": {"topP": 2}}, "generationConfig.topP"),
        ({"generationConfig": {"speechConfig": {"a": 1}}}, "generationConfig.speechConfig"),
    ],
)
def test_what_is_not_understood_is_named(address: str, body: dict[str, object], named: str) -> None:
    contents = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    answer = httpx.post(
        f"{address}/v1/models/text:generateContent", json={**contents, **body}, timeout=60
    )

    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(f"{named} is ")
