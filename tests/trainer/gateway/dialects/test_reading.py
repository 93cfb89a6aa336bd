"""What dialects make of bodies that no client would send: an error that names it, and no more."""

import json
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.types import Picture
from longhaul_trainer.gateway.dialects.anthropic_messages import AnthropicMessages
from longhaul_trainer.gateway.dialects.credit import credit_of, credit_report
from longhaul_trainer.gateway.dialects.google_generate import GoogleGenerate
from longhaul_trainer.gateway.dialects.openai_chat import OpenAIChat
from longhaul_trainer.gateway.dialects.openai_completions import OpenAICompletions
from longhaul_trainer.gateway.dialects.openai_responses import OpenAIResponses, ResponseHistory
from longhaul_trainer.gateway.dialects.pictures import picture_of_base64, picture_of_url
from longhaul_trainer.gateway.exchange import ApiError, ChatRequest, CreditReport, Dialect

GOOGLE_PATH = {"model": "m", "method": "generateContent"}
IMAGE = "iVBORw0KGgo="
TEXT = {"type": "text", "text": "x"}
EMPTY: dict[str, object] = {}
EMPTY_PATH: dict[str, str] = {}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def bodies() -> Mapping[str, tuple[Dialect, Mapping[str, object]]]:
    """A body with everything in it, for each dialect."""
    return {
        "chat": (
            OpenAIChat(),
            {
                "model": "m",
                "messages": [
                    {"role": "system", "content": [TEXT]},
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "image_url",
                                "image_url": {"url": f"data:image/png;base64,{IMAGE}"},
                            }
                        ],
                    },
                    {"role": "assistant", "content": None, "tool_calls": [CALL]},
                    {"role": "tool", "tool_call_id": "c", "content": "x"},
                ],
                "tools": [
                    {"type": "function", "function": {"name": "f", "parameters": {"a": [1]}}}
                ],
                "tool_choice": {"type": "function", "function": {"name": "f"}},
                "response_format": {"type": "json_schema", "json_schema": {"schema": EMPTY}},
                "temperature": 0.5,
                "max_tokens": 5,
                "stop": ["a"],
                "logit_bias": {"5": 1},
                "stream_options": {"include_usage": True},
                "longhaul": {"reward": 1.5, "done": False},
            },
        ),
        "completions": (
            OpenAICompletions(),
            {"model": "m", "prompt": [[1, 2]], "max_tokens": 5, "n": 2, "stop": "a", "logprobs": 1},
        ),
        "responses": (
            OpenAIResponses(ResponseHistory()),
            {
                "model": "m",
                "instructions": "x",
                "input": [
                    {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
                    {"type": "reasoning", "summary": [], "content": [{"text": "x"}]},
                    {"type": "message", "role": "assistant", "content": [{"type": "output_text"}]},
                    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "c", "output": [TEXT]},
                ],
                "tools": [{"type": "function", "name": "f", "parameters": EMPTY}],
                "tool_choice": {"type": "allowed_tools", "tools": [{"name": "f"}]},
                "text": {"format": {"type": "text"}},
                "include": ["x"],
            },
        ),
        "messages": (
            AnthropicMessages(),
            {
                "model": "m",
                "max_tokens": 5,
                "system": [TEXT],
                "messages": [
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "thinking", "thinking": "x", "signature": "s"},
                            {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
                        ],
                    },
                    {
                        "role": "user",
                        "content": [
                            {"type": "tool_result", "tool_use_id": "c", "content": [TEXT]},
                            {"type": "image", "source": {"type": "base64", "data": IMAGE}},
                            {"type": "document", "source": {"type": "text", "data": "x"}},
                            {
                                "type": "search_result",
                                "title": "x",
                                "source": "x",
                                "content": [TEXT],
                            },
                        ],
                    },
                ],
                "tools": [{"name": "f", "input_schema": EMPTY}],
                "tool_choice": {"type": "tool", "name": "f"},
                "thinking": {"type": "enabled", "budget_tokens": 5},
                "output_config": {"format": {"type": "json_schema", "schema": EMPTY}},
            },
        ),
        "generate": (
            GoogleGenerate(),
            {
                "systemInstruction": {"parts": [{"text": "x"}]},
                "contents": [
                    {"role": "model", "parts": [{"functionCall": {"name": "f", "args": EMPTY}}]},
                    {
                        "role": "user",
                        "parts": [
                            {"functionResponse": {"name": "f", "response": EMPTY}},
                            {"inlineData": {"data": IMAGE}},
                        ],
                    },
                ],
                "tools": [
                    {
                        "functionDeclarations": [
                            {
                                "name": "f",
                                "parameters": {
                                    "type": "OBJECT",
                                    "properties": {"a": {"anyOf": [{"type": "STRING"}]}},
                                },
                            }
                        ]
                    }
                ],
                "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
                "generationConfig": {"temperature": 1, "responseSchema": {"items": {"type": "A"}}},
            },
        ),
    }


