"""Responses, read and written by OpenAI's own client."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import (
    Response,
    ResponseFunctionToolCall,
    ResponseInputParam,
    ResponseStreamEvent,
)
from pydantic import BaseModel, TypeAdapter

from longhaul_core.policy import ReplyPart
from longhaul_core.types import Message, Picture, Tool, ToolCall
from longhaul_trainer.gateway.dialects.openai_responses import OpenAIResponses
from longhaul_trainer.gateway.exchange import ApiError
from reading_events import read_events
from scripted_gateway import Script, ScriptedGateway

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
REPLIED = Message(
    role="assistant",
    content="Hello, wörld\n",
    reasoning="Let me see.",
    tool_calls=(
        ToolCall(id="call_a", name="weather", arguments='{"city": "Paris"}'),
        ToolCall(id="call_b", name="clock", arguments="{}"),
    ),
)


class City(BaseModel):
    city: str


@pytest.fixture(scope="module")
def client(serving: tuple[ScriptedGateway, str]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{serving[1]}/v1", api_key="key", max_retries=0) as client:
        yield client


def test_a_whole_reply_is_what_was_written(client: openai.OpenAI) -> None:
    response = client.responses.create(
        model="everything", input="Hi", instructions="Be brief.", metadata={"a": "b"}
    )

    assert (response.id, response.status) == ("resp_0123abcd", "completed")
    assert [item.type for item in response.output] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    assert response.output_text == "Hello, wörld\n"
    calls = [item for item in response.output if isinstance(item, ResponseFunctionToolCall)]
    assert [(call.call_id, call.name, call.arguments) for call in calls] == [
        ("call_a", "weather", '{"city": "Paris"}'),
        ("call_b", "clock", "{}"),
    ]
    assert (response.instructions, response.metadata) == ("Be brief.", {"a": "b"})
    assert response.usage is not None
    assert response.usage.input_tokens_details.cached_tokens == 3
    Response.model_validate(response.model_dump())


@pytest.mark.parametrize("model", ["everything", "whole", "text", "empty", "json"])
def test_the_clients_stream_helper_makes_the_same_of_the_pieces(
    client: openai.OpenAI, model: str
) -> None:
    whole = client.responses.create(model=model, input="Hi")
    with client.responses.stream(model=model, input="Hi") as stream:
        helped = stream.get_final_response()
    last = list(client.responses.create(model=model, input="Hi", stream=True))[-1]

    assert last.type == "response.completed"
    begun_apart = {"created_at"}
    assert last.response.model_dump(exclude=begun_apart) == whole.model_dump(exclude=begun_apart)
    assert helped.output_text == whole.output_text
    assert [
        (item.call_id, item.arguments) for item in helped.output if item.type == "function_call"
    ] == [(item.call_id, item.arguments) for item in whole.output if item.type == "function_call"]


def test_events_are_the_clients_own_and_come_in_its_order(address: str) -> None:
    body = {"model": "everything", "input": "Hi", "stream": True}
    events = read_events(httpx.post(f"{address}/v1/responses", json=body, timeout=60).content)

    adapter = TypeAdapter[ResponseStreamEvent](ResponseStreamEvent)
    read = [adapter.validate_json(event.data) for event in events]
    assert [event.name for event in events] == [event.type for event in read]
    assert [event.sequence_number for event in read] == list(range(len(read)))
    assert [event.type.removeprefix("response.") for event in read] == [
        *["created", "in_progress"],
        *["output_item.added", "content_part.added"],
        *["reasoning_text.delta"] * 2,
        *["reasoning_text.done", "content_part.done", "output_item.done"],
        *["output_item.added", "content_part.added"],
        *["output_text.delta"] * 3,
        *["output_text.done", "content_part.done", "output_item.done"],
        "output_item.added",
        *["function_call_arguments.delta"] * 2,
        *["function_call_arguments.done", "output_item.done"],
        "output_item.added",
        *["function_call_arguments.delta"] * 2,
        *["function_call_arguments.done", "output_item.done"],
        "completed",
    ]
    places: list[int] = [json.loads(event.data)["output_index"] for event in events[2:-1]]
    assert places == sorted(places)
    last = read[-1]
    assert last.type == "response.completed"
    assert [item.type for item in last.response.output] == [
        event.item.type for event in read if event.type == "response.output_item.done"
    ]


ASK = {"type": "function", "name": "ask", "parameters": {"type": "object"}}
PATCH = {"type": "update_file", "path": "a.py", "diff": "+x"}
HERE = {"type": "local"}


@pytest.mark.parametrize(
    ("tool", "name", "arguments", "item"),
    [
        (
            {"type": "custom", "name": "patch", "description": "Patches."},
            "patch",
            {"input": "+x\n"},
            {"type": "custom_tool_call", "name": "patch", "input": "+x\n"},
        ),
        (
            {"type": "local_shell"},
            "local_shell",
            {"command": ["ls", "-l"]},
            {
                "type": "local_shell_call",
                "action": {"type": "exec", "command": ["ls", "-l"], "env": {}},
            },
        ),
        (
            {"type": "shell", "environment": HERE},
            "shell",
            {"commands": ["ls"], "timeout_ms": 9},
            {"type": "shell_call", "action": {"commands": ["ls"], "timeout_ms": 9}},
        ),
        (
            {"type": "apply_patch"},
            "apply_patch",
            PATCH,
            {"type": "apply_patch_call", "operation": PATCH},
        ),
        (
            {"type": "namespace", "name": "team", "description": "", "tools": [ASK]},
            "team__ask",
            {"whom": "Ann"},
            {
                "type": "function_call",
                "name": "ask",
                "namespace": "team",
                "arguments": '{"whom": "Ann"}',
            },
        ),
        (  # a slip of the model
            {"type": "local_shell"},
            "local_shell",
            {"command": "ls"},
            {"type": "function_call", "name": "local_shell", "arguments": '{"command": "ls"}'},
        ),
    ],
    ids=["custom", "local_shell", "shell", "apply_patch", "namespace", "not_its_arguments"],
)
def test_a_tool_of_any_kind_is_offered_as_a_function_and_called_in_its_own_form(
    address: str,
    gateway: ScriptedGateway,
    tool: dict[str, object],
    name: str,
    arguments: dict[str, object],
    item: dict[str, object],
) -> None:
    written = json.dumps(arguments)
    pieces = [
        ReplyPart(tool_place=0, tool_id="call_a", tool_name=name, tool_arguments=written[:9]),
        ReplyPart(tool_place=0, tool_arguments=written[9:]),
    ]
    gateway.scripts["form"] = Script(choices=[pieces])
    body: dict[str, object] = {"model": "form", "input": "Hi", "tools": [tool]}

    whole = httpx.post(f"{address}/v1/responses", json=body, timeout=60).json()["output"][0]
    streamed = read_events(
        httpx.post(f"{address}/v1/responses", json={**body, "stream": True}, timeout=60).content
    )

    assert [one.name for one in gateway.last.tools] == [name]
    assert whole == {"id": "fc_0123abcd_0", "call_id": "call_a", "status": "completed"} | item
    adapter = TypeAdapter[ResponseStreamEvent](ResponseStreamEvent)
    events = [adapter.validate_json(event.data) for event in streamed]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event for event in streamed if ".delta" in (event.name or "")]
    text = item.get("input", item.get("arguments", ""))
    assert "".join(json.loads(event.data)["delta"] for event in deltas) == text
    assert json.loads(streamed[-1].data)["response"]["output"] == [whole]

    output: object = "done"
    if whole["type"] == "shell_call":
        output = [{"stdout": "done", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
    result = {"type": f"{whole['type']}_output", "call_id": "call_a", "output": output}
    sent: list[object] = [{"role": "user", "content": "Hi"}, whole, result]
    httpx.post(
        f"{address}/v1/responses", json={**body, "input": sent}, timeout=60
    ).raise_for_status()
    _, asked, told = gateway.last.messages
    assert [(one.id, one.name) for one in asked.tool_calls] == [("call_a", name)]
    assert json.loads(asked.tool_calls[0].arguments) == arguments
    assert (told.role, told.tool_call_id) == ("tool", "call_a")
    assert "done" in told.text


QUERY = {"type": "object", "properties": {"query": {"type": "string"}}}
SEARCH: Any = {
    "type": "tool_search",
    "execution": "client",
    "description": "Finds “tools”.",
    "parameters": QUERY,
}
CLOCK: Any = {
    "type": "function",
    "name": "clock",
    "description": "Tells “now”.",
    "parameters": QUERY,
    "strict": False,
    "defer_loading": True,
}
CLOCKS: Any = {"type": "namespace", "name": "mcp__time", "description": "Time.", "tools": [CLOCK]}
READ_CLOCK = Tool(name="mcp__time__clock", description="Tells “now”.", parameters=json.dumps(QUERY))
CALLED: Any = {
    "type": "tool_search_call",
    "execution": "client",
    "call_id": "call_a",
    "status": "completed",
    "arguments": {"query": "time", "limit": 4},
}


def found(*tools: Any) -> list[Any]:  # noqa: ANN401
    """A conversation in which the client has found tools, as Codex sends it."""
    output: Any = {
        "type": "tool_search_output",
        "call_id": "call_a",
        "status": "completed",
        "execution": "client",
        "tools": list(tools),
    }
    return [{"role": "user", "content": "Hi"}, CALLED, output]


def asked(address: str, **body: object) -> dict[str, Any]:
    """The answer to a request."""
    answer = httpx.post(f"{address}/v1/responses", json={"input": "Hi"} | body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def calling(name: str, arguments: str) -> Script:
    """A reply that calls a tool, in pieces."""
    return Script(
        choices=[
            [
                ReplyPart(tool_place=0, tool_id="call_a", tool_name=name),
                ReplyPart(tool_place=0, tool_arguments=arguments[:4]),
                ReplyPart(tool_place=0, tool_arguments=arguments[4:]),
            ]
        ]
    )


@pytest.mark.parametrize(
    ("arguments", "held"),
    [
        ('{"query": "time", "limit": 4}', {"query": "time", "limit": 4}),
        ('{"query": ', '{"query": '),  # a slip of the model
        ("", ""),
    ],
)
def test_a_search_by_the_client_is_a_function_whose_call_has_its_own_form(
    address: str, gateway: ScriptedGateway, arguments: str, held: object
) -> None:
    gateway.scripts["search"] = calling("tool_search", arguments)
    body: dict[str, object] = {"model": "search", "tools": [SEARCH]}

    whole = asked(address, **body)["output"][0]
    streamed = read_events(
        httpx.post(
            f"{address}/v1/responses", json={**body, "input": "Hi", "stream": True}, timeout=60
        ).content
    )

    assert gateway.last.tools == (
        Tool(name="tool_search", description="Finds “tools”.", parameters=json.dumps(QUERY)),
    )
    assert gateway.last.left_out == ()
    assert whole == {**CALLED, "id": "fc_0123abcd_0", "arguments": held}
    adapter = TypeAdapter[ResponseStreamEvent](ResponseStreamEvent)
    kinds = [adapter.validate_json(event.data).type for event in streamed]
    assert [kind.removeprefix("response.") for kind in kinds] == [
        *["created", "in_progress", "output_item.added", "output_item.done", "completed"]
    ]
    assert json.loads(streamed[-1].data)["response"]["output"] == [whole]
    asked(address, model="text", input=[{"role": "user", "content": "Hi"}, whole, *found()[2:]])
    call = gateway.last.messages[1].tool_calls[0]
    assert call == ToolCall(id="call_a", name="tool_search", arguments=arguments)


def test_tools_that_a_search_has_found_are_told_of_and_called_in_their_own_form(
    address: str, gateway: ScriptedGateway
) -> None:
    gateway.scripts["clock"] = calling("mcp__time__clock", '{"query": "now"}')
    whole = asked(address, model="clock", input=found(CLOCKS, ASK), tools=[SEARCH, ASK])

    told = gateway.last.messages[-1]
    assert (told.role, told.tool_call_id) == ("tool", "call_a")
    first, clock, ask, last = told.text.split("\n")
    assert (first, last) == ("<functions>", "</functions>")
    assert json.loads(clock.removeprefix("<function>").removesuffix("</function>")) == {
        "description": "Tells “now”.",
        "name": "mcp__time__clock",
        "parameters": QUERY,
    }
    assert '"name": "ask"' in ask
    assert [tool.name for tool in gateway.last.tools] == ["tool_search", "ask"]
    assert gateway.last.loaded_tools == (READ_CLOCK,), "the other one was offered"
    assert whole["output"][0] == {
        "type": "function_call",
        "id": "fc_0123abcd_0",
        "call_id": "call_a",
        "status": "completed",
        "name": "clock",
        "namespace": "mcp__time",
        "arguments": '{"query": "now"}',
    }


def test_a_search_that_found_nothing_says_so(address: str, gateway: ScriptedGateway) -> None:
    asked(address, model="text", input=found(), tools=[SEARCH])

    assert gateway.last.messages[-1].text == "<functions>\n</functions>"
    assert gateway.last.loaded_tools == ()


@pytest.mark.parametrize(
    ("execution", "offered", "left_out"),
    [
        ("client", ["tool_search", "ask"], ()),
        ("server", ["mcp__time__clock", "ask"], ("tools.tool_search",)),
        (None, ["mcp__time__clock", "ask"], ("tools.tool_search",)),
    ],
)
def test_deferred_tools_are_hidden_where_the_client_searches_them(
    address: str,
    gateway: ScriptedGateway,
    execution: str | None,
    offered: list[str],
    left_out: tuple[str, ...],
) -> None:
    search = {**SEARCH, "execution": execution}
    asked(address, model="text", tools=[search, CLOCKS, ASK])

    assert [tool.name for tool in gateway.last.tools] == offered
    assert gateway.last.left_out == left_out


def test_a_response_that_goes_on_knows_what_was_found_before(
    address: str, gateway: ScriptedGateway
) -> None:
    first = asked(address, model="text", input=found(CLOCKS), tools=[SEARCH])
    clock = {"type": "function", "name": "mcp__time__clock"}
    further = {"model": "text", "previous_response_id": first["id"], "tools": [SEARCH]}
    asked(address, **further, tool_choice=clock)

    assert gateway.last.loaded_tools == (READ_CLOCK,)
    assert gateway.last.altered == {"tool_choice": {"name": "mcp__time__clock"}}
    asked(address, **further, tool_choice="none")
    assert (gateway.last.tools, gateway.last.loaded_tools) == ((), ())


EXEC: Any = {"type": "custom", "name": "exec", "description": "Runs."}
IN_THE_INPUT: Any = {
    "type": "additional_tools",
    "role": "developer",
    "tools": [{"type": "namespace", "name": "functions", "description": "", "tools": [EXEC]}],
}


def test_tools_at_the_head_of_the_input_are_offered_with_the_others(
    address: str, gateway: ScriptedGateway
) -> None:
    gateway.scripts["exec"] = calling("functions__exec", '{"input": "ls"}')
    sent = [IN_THE_INPUT, {"role": "user", "content": "Hi"}]
    first = asked(address, model="exec", input=sent, tools=[ASK])

    assert [tool.name for tool in gateway.last.tools] == ["ask", "functions__exec"]
    assert gateway.last.messages == (Message(role="user", content="Hi"),)
    assert first["output"][0] == {
        "type": "custom_tool_call",
        "id": "fc_0123abcd_0",
        "call_id": "call_a",
        "status": "completed",
        "name": "exec",
        "namespace": "functions",
        "input": "ls",
    }
    asked(address, model="text", input="Go on", previous_response_id=first["id"])
    assert [tool.name for tool in gateway.last.tools] == ["functions__exec"]


def test_tools_further_on_in_the_input_are_told_of_where_they_stand(
    address: str, gateway: ScriptedGateway
) -> None:
    first = asked(address, model="text", input="Hi")
    for sent in ({"input": [{"role": "user", "content": "Hi"}]}, {}):
        before = sent.get("input", [])
        further = {} if before else {"previous_response_id": first["id"]}
        asked(address, model="text", input=[*before, IN_THE_INPUT], tools=[ASK], **further)

        told = gateway.last.messages[-1]
        assert told.role == "system"
        assert '"name": "functions__exec"' in told.text.split("\n")[1]
        assert [tool.name for tool in gateway.last.tools] == ["ask"]
        assert [tool.name for tool in gateway.last.loaded_tools] == ["functions__exec"]


def test_a_reply_cut_at_its_length_is_incomplete(client: openai.OpenAI) -> None:
    whole = client.responses.create(model="cut", input="Hi")
    events = list(client.responses.create(model="cut", input="Hi", stream=True))

    last = events[-1]
    assert last.type == "response.incomplete"
    for response in (whole, last.response):
        assert response.status == "incomplete"
        assert response.incomplete_details is not None
        assert response.incomplete_details.reason == "max_output_tokens"


def test_items_of_one_reply_become_the_message_that_they_were(
    client: openai.OpenAI, gateway: ScriptedGateway
) -> None:
    first = client.responses.create(model="everything", input="Hi")
    items: ResponseInputParam = [
        {"role": "user", "content": "Hi"},
        *first.output,  # type: ignore[list-item]
        {"type": "function_call_output", "call_id": "call_a", "output": "Rain"},
        {"type": "function_call_output", "call_id": "call_b", "output": "Noon"},
    ]
    client.responses.create(model="text", input=items)

    assert gateway.last.messages == (
        Message(role="user", content="Hi"),
        REPLIED,
        Message(role="tool", content="Rain", tool_call_id="call_a"),
        Message(role="tool", content="Noon", tool_call_id="call_b"),
    )


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_goes_on_from_the_one_that_it_names(
    address: str, gateway: ScriptedGateway, stream: bool
) -> None:
    gateway.history.conversations.clear()
    body: dict[str, object] = {"model": "everything", "input": "Hi", "instructions": "Be brief."}
    answer = httpx.post(f"{address}/v1/responses", json={**body, "stream": stream}, timeout=60)
    named = (
        answer.json()["id"]
        if not stream
        else "resp_" + answer.headers["x-request-id"][len("req_") :]
    )
    httpx.post(
        f"{address}/v1/responses",
        json={
            "model": "text",
            "previous_response_id": named,
            "instructions": "Be kind.",
            "input": [{"type": "function_call_output", "call_id": "call_a", "output": "Rain"}],
        },
        timeout=60,
    ).raise_for_status()

    assert gateway.last.messages == (
        Message(role="system", content="Be kind."),
        Message(role="user", content="Hi"),
        REPLIED,
        Message(role="tool", content="Rain", tool_call_id="call_a"),
    )


def test_a_response_that_was_not_stored_cannot_be_named(
    client: openai.OpenAI, gateway: ScriptedGateway
) -> None:
    gateway.history.conversations.clear()
    first = client.responses.create(model="text", input="Hi", store=False)

    with pytest.raises(openai.NotFoundError, match="no response of that id"):
        client.responses.create(model="text", input="Go on", previous_response_id=first.id)


def test_without_a_history_every_item_must_be_sent() -> None:
    with pytest.raises(ApiError, match="send all items"):
        OpenAIResponses().read(
            {"model": "text", "input": "Hi", "previous_response_id": "resp_1"}, path={}
        )
    with pytest.raises(ApiError, match="send the items themselves"):
        OpenAIResponses().read(
            {"model": "text", "input": [{"type": "item_reference", "id": "msg_1_0"}]}, path={}
        )


@pytest.mark.parametrize("stream", [False, True])
def test_items_of_a_reply_are_named_instead_of_sent_again(
    address: str, gateway: ScriptedGateway, stream: bool
) -> None:
    body: dict[str, object] = {"model": "everything", "input": "Hi", "stream": stream}
    answer = httpx.post(f"{address}/v1/responses", json=body, timeout=60)
    response = (
        json.loads(read_events(answer.content)[-1].data)["response"] if stream else answer.json()
    )
    items: list[dict[str, object]] = [
        {"role": "user", "content": "Hi"},
        *({"type": "item_reference", "id": item["id"]} for item in response["output"]),
        {"type": "function_call_output", "call_id": "call_a", "output": "Rain"},
    ]
    named = httpx.post(
        f"{address}/v1/responses", json={"model": "text", "input": items}, timeout=60
    )

    assert named.status_code == 200, named.text
    assert gateway.last.messages[1] == REPLIED


def test_everything_that_the_client_sends_is_read(
    client: openai.OpenAI, gateway: ScriptedGateway
) -> None:
    client.responses.create(
        model="text",
        instructions="Be brief.",
        input=[
            {"role": "developer", "content": "Really."},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What is this?"},
                    {
                        "type": "input_image",
                        "detail": "auto",
                        "image_url": f"data:image/jpeg;base64,{PNG}",
                    },
                ],
            },
        ],
        tools=[{"type": "function", "name": "weather", "parameters": {}, "strict": True}],
        tool_choice={"type": "function", "name": "weather"},
        parallel_tool_calls=False,
        max_output_tokens=9,
        temperature=0,
        reasoning={"effort": "low"},
        include=["reasoning.encrypted_content"],
        text={"format": {"type": "json_object"}},
    )

    asked = gateway.last
    picture = asked.messages[2].content[1]
    assert isinstance(picture, Picture)
    assert picture.media_type == "image/png"  # what its bytes are
    assert asked.messages == (
        Message(role="system", content="Be brief."),
        Message(role="system", content="Really."),
        Message(role="user", content=("What is this?", picture)),
    )
    assert [(tool.name, tool.parameters) for tool in asked.tools] == [("weather", "{}")]
    assert asked.altered == {
        "tool_choice": {"name": "weather"},
        "parallel_tool_calls": False,
        "structured_outputs": {"json_object": True},
    }
    assert (asked.max_tokens, asked.temperature) == (9, 0)


def test_a_parsed_reply_is_read_by_the_clients_helper(client: openai.OpenAI) -> None:
    response = client.responses.parse(model="json", input="Hi", text_format=City)

    assert response.output_parsed == City(city="Paris")


def test_errors_in_the_midst_of_a_stream_reach_the_program(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="fails", input="Hi", stream=True))

    error, last = events[-2:]
    assert error.type == "error"
    assert error.message == "the endpoint is away"
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.message == "the endpoint is away"


@pytest.mark.parametrize(
    ("further", "parameter"),
    [
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"input": []}, "input"),
        ({"input": [{"type": "web_search_call", "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"type": "tool_search_output"}]}, "input[0].call_id"),
        ({"input": [{"type": "tool_search_call", "execution": "server"}]}, "input[0].type"),
        ({"input": [{"type": "tool_search_output", "execution": "server"}]}, "input[0].type"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "include[0]"),
    ],
)
def test_what_is_not_understood_is_named(
    client: openai.OpenAI, further: dict[str, object], parameter: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="text", input="Hi", extra_body=further)

    assert caught.value.param == parameter
