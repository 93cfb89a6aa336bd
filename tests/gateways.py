"""A gateway with one open episode, for tests; programs call it over HTTP."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import httpx

from fakes import ByteChatRenderer, StreamingScriptedPolicy, make_task
from longhaul_core.policy import Policy
from longhaul_core.rollout import EpisodeLimits, EpisodeSession, EpisodeSpec, Responder
from longhaul_core.types import StopReason, Trajectory
from longhaul_trainer.gateway.episode import CallRules, OpenEpisode
from longhaul_trainer.gateway.server import Gateway
from longhaul_trainer.gateway.settings import GatewaySettings
from longhaul_trainer.gateway.upstream import Upstream

T = TypeVar("T")

Models = Mapping[str, Responder | Upstream]

TASK = replace(make_task(3), data='{"question": "Who wrote it?"}')
TRAINING = CallRules(trains=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """An episode that is open, and what a program needs to play it."""

    gateway: Gateway
    episode: OpenEpisode
    session: EpisodeSession
    http: httpx.AsyncClient
    """With the key, at the episode's address."""

    async def chat(
        self, *texts: str, headers: Mapping[str, str] | None = None, **fields: object
    ) -> httpx.Response:
        """Ask for a chat completion; texts are the user's and the assistant's in turn."""
        body = {"model": "auto", "messages": messages(*texts), **fields}
        return await self.http.post("/v1/chat/completions", json=body, headers=headers)

    def end(self) -> Trajectory:
        """The record."""
        return self.session.end(StopReason.TASK_SOLVED, success=True)


def messages(*texts: str) -> list[dict[str, str]]:
    """A conversation: the user's and the assistant's texts in turn."""
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]


def said(response: httpx.Response) -> str:
    """What the model said in a chat completion."""
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


class TextChatRenderer(ByteChatRenderer):
    """Reads prompts of text as well, as they are."""

    def tokenize(self, text: str) -> tuple[int, ...]:
        return tuple(text.encode())


def responder_of(policy: Policy | None = None, *, max_reply_tokens: int = 64) -> Responder:
    """A model of fakes."""
    return Responder(
        policy=policy or StreamingScriptedPolicy(),
        renderer=TextChatRenderer(),
        max_reply_tokens=max_reply_tokens,
    )


def open_episode(
    gateway: Gateway,
    policy: Policy | None = None,
    *,
    models: Models | None = None,
    rules: CallRules = TRAINING,
    seed: int = 11,
    **limits: int,
) -> tuple[EpisodeSession, OpenEpisode]:
    """An episode of a gateway, with room for 20 steps."""
    responder = responder_of(policy)
    session = EpisodeSession(
        EpisodeSpec(task=TASK, seed=seed),
        limits=replace(EpisodeLimits(horizon=20, max_prompt_tokens=100_000), **limits),
        responder=responder,
    )
    known = {"policy": responder} if models is None else models
    return session, gateway.open(session, models=known, rules=rules, task=TASK)


@asynccontextmanager
async def playing(
    policy: Policy | None = None,
    *,
    settings: GatewaySettings | None = None,
    models: Models | None = None,
    rules: CallRules = TRAINING,
    **limits: int,
) -> AsyncGenerator[Played]:
    """A started gateway with one open episode; both end with the block."""
    gateway = Gateway(settings=settings)
    await gateway.start()
    try:
        session, episode = open_episode(gateway, policy, models=models, rules=rules, **limits)
        async with client_of(episode) as http:
            yield Played(gateway=gateway, episode=episode, session=session, http=http)
        await episode.close()
    finally:
        await gateway.stop()


def client_of(episode: OpenEpisode, *, key: str | None = None) -> httpx.AsyncClient:
    """A client at an episode's address, with its key or another one."""
    return plain_client(
        episode.environ()["ANTHROPIC_BASE_URL"], key=episode.access.key if key is None else key
    )


def plain_client(base_url: str, *, key: str = "") -> httpx.AsyncClient:
    """A client that reads no certificates, which takes longer than a test."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.AsyncClient(base_url=base_url, headers=headers, timeout=120, verify=False)


def played(
    program: Callable[[Played], Awaitable[T]],
    policy: Policy | None = None,
    *,
    settings: GatewaySettings | None = None,
    models: Models | None = None,
    rules: CallRules = TRAINING,
    **limits: int,
) -> T:
    """What a program returns that plays one episode."""

    async def whole() -> T:
        opening = playing(policy, settings=settings, models=models, rules=rules, **limits)
        async with opening as one:
            return await program(one)

    return asyncio.run(whole())


class Stage:
    """A started gateway that many tests play on, one after the other."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self.gateway = Gateway()

    def __enter__(self) -> Self:
        self._runner.run(self.gateway.start())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self.gateway.stop())
        self._runner.close()

    def played(
        self,
        program: Callable[[Played], Awaitable[T]],
        policy: Policy | None = None,
        *,
        models: Models | None = None,
        rules: CallRules = TRAINING,
        **limits: int,
    ) -> T:
        """What a program returns that plays one episode."""

        async def whole() -> T:
            session, episode = open_episode(
                self.gateway, policy, models=models, rules=rules, **limits
            )
            try:
                async with client_of(episode) as http:
                    return await program(
                        Played(gateway=self.gateway, episode=episode, session=session, http=http)
                    )
            finally:
                await episode.close()

        return self._runner.run(whole())
