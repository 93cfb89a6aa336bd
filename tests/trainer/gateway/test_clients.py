"""Vendors' clients, told nothing but their environment variables, play an episode of two turns."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping

import aiohttp
import anthropic
import openai
import pytest
from google import genai
from openai.types.chat import ChatCompletionUserMessageParam

from gateways import Played, Stage, StreamingScriptedPolicy, plain_client, said
from longhaul_core.types import Continuation

VOTE: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "Vote"}]


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


async def vote_by_openai(environ: Mapping[str, str]) -> list[str]:
    async with openai.AsyncOpenAI() as client:
        asked = [client.chat.completions.create(model="auto", messages=VOTE) for _ in range(5)]
        return [one.choices[0].message.content or "" for one in await asyncio.gather(*asked)]


async def vote_by_azure(environ: Mapping[str, str]) -> list[str]:
    async with openai.AsyncAzureOpenAI() as client:
        asked = [client.chat.completions.create(model="auto", messages=VOTE) for _ in range(5)]
        return [one.choices[0].message.content or "" for one in await asyncio.gather(*asked)]


async def vote_by_responses(environ: Mapping[str, str]) -> list[str]:
    async with openai.AsyncAzureOpenAI() as azure, openai.AsyncOpenAI() as client:
        made = [client, client, client, azure, azure]
        asked = [one.responses.create(model="auto", input="Vote") for one in made]
        return [one.output_text for one in await asyncio.gather(*asked)]


async def vote_by_anthropic(environ: Mapping[str, str]) -> list[str]:
    async with anthropic.AsyncAnthropic() as client:
        asked = [
            client.messages.create(
                model="auto", max_tokens=9, messages=[{"role": "user", "content": "Vote"}]
            )
            for _ in range(5)
        ]
        parts = [part for one in await asyncio.gather(*asked) for part in one.content]
        return [part.text for part in parts if part.type == "text"]


async def vote_by_genai(environ: Mapping[str, str]) -> list[str]:
    async with genai.Client().aio as client:
        asked = [client.models.generate_content(model="auto", contents="Vote") for _ in range(5)]
        return [answer.text or "" for answer in await asyncio.gather(*asked)]


async def vote_by_httpx(environ: Mapping[str, str]) -> list[str]:
    async with plain_client(environ["OPENAI_BASE_URL"], key=environ["OPENAI_API_KEY"]) as client:
        body = {"model": "auto", "messages": VOTE}
        asked = [client.post("/chat/completions", json=body) for _ in range(5)]
        return [said(answer) for answer in await asyncio.gather(*asked)]


async def vote_by_aiohttp(environ: Mapping[str, str]) -> list[str]:
    url = f"{environ['OPENAI_BASE_URL']}/chat/completions"
    headers = {"Authorization": f"Bearer {environ['OPENAI_API_KEY']}"}

    async def vote(client: aiohttp.ClientSession) -> str:
        async with client.post(url, json={"model": "auto", "messages": VOTE}) as answer:
            return (await answer.json())["choices"][0]["message"]["content"]

    async with aiohttp.ClientSession(headers=headers) as client:
        return await asyncio.gather(*[vote(client) for _ in range(5)])


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
@pytest.mark.parametrize(
    "vote",
    [
        vote_by_openai,
        vote_by_azure,
        vote_by_responses,
        vote_by_anthropic,
        vote_by_genai,
        vote_by_httpx,
        vote_by_aiohttp,
    ],
)
def test_five_votes_at_once_are_five_samples_in_every_client(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    vote: Callable[[Mapping[str, str]], Awaitable[list[str]]],
) -> None:
    async def program(one: Played) -> None:
        environ = one.episode.environ()
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        votes = await vote(environ)
        await one.episode.close()

        assert sorted(votes) == ["five", "four", "one", "three", "two"]
        assert len(one.end().steps) == 5

    stage.played(program, StreamingScriptedPolicy(["one", "two", "three", "four", "five"]))


MODULE_CLIENT = """
import openai

asked = openai.chat.completions.create(model="auto", messages=[{"role": "user", "content": "hi"}])
print(asked.choices[0].message.content)
"""


def test_the_client_of_openais_module_is_openais_and_not_azures(stage: Stage) -> None:
    """It refuses to choose where both have variables, unless one says which."""

    async def program(one: Played) -> None:
        asked = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            MODULE_CLIENT,
            env=os.environ | one.episode.environ(),
            stdout=subprocess.PIPE,
        )
        stdout, _ = await asked.communicate()
        assert stdout == b"go\n"

    stage.played(program)


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
