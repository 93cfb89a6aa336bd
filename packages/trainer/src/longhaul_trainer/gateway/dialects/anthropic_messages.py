"""Anthropic's messages."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from longhaul_core.policy import ReplyPart
from longhaul_core.types import FinishReason, Message, Part, Tool, ToolCall
from longhaul_trainer.gateway.dialects.deferred_tools import told_of
from longhaul_trainer.gateway.dialects.events import event
from longhaul_trainer.gateway.dialects.fields import Fields, json_text, object_of, refusal
from longhaul_trainer.gateway.dialects.openai_chat import content_of
from longhaul_trainer.gateway.dialects.pictures import picture_of_base64
from longhaul_trainer.gateway.dialects.sampling import LARGEST, schema_constraint, stop_words
from longhaul_trainer.gateway.exchange import (
    ApiError,
    ChatReply,
    ChatRequest,
    Choice,
    Delta,
    ErrorKind,
    Usage,
)

__all__ = ["AnthropicMessages"]

_IGNORED = (
    "betas",
    "cache_control",
    "context_management",
    "diagnostics",
    "inference_geo",
    "longhaul",
    "metadata",
    "output_format",
    "service_tier",
    "speed",
    "user_profile_id",
    "workspace_id",
)
"""Read elsewhere, or of no consequence for what is sampled."""
_THREAD = "thread"
"""Field by which a client would leave the conversation to the server. At the error with a code of
its own, the client's tool runner sends all messages instead."""
_REFUSED = {
    "container": "the gateway runs no code",
    _THREAD: "send all messages",
    "mcp_servers": "the gateway runs no tools; offer them as tools of your own",
}
_ERRORS: Mapping[ErrorKind, str] = {
    "invalid_request": "invalid_request_error",
    "authentication": "authentication_error",
    "not_found": "not_found_error",
    "too_large": "request_too_large",
    "gone": "invalid_request_error",
    "rate_limited": "rate_limit_error",
    "prompt_too_long": "invalid_request_error",
    "episode_limit": "invalid_request_error",
    "unsupported": "invalid_request_error",
    "overloaded": "overloaded_error",
    "upstream": "api_error",
    "internal": "api_error",
}
_SERVERS_SEARCH = "tool_search_tool_"
"""How the names of Anthropic's own tools begin that look among deferred ones."""
_MALFORMED = "INVALID_JSON"
"""Key under which Anthropic's own guide sends back arguments that were no JSON object."""
_BILLING = "x-anthropic-billing-header"
"""Claude Code begins its system text with such a line, another one in every call. vLLM's server
leaves it out of the prompt too: no prompt would go on from the one before."""


