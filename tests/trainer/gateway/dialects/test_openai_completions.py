"""Completions, read and written by OpenAI's own client."""

from collections.abc import Iterator

import httpx
import openai
import pytest
from openai.types import Completion

from reading_events import read_events
from scripted_gateway import ScriptedGateway


@pytest.fixture(scope="module")
def client(serving: tuple[ScriptedGateway, str]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{serving[1]}/v1", api_key="key", max_retries=0) as client:
        yield client


def test_a_whole_reply_is_what_was_written(client: openai.OpenAI) -> None:
    completion = client.completions.create(
        model="text", prompt="Say", logprobs=1, extra_body={"return_token_ids": True}
    )

    choice = completion.choices[0]
    assert (completion.id, choice.text) == ("cmpl-0123abcd", "Hello, wörld\n")
    assert choice.finish_reason == "stop"
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == ["Hello, w\\xc3", "\\xb6rld\n"]
    assert choice.logprobs.text_offset == [0, len("Hello, w")]
    assert choice.logprobs.token_logprobs == [-0.5, -0.25]
    assert choice.model_extra == {"token_ids": [5, 6], "prompt_token_ids": [1, 2, 3]}
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 7


def test_a_stream_has_the_same_text_choice_by_choice(client: openai.OpenAI) -> None:
    texts, ends, usage = ["", ""], list[tuple[int, str]](), None
    for chunk in client.completions.create(
        model="two", prompt="Say", n=2, stream=True, stream_options={"include_usage": True}
    ):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            if choice.finish_reason:
                ends.append((choice.index, choice.finish_reason))
        usage = usage or chunk.usage

    assert texts == ["Hello, wörld\n", "Another"]
    assert ends == [(0, "stop"), (1, "stop")]
    assert usage is not None
    assert usage.total_tokens == 18


def test_chunks_are_the_clients_own(address: str) -> None:
    body = {"model": "cut", "prompt": "Say", "stream": True}
    events = read_events(httpx.post(f"{address}/v1/completions", json=body, timeout=60).content)

    assert events.pop().data == "[DONE]"
    assert all('"finish_reason":null' in event.data for event in events[:-1])
    chunks = [  # the client's type is that of a whole completion, whose reason is never null
        Completion.model_validate_json(event.data.replace('_reason":null', '_reason":"stop"'))
        for event in events[:-1]
    ]
    assert "".join(chunk.choices[0].text for chunk in chunks) == "Hello, wörld\n"
    assert Completion.model_validate_json(events[-1].data).choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("prompt", "read"),
    [("Say", "Say"), (["Say"], "Say"), ([1, 2], (1, 2)), ([[1, 2]], (1, 2))],
)
def test_a_prompt_is_text_or_tokens(
    client: openai.OpenAI, gateway: ScriptedGateway, prompt: list[int], read: object
) -> None:
    client.completions.create(model="text", prompt=prompt)

    assert gateway.last.raw_prompt == read
    assert gateway.last.messages == ()
    assert gateway.last.max_tokens == 16


@pytest.mark.parametrize(
    ("further", "parameter"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, "b"]}, "prompt[1]"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"echo": True}, "echo"),
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"logprobs": 5}, "logprobs"),
    ],
)
def test_what_is_not_understood_is_named(
    client: openai.OpenAI, further: dict[str, object], parameter: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="text", prompt="Say", extra_body=further)

    assert caught.value.param == parameter
