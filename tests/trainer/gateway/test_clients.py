"""Vendors' clients, told nothing but their environment variables, play an episode of two turns."""

import asyncio
from collections.abc import Awaitable, Callable

import anthropic
import openai
import pytest
from google import genai

from gateways import Played, Stage, StreamingScriptedPolicy
from longhaul_core.types import Continuation


async def chat(stream: bool) -> list[str]:
    messages: list[object] = [{"role": "user", "content": "One"}]
    said: list[str] = []
    async with openai.AsyncOpenAI(max_retries=0) as client:
        for turn in ("Two", "Three"):
            if stream:
                async with client.chat.completions.stream(
                    model="auto",
                    messages=messages,  # pyright: ignore[reportArgumentType]
                ) as events:
                    message = (await events.get_final_completion()).choices[0].message
            else:
                completion = await client.chat.completions.create(
                    model="auto",
                    messages=messages,  # pyright: ignore[reportArgumentType]
                )
                message = completion.choices[0].message
            said.append(message.content or "")
            messages += [message, {"role": "user", "content": turn}]
    return said


async def responses(stream: bool) -> list[str]:
    """By the id of the response before, which alone is sent on."""
    said: list[str] = []
    before = openai.omit
    async with openai.AsyncOpenAI(max_retries=0) as client:
        for turn in ("One", "Two"):
            if stream:
                async with client.responses.stream(
                    model="auto", input=turn, previous_response_id=before
                ) as events:
                    response = await events.get_final_response()
            else:
                response = await client.responses.create(
                    model="auto", input=turn, previous_response_id=before
                )
            before = response.id
            said.append(response.output_text)
    return said


async def messages(stream: bool) -> list[str]:
    sent: list[anthropic.types.MessageParam] = [{"role": "user", "content": "One"}]
    said: list[str] = []
    async with anthropic.AsyncAnthropic(max_retries=0) as client:
        for turn in ("Two", "Three"):
            if stream:
                async with client.messages.stream(
                    model="auto", max_tokens=64, messages=sent
                ) as events:
                    message = await events.get_final_message()
            else:
                message = await client.messages.create(model="auto", max_tokens=64, messages=sent)
            said.append("".join(part.text for part in message.content if part.type == "text"))
            sent.append({"role": "assistant", "content": message.content})
            sent.append({"role": "user", "content": turn})
    return said


async def generate(stream: bool) -> list[str]:
    said: list[str] = []
    async with genai.Client().aio as client:
        talk = client.chats.create(model="auto")
        for turn in ("One", "Two"):
            if stream:
                text = ""
                chunks = await talk.send_message_stream(turn)  # pyright: ignore[reportUnknownMemberType]
                async for chunk in chunks:
                    text += chunk.text or ""
                said.append(text)
            else:
                answer = await talk.send_message(turn)  # pyright: ignore[reportUnknownMemberType]
                said.append(answer.text or "")
    return said


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
def test_five_votes_of_a_client_that_numbers_no_retries_are_five_samples(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def program(one: Played) -> None:
        for name, value in one.episode.environ().items():
            monkeypatch.setenv(name, value)
        async with genai.Client().aio as client:
            asked = [client.models.generate_content(model="auto", contents="Vote") for _ in "12345"]
            votes = {answer.text for answer in await asyncio.gather(*asked)}
        await one.episode.close()

        assert votes == {"one", "two", "three", "four", "five"}
        assert len(one.end().steps) == 5

    stage.played(program, StreamingScriptedPolicy(["one", "two", "three", "four", "five"]))


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", [chat, responses, messages, generate])
def test_a_second_turn_goes_on_from_the_first_token_by_token(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    client: Callable[[bool], Awaitable[list[str]]],
    stream: bool,
) -> None:
    async def program(one: Played) -> None:
        for name, value in one.episode.environ().items():
            monkeypatch.setenv(name, value)
        said = await client(stream)
        await one.episode.close()

        first, second = (step.calls[0] for step in one.end().steps)
        assert said == [first.reply, second.reply]
        assert (first.conversation, second.conversation) == (0, 0)
        assert second.continuation is Continuation.EXACT
        assert first.sampled is not None
        assert second.sampled is not None
        before = (*first.sampled.prompt_tokens, *first.sampled.action_tokens)
        assert second.sampled.prompt_tokens[: len(before)] == before

    stage.played(program)