class AnthropicMessages:
    """`POST /v1/messages`, and what `POST /v1/messages/count_tokens` counts."""

    def read(self, body: Mapping[str, object], *, path: Mapping[str, str]) -> ChatRequest:
        """What a body asks for; see `Dialect`."""
        fields = Fields(body)
        longest = fields.integer("max_tokens", at_least=1, at_most=LARGEST)
        if longest is None:
            raise refusal("max_tokens", None, f"an integer from 1 to {LARGEST:,}")
        return self._read(fields, max_tokens=longest)

    def read_count(self, body: Mapping[str, object], *, path: Mapping[str, str]) -> ChatRequest:
        """A prompt whose tokens are to be counted, and that gets no reply."""
        return self._read(Fields(body), max_tokens=None)

    def count(self, num_tokens: int) -> dict[str, object]:
        """The answer to such a request."""
        return {"input_tokens": num_tokens}

    def whole(self, reply: ChatReply, request: ChatRequest) -> dict[str, object]:
        """The body of an answer that is not streamed."""
        choice = reply.choices[0]
        content: list[dict[str, object]] = []
        if choice.reasoning and request.shows_thoughts:
            signature = _signature(choice.reasoning)
            content.append(
                {"type": "thinking", "thinking": choice.reasoning, "signature": signature}
            )
        if choice.text:
            content.append({"type": "text", "text": choice.text})
        for call in choice.tool_calls:
            arguments = _input(call.arguments)
            content.append(
                {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}
            )
        return {**_message(reply.id, request, reply.usage), "content": content, **_stop(choice)}

    def stream(self, request: ChatRequest) -> "_MessageStream":
        """Writes an answer as events."""
        return _MessageStream(request)

    def error(self, error: ApiError) -> dict[str, object]:
        """The body of an error."""
        return _error(error)

    def _read(self, fields: Fields, *, max_tokens: int | None) -> ChatRequest:
        fields.refuse(_REFUSED)
        toolbox = _Toolbox.of(fields)
        messages = (*_system(fields), *_messages(fields, toolbox))
        tools, loaded, altered = _chosen_tools(fields, toolbox)
        altered |= _constraint(fields)
        top_k = fields.integer("top_k", at_least=0, at_most=LARGEST)
        if top_k:
            altered["top_k"] = top_k
        return ChatRequest(
            model=fields.needed_text("model"),
            messages=messages,
            tools=tools,
            loaded_tools=loaded,
            max_tokens=max_tokens,
            temperature=fields.number("temperature", at_least=0, at_most=1),
            top_p=fields.number("top_p", at_least=1e-6, at_most=1),
            stop=stop_words(fields, "stop_sequences"),
            altered=altered,
            stream=fields.flag("stream") or False,
            streams_usage=True,
            shows_thoughts=_wants_thoughts(fields),
            left_out=(*fields.unread(_IGNORED), *fields.left_out),
        )


class _MessageStream:
    """Events of one message; its blocks come one after the other.

    Arguments of a tool call are sent when they are complete, as Anthropic's own server does with
    them unless a tool asks for `eager_input_streaming`: its client raises at a piece that is no
    JSON, and so would end a program at a model's first slip.
    """

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._shows_thoughts = request.shows_thoughts
        self._place = -1
        self._open: tuple[Literal["thinking", "text", "tool_use"], int] | None = None
        self._pieces: list[str] = []

    def begin(self, *, id: str, created: int) -> bytes:
        nothing_yet = Usage(prompt_tokens=0, reply_tokens=0)
        message = _message(id, self._request, nothing_yet)
        return _event(
            "message_start",
            message={**message, "content": [], "stop_reason": None, "stop_sequence": None},
        ) + _event("ping")

    def delta(self, delta: Delta) -> bytes:
        part, written = delta.part, b""
        if part.reasoning and self._shows_thoughts:
            written += self._turn_to("thinking", {"thinking": "", "signature": ""})
            self._pieces.append(part.reasoning)
            written += self._piece("thinking_delta", thinking=part.reasoning)
        if part.text:
            written += self._turn_to("text", {"text": ""})
            written += self._piece("text_delta", text=part.text)
        if part.tool_place is not None:
            written += self._of_tool(part, part.tool_place)
        return written

    def keep_alive(self) -> bytes:
        return _event("ping")

    def end(self, reply: ChatReply) -> bytes:
        written = self._close()
        written += _event("message_delta", delta=_stop(reply.choices[0]), usage=_usage(reply.usage))
        return written + _event("message_stop")

    def error(self, error: ApiError) -> bytes:
        return event(_error(error), name="error")

    def _of_tool(self, part: ReplyPart, place: int) -> bytes:
        written = self._turn_to(
            "tool_use", {"id": part.tool_id, "name": part.tool_name, "input": {}}, place
        )
        self._pieces.append(part.tool_arguments)
        return written

    def _turn_to(
        self,
        kind: Literal["thinking", "text", "tool_use"],
        block: Mapping[str, object],
        tool_place: int = 0,
    ) -> bytes:
        """Begin a block of the kind, and of the tool call, unless it is open already."""
        if self._open == (kind, tool_place):
            return b""
        written = self._close()
        self._open = (kind, tool_place)
        self._place += 1
        return written + _event(
            "content_block_start", index=self._place, content_block={"type": kind, **block}
        )

    def _piece(self, kind: str, **piece: object) -> bytes:
        return _event("content_block_delta", index=self._place, delta={"type": kind, **piece})

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        kind, gathered = self._open[0], "".join(self._pieces)
        self._open, self._pieces = None, []
        written = b""
        if kind == "thinking":
            written = self._piece("signature_delta", signature=_signature(gathered))
        elif kind == "tool_use":
            arguments = gathered
            if object_of(arguments) is None:
                arguments = json_text(_input(arguments), "input")
            written = self._piece("input_json_delta", partial_json=arguments)
        return written + _event("content_block_stop", index=self._place)


