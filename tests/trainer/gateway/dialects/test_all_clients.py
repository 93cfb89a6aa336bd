"""What every client does alike: odd characters, an engine that is slow, a program that leaves."""

from collections.abc import Callable, Iterator

import anthropic
import openai
import pytest
from google import genai
from google.genai import types

from longhaul_core.policy import ReplyPart
from scripted_gateway import Script, ScriptedGateway

ODD = "a\u2028b\u0085c\r\nd\x0be\x1cf\x00g\n\ndata: [DONE]\n\n: h\U0001f600"
"""Characters that somebody might take for the end of a line, or of a stream."""


def chat(address: str, model: str, prompt: str) -> Iterator[str]:
    """Texts of a stream of chat completions."""
    with openai.OpenAI(base_url=f"{address}/v1", api_key="key", max_retries=0) as client:
        with client.chat.completions.create(
            model=model, stream=True, messages=[{"role": "user", "content": prompt}]
        ) as stream:
            for chunk in stream:
                yield chunk.choices[0].delta.content or ""


def responses(address: str, model: str, prompt: str) -> Iterator[str]:
    """Texts of a stream of a response."""
    with openai.OpenAI(base_url=f"{address}/v1", api_key="key", max_retries=0) as client:
        with client.responses.create(model=model, input=prompt, stream=True) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    yield event.delta


def messages(address: str, model: str, prompt: str) -> Iterator[str]:
    """Texts of a stream of a message."""
    with anthropic.Anthropic(base_url=address, api_key="key", max_retries=0) as client:
        with client.messages.stream(
            model=model, max_tokens=5, messages=[{"role": "user", "content": prompt}]
        ) as stream:
            yield from stream.text_stream


def generate(address: str, model: str, prompt: str) -> Iterator[str]:
    """Texts of a stream of generateContent."""
    client = genai.Client(api_key="key", http_options=types.HttpOptions(base_url=address))
    for chunk in client.models.generate_content_stream(model=model, contents=prompt):
        yield chunk.text or ""
    client.close()


every_client = pytest.mark.parametrize("stream", [chat, responses, messages, generate])
Streams = Callable[[str, str, str], Iterator[str]]


@every_client
def test_odd_text_is_read_and_written_as_it_is(
    gateway: ScriptedGateway, address: str, stream: Streams
) -> None:
    gateway.scripts["odd"] = Script(choices=[[ReplyPart(text=character) for character in ODD]])

    assert "".join(stream(address, "odd", ODD)) == ODD
    assert gateway.last.messages[-1].text == ODD


@every_client
def test_no_client_takes_a_sign_of_life_for_an_answer(
    gateway: ScriptedGateway, address: str, stream: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "keep_alive_seconds", 0.02)

    assert "".join(stream(address, "slow", "Hi")) == "Hello, wörld\n"


@pytest.mark.parametrize("stream", [chat, responses, messages])
def test_a_program_that_stops_reading_cancels_its_call(
    gateway: ScriptedGateway, address: str, stream: Streams
) -> None:
    gateway.cancelled.clear()
    gateway.scripts["endless"] = Script(choices=[[ReplyPart(text="a")] * 10_000], waits=0.02)
    reading = stream(address, "endless", "Hi")

    while next(reading) != "a":
        pass
    reading.close()  # type: ignore[attr-defined]

    assert gateway.cancelled.wait(timeout=60)