VALID = bodies()

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["user", "text", "function", "message", "tool_result", "data:;base64,", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "text", "name", "tools", "function", "a"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


def places(value: object, here: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place of a body."""
    found = [here] if here else []
    if isinstance(value, dict):
        for key in value:  # pyright: ignore[reportUnknownVariableType]
            found += places(value[key], (*here, key))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, list):
        for place, inner in enumerate(value):  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
            found += places(inner, (*here, place))  # pyright: ignore[reportUnknownArgumentType]
    return found


def changed(
    body: Mapping[str, object], place: tuple[str | int, ...], change: Callable[[], object]
) -> dict[str, object]:
    """The body with something else at a place."""
    copy = json.loads(json.dumps(body))
    holder = copy
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = change()
    return copy


def read(dialect: Dialect, body: Mapping[str, object]) -> ChatRequest | ApiError:
    """What a dialect makes of a body; anything but these two is a mistake."""
    refused: ApiError
    try:
        credit_of({}, body)
        return dialect.read(body, path=GOOGLE_PATH)
    except ApiError as error:
        refused = error
    assert refused.status in (400, 404)
    assert len(refused.message) < 2_000
    assert dialect.error(refused)
    return refused


@pytest.mark.parametrize("name", VALID)
def test_the_bodies_that_are_broken_below_are_understood_before(name: str) -> None:
    dialect, body = VALID[name]

    assert isinstance(read(dialect, body), ChatRequest)


@pytest.mark.parametrize("name", VALID)
@given(data=st.data())
def test_whatever_stands_anywhere_is_read_or_refused_by_name(
    name: str, data: st.DataObject
) -> None:
    dialect, body = VALID[name]
    place = data.draw(st.sampled_from(places(body)))
    value = data.draw(json_values)

    outcome = read(dialect, changed(body, place, lambda: value))

    if isinstance(outcome, ApiError):
        assert outcome.parameter
        assert outcome.parameter.partition(".")[0].partition("[")[0] in outcome.message


@pytest.mark.parametrize("name", VALID)
@given(body=st.dictionaries(st.text(max_size=10), json_values, max_size=4))
def test_any_object_is_read_or_refused(name: str, body: dict[str, object]) -> None:
    read(VALID[name][0], body)


@pytest.mark.parametrize("key", ["type", "items", "content"])
@pytest.mark.parametrize("name", VALID)
def test_what_is_nested_deep_is_no_end_of_the_stack(name: str, key: str) -> None:
    dialect, body = VALID[name]
    levels: list[dict[str, object]] = [{key: "x"}]
    for _ in range(10_000):
        levels.append({key: levels[-1]})
    for place in places(body):
        read(dialect, changed(body, place, lambda: levels[-1]))
    while levels:  # from the outside in, or the interpreter frees them in one go
        levels.pop().clear()


@pytest.mark.parametrize("value", ["text", 5, True, [], {"a": 1}, float("nan"), 10**40])
def test_an_error_names_field_value_and_what_is_understood(value: object) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "temperature": value}

    error = read(OpenAIChat(), body)

    assert isinstance(error, ApiError)
    assert error.parameter == "temperature"
    assert error.message.startswith("temperature is ")
    assert error.message.endswith("understood is a number from 0 to 2")


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        ("iVBORw0KGgo=", "image/png"),
        ("_9j_", "image/jpeg"),
        ("UklGRgAAAABXRUJQ", "image/webp"),
    ],
)
def test_a_picture_is_what_its_bytes_are(data: str, media_type: str) -> None:
    picture = picture_of_base64(data, place="here")

    assert picture == picture_of_url(f"data:image/gif;name=a.gif;base64,{data}", place="here")
    assert isinstance(picture, Picture)
    assert picture.media_type == media_type


@pytest.mark.parametrize(
    "url",
    ["", "data:image/png;base64,", "data:image/png;base64,???", "data:image/gif;base64,R0lGODlh"],
)
def test_what_is_no_picture_is_refused(url: str) -> None:
    with pytest.raises(ApiError, match="PNG, JPEG or WebP"):
        picture_of_url(url, place="here")


def test_credit_is_of_headers_and_body_and_the_body_wins() -> None:
    headers = {
        "longhaul-reward": "0.5",
        "longhaul-anchor-state": "K\u00c3\u00bcche",  # UTF-8, as HTTP shows it
        "longhaul-train": "false",
        "longhaul-done": "1",
        "longhaul-purpose": "judge",
    }

    assert credit_of(headers, {"longhaul": {"reward": 2, "agent": "planner"}}) == CreditReport(
        reward=2.0, anchor_state="Küche", train=False, done=True, purpose="judge", agent="planner"
    )


FUNCTION = {"name": "f", "parameters": EMPTY}


@pytest.mark.parametrize(
    ("name", "further", "left_out"),
    [
        ("chat", {"chat_template_kwargs": {"enable_thinking": False}}, ["chat_template_kwargs"]),
        ("chat", {"se\r\ned": 1, "seeds": None, "x": False}, ["se__ed"]),
        ("chat", {"tools": [{"type": "function", "function": FUNCTION}, {"type": "custom"}]},
         ["tools.custom"]),
        ("responses", {"client_metadata": {"a": "b"}, "tools": [
            {"type": "function", **FUNCTION}, {"type": "web_search"},
            {"type": "shell", "environment": {"type": "container_auto"}}],
            "tool_choice": {"type": "web_search"}},
         ["client_metadata", "tools.web_search", "tools.shell", "tool_choice.web_search"]),
        ("responses", {"n": 2, "stop_token_ids": [5], "ignore_eos": True}, ["n"]),
        ("messages", {"beta_flags": ["x"], "tools": [
            {"name": "f", "input_schema": EMPTY}, {"type": "web_search_20250305", "name": "s"}]},
         ["beta_flags", "tools.web_search_20250305"]),
        ("generate", {"notes": {"a": "b"}, "generationConfig": {"routing": 1}, "tools": [
            {"functionDeclarations": [{"name": "f"}], "googleSearch": EMPTY}]},
         ["notes", "generationConfig.routing", "tools.googleSearch"]),
        ("completions", {"chat_template": "x"}, ["chat_template"]),
    ],
)  # fmt: skip
def test_fields_and_tools_that_nobody_serves_are_left_out_and_named(
    name: str, further: dict[str, object], left_out: list[str]
) -> None:
    said = [{"role": "user", "content": "x"}]
    asked: dict[str, object] = {"model": "m", "messages": said, "max_tokens": 5}
    bodies: Mapping[str, tuple[Dialect, Mapping[str, object]]] = {
        "chat": (OpenAIChat(), asked),
        "responses": (OpenAIResponses(), {"model": "m", "input": "x"}),
        "messages": (AnthropicMessages(), asked),
        "generate": (GoogleGenerate(), {"contents": [{"parts": [{"text": "x"}]}]}),
        "completions": (OpenAICompletions(), {"model": "m", "prompt": "x"}),
    }
    dialect, body = bodies[name]

    request = dialect.read(
        {**body, **further}, path=GOOGLE_PATH if name == "generate" else EMPTY_PATH
    )

    assert sorted(request.left_out) == sorted(left_out)
    assert [tool.name for tool in request.tools] == (["f"] if "tools" in further else [])


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({"longhaul-reward": "nan"}, "longhaul.reward"),
        ({"longhaul-reward": "much"}, "longhaul-reward"),
        ({"longhaul-done": "perhaps"}, "longhaul-done"),
        ({"longhaul-agent": "\u00ff"}, "longhaul-agent"),
    ],
)
def test_credit_that_is_not_understood_is_named(headers: dict[str, str], named: str) -> None:
    with pytest.raises(ApiError) as caught:
        credit_of(headers, {})

    assert caught.value.parameter == named


def test_a_report_alone_is_read_by_the_same_rules() -> None:
    assert credit_report({"reward": -1, "done": True}) == CreditReport(reward=-1.0, done=True)
    with pytest.raises(ApiError, match="no such field"):
        credit_report({"value": 1})