def _event(kind: str, **values: object) -> bytes:
    return event({"type": kind, **values}, name=kind)


def _error(error: ApiError) -> dict[str, object]:
    # Its harnesses know a prompt that is to be shortened by these words of the vendor's.
    words = "prompt is too long: " if error.kind == "prompt_too_long" else ""
    said: dict[str, object] = {"type": _ERRORS[error.kind], "message": words + error.message}
    if error.parameter == _THREAD:
        said["details"] = {"error_code": "thread_unsupported_request", "unsupported": []}
    return {"type": "error", "error": said, "request_id": None}


def _message(id: str, request: ChatRequest, usage: Usage) -> dict[str, object]:
    return {
        "id": f"msg_{id}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "usage": _usage(usage),
    }


def _usage(usage: Usage) -> dict[str, object]:
    """Anthropic counts tokens of its cache apart from the other ones."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.reply_tokens,
    }


def _stop(choice: Choice) -> dict[str, object]:
    if choice.finish_reason is FinishReason.LENGTH:
        reason = "max_tokens"
    elif choice.tool_calls:
        reason = "tool_use"
    else:
        reason = "end_turn" if choice.stop_word is None else "stop_sequence"
    return {"stop_reason": reason, "stop_sequence": choice.stop_word}


def _signature(thoughts: str) -> str:
    """Clients send thoughts back only with a signature; nothing is checked by it."""
    return base64.b64encode(hashlib.sha256(thoughts.encode()).digest()).decode()


def _input(arguments: str) -> dict[str, object]:
    """Arguments as an object, which the vendor's are."""
    found = object_of(arguments)
    return {_MALFORMED: arguments} if found is None else found


def _wants_thoughts(body: Fields) -> bool:
    thinking = body.inner("thinking")
    if thinking is None:
        return False
    kinds = ("enabled", "adaptive", "between_tools", "disabled")
    if thinking.choice("type", kinds) is None:
        raise refusal(thinking.place("type"), None, " or ".join(map(repr, kinds)))
    thinking.integer("budget_tokens", at_least=0, at_most=LARGEST)
    return thinking.get("type") != "disabled" and thinking.get("display") != "omitted"


@dataclass(slots=True, kw_only=True)
class _Toolbox:
    """The tools of a request: those that its prompt begins with, and those that are deferred.

    The model learns of a deferred tool where a tool's result refers to it, as of Anthropic's own
    server, so that the conversation's first tokens stay.
    """

    offered: tuple[Tool, ...]
    deferred: tuple[Tool, ...]
    loaded: list[Tool]
    """Of the deferred ones, those that a result has referred to."""

    @classmethod
    def of(cls, body: Fields) -> "_Toolbox":
        """Read what a body offers, before its messages are read."""
        found: list[tuple[Tool, bool]] = []
        are_searched_by_server = False
        for tool in body.objects("tools"):
            if tool.get("type") not in (None, "custom"):
                kind = tool.needed_text("type")
                body.leave_out(f"tools.{kind}")
                are_searched_by_server |= kind.startswith(_SERVERS_SEARCH)
                continue
            schema = tool.needed_inner("input_schema")
            read = Tool(
                name=tool.needed_text("name"),
                description=tool.text("description") or "",
                parameters=json_text(schema.values, schema.here),
            )
            found.append((read, tool.flag("defer_loading") or False))
        if are_searched_by_server or all(is_deferred for _, is_deferred in found):
            # Nobody here searches them, so the model sees them all.
            found = [(tool, False) for tool, _ in found]
        return cls(
            offered=tuple(tool for tool, is_deferred in found if not is_deferred),
            deferred=tuple(tool for tool, is_deferred in found if is_deferred),
            loaded=[],
        )

    def load(self, name: str, *, place: str) -> Tool:
        """The tool of a name, which the reply may ask for from here on.

        Raises:
            ApiError: There is none of this name.
        """
        all_tools = (*self.offered, *self.deferred)
        tool = next((tool for tool in all_tools if tool.name == name), None)
        if tool is None:
            raise refusal(place, name, "the name of one of the tools")
        if tool not in (*self.offered, *self.loaded):
            self.loaded.append(tool)
        return tool


