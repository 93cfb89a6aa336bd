"""Anthropic's messages, as its client sends and reads them."""

import json
from collections.abc import Mapping

import msgspec

from longhaul_core.policy import ReplyPart
from longhaul_core.types import FinishReason, Message, Picture, ToolCall
from longhaul_trainer.gateway.exchange import ApiError, ChatRequest, Delta, Usage
from longhaul_trainer.gateway.hosted.gathering import GatheredReply
from longhaul_trainer.gateway.hosted.openai_client import picture_data, schema_of

__all__ = ["AnthropicVendor"]

_VERSION = "2023-06-01"
_MALFORMED = "INVALID_JSON"
"""Key under which Anthropic's guide sends back arguments that were no JSON object."""


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _Delta(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    stop_reason: str | None = None
    stop_sequence: str | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Answer(msgspec.Struct):
    """An answer, or an event of one."""

    type: str = ""
    content: list[_Block] = []
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: _Usage | None = None
    message: "_Answer | None" = None
    index: int = 0
    content_block: _Block | None = None
    delta: _Delta | None = None
    error: msgspec.Raw | None = None


_ANSWER = msgspec.json.Decoder(_Answer)


class AnthropicVendor:
    """`POST {url}/v1/messages`. A `Vendor`."""

    path = "/v1/messages"

    def headers(self, key: str | None) -> dict[str, str]:
        """See `Vendor.headers`."""
        named = {} if key is None else {"x-api-key": key}
        return {"anthropic-version": _VERSION, **named}

    def body(
        self, request: ChatRequest, *, model: str, stream: bool, max_reply_tokens: int
    ) -> dict[str, object]:
        """See `Vendor.body`."""
        if request.num_choices > 1:
            raise ApiError(
                "unsupported",
                f"n = {request.num_choices}: Anthropic's messages have one choice",
                parameter="n",
            )
        rest = list(request.messages)
        system: list[str] = []
        while rest and rest[0].role == "system":
            system.append(rest.pop(0).text)
        body: dict[str, object] = {
            "model": model,
            "max_tokens": request.max_tokens or max_reply_tokens,
            "messages": _turns(rest),
        }
        optional: dict[str, object | None] = {
            "system": "\n\n".join(filter(None, system)) or None,
            "tools": [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": {"type": "object", **json.loads(tool.parameters)},
                }
                for tool in request.tools
            ]
            or None,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stop_sequences": list(request.stop) or None,
            "stream": stream or None,
        }
        body |= {name: value for name, value in optional.items() if value is not None}
        return body | _altered(request.altered)

    def whole(self, data: bytes, reply: GatheredReply) -> list[Delta]:
        """See `Vendor.whole`."""
        answer = _ANSWER.decode(data)
        self._raise(answer)
        deltas: list[Delta] = []
        for place, block in enumerate(answer.content):
            arguments = bytes(block.input).decode() if block.type == "tool_use" else ""
            deltas += reply.add(0, *_of_block(block, place, arguments=arguments))
        self._finish(reply, answer.stop_reason, answer.stop_sequence)
        _count(reply, answer.usage)
        reply.is_complete = True
        return deltas

    def event(self, data: bytes, reply: GatheredReply) -> list[Delta]:
        """See `Vendor.event`."""
        event = _ANSWER.decode(data)
        self._raise(event)
        if event.type == "message_start" and event.message is not None:
            _count(reply, event.message.usage)
            reply.add(0)
        elif event.type == "content_block_start" and event.content_block is not None:
            return reply.add(0, *_of_block(event.content_block, event.index, arguments=""))
        elif event.type == "content_block_delta" and event.delta is not None:
            return reply.add(0, *_of_delta(event.delta, event.index))
        elif event.type == "message_delta":
            if event.delta is not None:
                self._finish(reply, event.delta.stop_reason, event.delta.stop_sequence)
            _count(reply, event.usage)
        elif event.type == "message_stop":
            reply.is_complete = True
        return []

    def _raise(self, answer: _Answer) -> None:
        if answer.error is not None:
            raise ApiError("upstream", bytes(answer.error).decode(errors="replace"))

    def _finish(self, reply: GatheredReply, reason: str | None, stop_word: str | None) -> None:
        known = {"max_tokens": FinishReason.LENGTH, "tool_use": FinishReason.TOOL_CALLS}
        reply.finish(0, known.get(reason or "", FinishReason.STOP), stop_word=stop_word)


