"""A gateway whose replies are written beforehand: what real clients and tests read them from."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from longhaul_core.policy import ReplyPart
from longhaul_core.types import FinishReason, ToolCall
from longhaul_trainer.gateway.dialects.anthropic_messages import AnthropicMessages
from longhaul_trainer.gateway.dialects.google_generate import GoogleGenerate
from longhaul_trainer.gateway.dialects.models import list_models
from longhaul_trainer.gateway.dialects.openai_chat import OpenAIChat
from longhaul_trainer.gateway.dialects.openai_completions import OpenAICompletions
from longhaul_trainer.gateway.dialects.openai_responses import OpenAIResponses, ResponseHistory
from longhaul_trainer.gateway.exchange import (
    ApiError,
    ChatReply,
    ChatRequest,
    Choice,
    Delta,
    Dialect,
    Usage,
)
from longhaul_trainer.gateway.http import Incoming, error_response, json_object, respond

__all__ = ["Script", "ScriptedGateway", "choice_of"]

REPLY_ID = "0123abcd"
CREATED = 1_760_000_000


@dataclass(frozen=True, kw_only=True)
class Script:
    """What is answered to a request that names a model."""

    choices: Sequence[Sequence[ReplyPart]]
    finish_reason: FinishReason = FinishReason.STOP
    stop_word: str | None = None
    usage: Usage = field(default=Usage(prompt_tokens=11, reply_tokens=7, cached_tokens=3))
    error: Exception | None = None
    """Raised in place of the end."""
    waits: float = 0.0
    """Seconds before each piece."""
    hands_on: bool = True
    """Whether pieces are handed on while they are written."""

    def reply(self, model: str) -> ChatReply:
        """The whole."""
        return ChatReply(
            id=REPLY_ID,
            created=CREATED,
            model=model,
            choices=[
                choice_of(parts, finish_reason=self.finish_reason, stop_word=self.stop_word)
                for parts in self.choices
            ],
            usage=self.usage,
            prompt_tokens=(1, 2, 3),
        )

    def deltas(self) -> Iterator[Delta]:
        """Its pieces, one of each choice in turn."""
        for place in range(max((len(parts) for parts in self.choices), default=0)):
            for choice, parts in enumerate(self.choices):
                if place < len(parts):
                    yield Delta(choice=choice, part=parts[place])


def choice_of(
    parts: Sequence[ReplyPart],
    *,
    finish_reason: FinishReason = FinishReason.STOP,
    stop_word: str | None = None,
) -> Choice:
    """The reply that pieces make up."""
    calls: dict[int, ToolCall] = {}
    for part in parts:
        if part.tool_place is None:
            continue
        call = calls.get(part.tool_place, ToolCall(id="", name="", arguments=""))
        calls[part.tool_place] = ToolCall(
            id=call.id or part.tool_id,
            name=call.name or part.tool_name,
            arguments=call.arguments + part.tool_arguments,
        )
    return Choice(
        text="".join(part.text for part in parts),
        reasoning="".join(part.reasoning for part in parts),
        tool_calls=tuple(calls.values()),
        finish_reason=finish_reason,
        stop_word=stop_word,
        tokens=(5, 6),
        logprobs=(-0.5, -0.25),
        token_bytes=(b"Hello, w\xc3", b"\xb6rld\n"),
    )


class ScriptedGateway:
    """Answers in every dialect, by the script of the model that a request names."""

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        self.seen: list[ChatRequest] = []
        self.cancelled = threading.Event()
        self.keep_alive_seconds = 10.0
        self.max_bytes = 1_000_000
        self.history = ResponseHistory()
        chat, completions = OpenAIChat(), OpenAICompletions()
        responses, messages = OpenAIResponses(self.history), AnthropicMessages()
        self.app = Starlette(
            routes=[
                Route("/v1/models", self._list, methods=["GET"]),
                Route("/v1/chat/completions", self._answering(chat), methods=["POST"]),
                Route("/v1/completions", self._answering(completions), methods=["POST"]),
                Route("/v1/responses", self._answering(responses), methods=["POST"]),
                Route("/v1/messages", self._answering(messages), methods=["POST"]),
                Route("/v1/messages/count_tokens", self._count, methods=["POST"]),
                Route("/v1/models/{called:path}", self._generate, methods=["POST"]),
            ]
        )

    async def answer(
        self, request: ChatRequest, on_delta: Callable[[Delta], None] | None
    ) -> ChatReply:
        """By the script."""
        self.seen.append(request)
        script = self.scripts[request.model]
        try:
            for delta in script.deltas():
                await asyncio.sleep(script.waits)
                if on_delta is not None and script.hands_on:
                    on_delta(delta)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if script.error is not None:
            raise script.error
        return script.reply(request.model)

    @property
    def last(self) -> ChatRequest:
        """The latest request."""
        return self.seen[-1]

    def _answering(self, dialect: Dialect) -> Callable[[Request], object]:
        async def answered(request: Request) -> Response:
            return await self._respond(request, dialect, {})

        return answered

    async def _respond(
        self, request: Request, dialect: Dialect, path: Mapping[str, str]
    ) -> Response:
        incoming = Incoming(request.scope, request.receive)
        try:
            body = await self._read(incoming)
        except ApiError as error:
            return error_response(dialect, error)
        return await respond(
            incoming,
            dialect,
            body,
            path=path,
            answer=self.answer,
            reply_id=REPLY_ID,
            keep_alive_seconds=self.keep_alive_seconds,
        )

    async def _generate(self, request: Request) -> Response:
        model, _, method = str(request.path_params["called"]).partition(":")
        dialect = GoogleGenerate()
        path = {"model": model, "method": method, "alt": request.query_params.get("alt", "")}
        if method == "countTokens":
            body = await self._read(Incoming(request.scope, request.receive))
            self.seen.append(dialect.read_count(body, path=path))
            return JSONResponse(dialect.count(42))
        return await self._respond(request, dialect, path)

    async def _count(self, request: Request) -> Response:
        dialect = AnthropicMessages()
        body = await self._read(Incoming(request.scope, request.receive))
        self.seen.append(dialect.read_count(body, path={}))
        return JSONResponse(dialect.count(42))

    async def _read(self, incoming: Incoming) -> dict[str, object]:
        sent = await incoming.read(max_bytes=self.max_bytes)
        encoding = incoming.headers.get("content-encoding", "identity")
        return await json_object(sent, encoding=encoding, max_bytes=self.max_bytes)

    async def _list(self, request: Request) -> Response:
        return JSONResponse(list_models(["auto", "small"], created=CREATED))