def _chosen_tools(
    body: Fields, toolbox: _Toolbox
) -> tuple[tuple[Tool, ...], tuple[Tool, ...], dict[str, object]]:
    """Tools that are offered, those that are loaded, and what is demanded; see `openai_tools`."""
    tools, loaded = toolbox.offered, tuple(toolbox.loaded)
    choice = body.inner("tool_choice")
    if choice is None:
        return tools, loaded, {}
    kind = choice.choice("type", ("auto", "any", "tool", "none"))
    altered: dict[str, object] = {}
    if tools and choice.flag("disable_parallel_tool_use"):
        altered["parallel_tool_calls"] = False
    if kind == "none":
        return (), (), {}
    if kind in ("any", "tool") and not tools:
        raise refusal(choice.place("type"), kind, f"{kind!r} together with tools")
    if kind == "any":
        altered["tool_choice"] = "required"
    if kind == "tool":
        name = choice.needed_text("name")
        if name not in {tool.name for tool in (*tools, *loaded)}:
            raise refusal(choice.place("name"), name, "the name of one of the tools")
        altered["tool_choice"] = {"name": name}
    if kind is None:
        raise refusal(choice.place("type"), None, "'auto', 'any', 'tool' or 'none'")
    return tools, loaded, altered


def _constraint(body: Fields) -> dict[str, object]:
    config = body.inner("output_config") or Fields({})
    wanted = config.inner("format") or body.inner("output_format")
    if wanted is None:
        return {}
    if wanted.choice("type", ("json_schema",)) is None:
        raise refusal(wanted.place("type"), None, "'json_schema'")
    schema = schema_constraint(wanted.get("schema"), place=wanted.place("schema"))
    return {"structured_outputs": schema}


def _system(body: Fields) -> list[Message]:
    given = body.get("system")
    blocks = [given] if isinstance(given, str) else _texts(body, "system")
    kept = [text for text in blocks if text and not text.startswith(_BILLING)]
    return [Message(role="system", content=content_of(kept))] if kept else []


def _texts(holder: Fields, name: str) -> list[str]:
    found: list[str] = []
    for block in holder.objects(name):
        if block.get("type") != "text":
            raise refusal(block.place("type"), block.get("type"), "'text'", kind="unsupported")
        found.append(block.text("text") or "")
    return found


def _messages(body: Fields, toolbox: _Toolbox) -> list[Message]:
    found: list[Message] = []
    for message in body.objects("messages"):
        match message.choice("role", ("user", "assistant", "system")):
            case "user":
                found += _of_user(message, toolbox)
            case "assistant":
                found.append(_of_assistant(message))
            case "system":
                text = message.get("content")
                blocks = [text] if isinstance(text, str) else _texts(message, "content")
                found.append(Message(role="system", content=content_of(blocks)))
            case _:
                raise refusal(message.place("role"), None, "'user', 'assistant' or 'system'")
    if not found:
        raise refusal("messages", body.get("messages"), "a list of at least one message")
    if found[-1].role == "assistant":
        raise ApiError(
            "unsupported",
            f"messages[{len(body.items('messages')) - 1}] is the assistant's: the gateway does not "
            "go on with a reply that the client began. End with a user's message",
            parameter="messages",
        )
    return found