def _count(reply: GatheredReply, usage: _Usage | None) -> None:
    """Numbers of tokens; a later event repeats some of an earlier one's, or leaves them out."""
    if usage is None:
        return
    known = reply.usage or Usage(prompt_tokens=0, reply_tokens=0)
    if usage.input_tokens is not None:
        cached = usage.cache_read_input_tokens or 0
        prompt = usage.input_tokens + cached + (usage.cache_creation_input_tokens or 0)
        known = Usage(prompt_tokens=prompt, reply_tokens=known.reply_tokens, cached_tokens=cached)
    reply.usage = Usage(
        prompt_tokens=known.prompt_tokens,
        reply_tokens=known.reply_tokens if usage.output_tokens is None else usage.output_tokens,
        cached_tokens=known.cached_tokens,
    )


def _of_block(block: _Block, place: int, *, arguments: str) -> list[ReplyPart]:
    """Tool calls are told apart by the place of their block."""
    if block.type == "tool_use":
        return [
            ReplyPart(
                tool_place=place,
                tool_id=block.id,
                tool_name=block.name,
                tool_arguments=arguments,
            )
        ]
    if block.thinking:
        return [ReplyPart(reasoning=block.thinking)]
    return [ReplyPart(text=block.text)] if block.text else []


def _of_delta(delta: _Delta, place: int) -> list[ReplyPart]:
    if delta.type == "input_json_delta":
        return [ReplyPart(tool_place=place, tool_arguments=delta.partial_json)]
    if delta.thinking:
        return [ReplyPart(reasoning=delta.thinking)]
    return [ReplyPart(text=delta.text)] if delta.text else []


def _turns(messages: list[Message]) -> list[dict[str, object]]:
    """Messages as turns of two: results of tools are the user's, and so is a late system text."""
    turns: list[tuple[str, list[object]]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if blocks and turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        elif blocks:
            turns.append((role, blocks))
    return [{"role": role, "content": blocks} for role, blocks in turns]


def _blocks(message: Message) -> list[object]:
    blocks: list[object] = [_part(part) for part in message.parts if part]
    if message.tool_call_id is not None:
        return [{"type": "tool_result", "tool_use_id": message.tool_call_id, "content": blocks}]
    return [*blocks, *(_tool_use(call) for call in message.tool_calls)]


def _part(part: str | Picture) -> dict[str, object]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    source = {"type": "base64", "media_type": part.media_type, "data": picture_data(part)}
    return {"type": "image", "source": source}


def _tool_use(call: ToolCall) -> dict[str, object]:
    try:
        given = msgspec.json.decode(call.arguments or "{}", type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        given = {_MALFORMED: call.arguments}
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": given}


def _altered(altered: Mapping[str, object]) -> dict[str, object]:
    """What else a client asks for, where Anthropic has a word for it."""
    body: dict[str, object] = {}
    choice: dict[str, object] = {}
    for name, value in altered.items():
        if name == "top_k":
            body["top_k"] = value
        elif name == "parallel_tool_calls":
            choice["disable_parallel_tool_use"] = not value
        elif name == "tool_choice":
            choice |= {"type": "tool", **value} if isinstance(value, Mapping) else {"type": "any"}
        elif name == "structured_outputs" and (schema := schema_of(value)) is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        else:
            raise ApiError(
                "unsupported",
                f"{name} = {value!r}: Anthropic's messages have no word for it; leave it out",
                parameter=name,
            )
    if choice:
        body["tool_choice"] = {"type": "auto", **choice}
    return body
