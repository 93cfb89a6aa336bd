"""OpenAI's chat completions, as most servers of models speak them."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from longhaul_core.policy import ReplyPart
from longhaul_core.types import FinishReason, Message, Picture, Tool
from longhaul_trainer.gateway.exchange import ApiError, ChatRequest, Delta, Usage
from longhaul_trainer.gateway.hosted.gathering import GatheredReply

__all__ = ["OLDER_NAME", "OpenAIVendor", "picture_data", "schema_of"]

OLDER_NAME = "max_tokens"
"""Of the longest reply; most servers know it."""
_DONE = b"[DONE]"


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: msgspec.Raw | None = None


_ANSWER = msgspec.json.Decoder(_Answer)


class OpenAIVendor:
    """`POST {url}/chat/completions`. A `Vendor`."""

    path = "/chat/completions"

    def __init__(self) -> None:
        """Longest replies are asked for by the older name."""
        self.longest = OLDER_NAME
        """OpenAI's own reasoning models want `max_completion_tokens`."""

    def headers(self, key: str | None) -> dict[str, str]:
        """See `Vendor.headers`."""
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    def body(
        self, request: ChatRequest, *, model: str, stream: bool, max_reply_tokens: int
    ) -> dict[str, object]:
        """See `Vendor.body`."""
        body: dict[str, object] = {
            "model": model,
            "messages": [_message(message) for message in request.messages],
        }
        optional: dict[str, object | None] = {
            "tools": [_tool(tool) for tool in request.tools] or None,
            "n": request.num_choices if request.num_choices > 1 else None,
            self.longest: request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stop": list(request.stop) or None,
        }
        body |= {name: value for name, value in optional.items() if value is not None}
        body |= _altered(request.altered)
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body

    def whole(self, data: bytes, reply: GatheredReply) -> list[Delta]:
        """See `Vendor.whole`."""
        deltas = self._read(data, reply)
        reply.is_complete = True
        return deltas

    def event(self, data: bytes, reply: GatheredReply) -> list[Delta]:
        """See `Vendor.event`."""
        if data == _DONE:
            reply.is_complete = True
            return []
        return self._read(data, reply)

    def _read(self, data: bytes, reply: GatheredReply) -> list[Delta]:
        answer = _ANSWER.decode(data)
        if answer.error is not None and bytes(answer.error) != b"null":
            raise ApiError("upstream", bytes(answer.error).decode(errors="replace"))
        if answer.usage is not None:
            details = answer.usage.prompt_tokens_details
            reply.usage = Usage(
                prompt_tokens=answer.usage.prompt_tokens,
                reply_tokens=answer.usage.completion_tokens,
                cached_tokens=(details.cached_tokens or 0) if details else 0,
            )
        deltas: list[Delta] = []
        for choice in answer.choices:
            message = choice.delta or choice.message
            if message is not None:
                deltas += reply.add(choice.index, *_parts(message))
            if choice.finish_reason is not None:
                reply.finish(choice.index, _finish_reason(choice.finish_reason))
        return deltas


def _parts(message: _Message) -> list[ReplyPart]:
    parts: list[ReplyPart] = []
    if reasoning := message.reasoning_content or message.reasoning:
        parts.append(ReplyPart(reasoning=reasoning))
    if text := message.content or message.refusal:
        parts.append(ReplyPart(text=text))
    for place, call in enumerate(message.tool_calls or ()):
        function = call.function or _Function()
        parts.append(
            ReplyPart(
                tool_place=place if call.index is None else call.index,
                tool_id=call.id or "",
                tool_name=function.name or "",
                tool_arguments=function.arguments or "",
            )
        )
    return parts


def _finish_reason(word: str) -> FinishReason:
    """Words of other servers, such as `content_filter`, are an end like another."""
    known = {"length": FinishReason.LENGTH, "tool_calls": FinishReason.TOOL_CALLS}
    return known.get(word, FinishReason.STOP)


def _message(message: Message) -> dict[str, object]:
    """A message; thoughts stay here, since vendors refuse those that they did not sign."""
    content: object = message.content
    if not isinstance(content, str):
        content = [_part(part) for part in content]
    written: dict[str, object] = {"role": message.role, "content": content}
    if message.tool_calls:
        written["content"] = content or None
        written["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        written["tool_call_id"] = message.tool_call_id
    return written


def _part(part: str | Picture) -> dict[str, object]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    data = f"data:{part.media_type};base64,{picture_data(part)}"
    return {"type": "image_url", "image_url": {"url": data}}


def picture_data(picture: Picture) -> str:
    """The bytes of a picture as base64.

    Raises:
        ApiError: Only its hash is at hand.
    """
    if picture.data is None:
        raise ApiError("unsupported", f"picture {picture.content_hash} has no bytes to be sent")
    return base64.b64encode(picture.data).decode()


def _tool(tool: Tool) -> dict[str, object]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": json.loads(tool.parameters),
        },
    }


def _altered(altered: Mapping[str, object]) -> dict[str, object]:
    """What else a client asks for; `top_k` and others that OpenAI has not are vLLM's own fields."""
    body = dict(altered)
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping):
        body["tool_choice"] = {"type": "function", "function": choice}
    constraint = body.pop("structured_outputs", None)
    if constraint is not None:
        schema = schema_of(constraint)
        body["response_format"] = (
            {"type": "json_object"}
            if schema is None
            else {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
        )
    return body


def schema_of(constraint: object) -> object | None:
    """The JSON schema that guided decoding would hold a reply to; None for any JSON object.

    Raises:
        ApiError: It is held to something else, such as a grammar.
    """
    known: Sequence[str] = ("json", "json_object")
    if isinstance(constraint, Mapping):
        words = cast("Mapping[str, object]", constraint)
        if "json" in words:
            return words["json"]
        if words.get("json_object"):
            return None
        known = [*words]
    raise ApiError(
        "unsupported",
        f"structured_outputs with {', '.join(known)}: only a JSON schema can hold a hosted model",
    )