def _of_user(message: Fields, toolbox: _Toolbox) -> list[Message]:
    """A user's message, with each tool's result as a message of its own."""
    if not isinstance(message.get("content"), list):
        return [Message(role="user", content=message.text("content") or "")]
    found: list[Message] = []
    parts: list[Part] = []
    for block in message.objects("content"):
        if block.get("type") != "tool_result":
            parts += _read_block(block)
            continue
        if parts:
            found.append(Message(role="user", content=content_of(parts)))
            parts = []
        found.append(
            Message(
                role="tool",
                content=content_of(_blocks(block, toolbox)),
                tool_call_id=block.needed_text("tool_use_id"),
            )
        )
    if parts or not found:
        found.append(Message(role="user", content=content_of(parts)))
    return found


def _blocks(holder: Fields, toolbox: _Toolbox) -> list[Part]:
    """What a tool's result holds."""
    value = holder.get("content")
    if isinstance(value, str):
        return [value]
    found: list[Part] = []
    for is_reference, blocks in groupby(
        holder.objects("content"), key=lambda block: block.get("type") == "tool_reference"
    ):
        if is_reference:
            loaded = [
                toolbox.load(block.needed_text("tool_name"), place=block.place("tool_name"))
                for block in blocks
            ]
            found.append(told_of(loaded, place=holder.place("content")))
        else:
            found += [part for block in blocks for part in _read_block(block)]
    return found


def _read_block(block: Fields) -> Sequence[Part]:
    match block.get("type"):
        case "text" | "image":
            return [_text_or_picture(block)]
        case "document":
            return _document(block)
        case "search_result":
            head = [block.needed_text("title"), block.needed_text("source")]
            return ["\n".join([*head, *_texts(block, "content")])]
        case kind:
            raise refusal(
                block.place("type"),
                kind,
                "'text', 'image', 'document', 'search_result' or 'tool_result'",
                kind="unsupported",
            )


def _text_or_picture(block: Fields) -> Part:
    if block.get("type") == "text":
        return block.text("text") or ""
    if block.get("type") != "image":
        raise refusal(
            block.place("type"), block.get("type"), "'text' or 'image'", kind="unsupported"
        )
    source = block.needed_inner("source")
    if source.get("type") != "base64":
        raise refusal(
            source.place("type"),
            source.get("type"),
            "'base64': the gateway fetches nothing",
            kind="unsupported",
        )
    return picture_of_base64(source.needed_text("data"), place=source.place("data"))


def _document(block: Fields) -> Sequence[Part]:
    source = block.needed_inner("source")
    head = [text for name in ("title", "context") if (text := block.text(name))]
    match source.get("type"):
        case "text":
            return ["\n".join([*head, source.text("data") or ""])]
        case "content":
            content = source.get("content")
            if isinstance(content, str):
                return [*head, content]
            return [*head, *(_text_or_picture(held) for held in source.objects("content"))]
        case kind:
            raise refusal(
                source.place("type"),
                kind,
                "'text' or 'content': no model here reads PDF files",
                kind="unsupported",
            )


def _of_assistant(message: Fields) -> Message:
    if not isinstance(message.get("content"), list):
        return Message(role="assistant", content=message.text("content") or "")
    thoughts: list[str] = []
    parts: list[Part] = []
    calls: list[ToolCall] = []
    for block in message.objects("content"):
        match block.get("type"):
            case "thinking":
                thoughts.append(block.text("thinking") or "")
            case "redacted_thinking":
                pass  # nobody here wrote it, and nobody can read it
            case "tool_use":
                calls.append(_read_call(block))
            case _:
                parts += _read_block(block)
    return Message(
        role="assistant",
        content=content_of(parts),
        tool_calls=tuple(calls),
        reasoning="\n".join(thoughts),
    )


def _read_call(block: Fields) -> ToolCall:
    given = block.inner("input") or Fields({})
    malformed = given.get(_MALFORMED)
    if len(given.values) == 1 and isinstance(malformed, str):
        arguments = malformed
    else:
        arguments = json_text(given.values, given.here)
    return ToolCall(id=block.needed_text("id"), name=block.needed_text("name"), arguments=arguments)
