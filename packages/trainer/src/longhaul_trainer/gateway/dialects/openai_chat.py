"""OpenAI's chat completions, with the fields that vLLM's server adds to them."""

from collections.abc import Mapping, Sequence

from longhaul_core.types import FinishReason, Message, Part, ToolCall
from longhaul_trainer.gateway.dialects.events import COMMENT, event
from longhaul_trainer.gateway.dialects.fields import Fields, refusal
from longhaul_trainer.gateway.dialects.logprobs import token_names
from longhaul_trainer.gateway.dialects.openai_errors import openai_error
from longhaul_trainer.gateway.dialects.openai_tools import chosen_tools, read_tools
from longhaul_trainer.gateway.dialects.pictures import picture_of_url
from longhaul_trainer.gateway.dialects.sampling import (
    LARGEST,
    SAMPLED_ALONE,
    openai_settings,
    schema_constraint,
)
from longhaul_trainer.gateway.exchange import (
    ApiError,
    ChatReply,
    ChatRequest,
    Choice,
    Delta,
    Usage,
)

__all__ = ["OpenAIChat", "content_of", "finish_word", "usage_object"]

_IGNORED = (
    "longhaul",
    "metadata",
    "parallel_tool_calls",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning_effort",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
    "verbosity",
)
"""Read elsewhere, or of no consequence for what is sampled."""
_REFUSED = {
    "audio": "no model here speaks",
    "function_call": "use tool_choice",
    "functions": "use tools",
}


class OpenAIChat:
    """`POST /v1/chat/completions`."""

    def read(self, body: Mapping[str, object], *, path: Mapping[str, str]) -> ChatRequest:
        """What a body asks for; see `Dialect`."""
        fields = Fields(body)
        fields.refuse(_REFUSED)
        for word in fields.each("modalities", str, "'text'"):
            if word != "text":
                raise refusal("modalities", word, "'text'", kind="unsupported")
        tools, demanded = chosen_tools(fields, read_tools(fields), nested=True)
        settings = openai_settings(fields, constraint=_constraint(fields))
        settings["altered"] = {**settings["altered"], **demanded}
        longest = fields.integer("max_tokens", at_least=1, at_most=LARGEST)
        newer = fields.integer("max_completion_tokens", at_least=1, at_most=LARGEST)
        return ChatRequest(
            model=fields.needed_text("model"),
            messages=_messages(fields),
            tools=tools,
            max_tokens=longest if newer is None else newer,
            returns_logprobs=_returns_logprobs(fields),
            names_tokens_by_id=fields.flag("return_tokens_as_token_ids") or False,
            returns_token_ids=fields.flag("return_token_ids") or False,
            left_out=(*fields.unread(_IGNORED), *fields.left_out),
            **settings,
        )

    def whole(self, reply: ChatReply, request: ChatRequest) -> dict[str, object]:
        """The body of an answer that is not streamed."""
        answer: dict[str, object] = {
            "id": f"chatcmpl-{reply.id}",
            "object": "chat.completion",
            "created": reply.created,
            "model": reply.model,
            "choices": [
                {
                    "index": place,
                    "message": _message(choice),
                    "finish_reason": finish_word(choice),
                    "logprobs": _logprobs(choice, request),
                    **_token_ids(choice, request),
                }
                for place, choice in enumerate(reply.choices)
            ],
            "usage": usage_object(reply.usage),
        }
        if request.returns_token_ids:
            answer["prompt_token_ids"] = reply.prompt_tokens
        return answer

    def stream(self, request: ChatRequest) -> "_ChatStream":
        """Writes an answer as chunks."""
        return _ChatStream(request)

    def error(self, error: ApiError) -> dict[str, object]:
        """The body of an error."""
        return {"error": openai_error(error)}


class _ChatStream:
    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._head: dict[str, object] = {}

    def begin(self, *, id: str, created: int) -> bytes:
        self._head = {
            "id": f"chatcmpl-{id}",
            "object": "chat.completion.chunk",
            "created": created,
            "model": self._request.model,
        }
        role = {"role": "assistant", "content": ""}
        return b"".join(self._chunk(n, role) for n in range(self._request.num_choices))

    def delta(self, delta: Delta) -> bytes:
        part, written = delta.part, b""
        if part.reasoning:
            written += self._chunk(delta.choice, {"reasoning_content": part.reasoning})
        if part.text:
            written += self._chunk(delta.choice, {"content": part.text})
        if part.tool_place is not None:
            call: dict[str, object] = {"index": part.tool_place}
            if part.tool_id:
                call |= {"id": part.tool_id, "type": "function"}
            function = {"arguments": part.tool_arguments}
            if part.tool_name:
                function = {"name": part.tool_name, **function}
            written += self._chunk(delta.choice, {"tool_calls": [{**call, "function": function}]})
        return written

    def keep_alive(self) -> bytes:
        return COMMENT

    def end(self, reply: ChatReply) -> bytes:
        written = b""
        for place, choice in enumerate(reply.choices):
            further = _token_ids(choice, self._request)
            if self._request.returns_token_ids and place == 0:
                further["prompt_token_ids"] = reply.prompt_tokens
            logprobs = _logprobs(choice, self._request)
            written += self._chunk(
                place, {}, finish=finish_word(choice), further={"logprobs": logprobs, **further}
            )
        if self._request.streams_usage:
            written += event({**self._head, "choices": [], "usage": usage_object(reply.usage)})
        return written + b"data: [DONE]\n\n"

    def error(self, error: ApiError) -> bytes:
        return event({"error": openai_error(error)})

    def _chunk(
        self,
        choice: int,
        delta: Mapping[str, object],
        *,
        finish: str | None = None,
        further: Mapping[str, object] | None = None,
    ) -> bytes:
        usage = {"usage": None} if self._request.streams_usage else {}
        written = {"index": choice, "delta": delta, "finish_reason": finish, **(further or {})}
        return event({**self._head, "choices": [written], **usage})


def usage_object(usage: Usage) -> dict[str, object]:
    """Numbers of tokens as completions have them."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.reply_tokens,
        "total_tokens": usage.prompt_tokens + usage.reply_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def finish_word(choice: Choice) -> str:
    """Why a reply ended, in OpenAI's words."""
    if choice.finish_reason is FinishReason.STOP and choice.tool_calls:
        return FinishReason.TOOL_CALLS.value
    return choice.finish_reason.value


def content_of(parts: Sequence[Part]) -> str | tuple[Part, ...]:
    """Parts as a message holds them: a single text as it is."""
    if not parts:
        return ""
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    return tuple(parts)


def _messages(body: Fields) -> tuple[Message, ...]:
    messages = tuple(_read_message(message) for message in body.objects("messages"))
    if not messages:
        raise refusal("messages", body.get("messages"), "a list of at least one message")
    return messages


def _read_message(message: Fields) -> Message:
    role = message.choice("role", ("system", "developer", "user", "assistant", "tool"))
    message.refuse({"function_call": "use tool_calls", "audio": "no model here hears or speaks"})
    content = _content(message)
    match role:
        case None:
            raise refusal(message.place("role"), message.get("role"), "a role")
        case "assistant":
            return Message(
                role="assistant",
                content=content or message.text("refusal") or "",
                tool_calls=tuple(_read_call(call) for call in message.objects("tool_calls")),
                reasoning=message.text("reasoning_content") or message.text("reasoning") or "",
            )
        case "tool":
            return Message(
                role="tool", content=content, tool_call_id=message.needed_text("tool_call_id")
            )
        case "user":
            return Message(role="user", content=content)
        case _:
            return Message(role="system", content=content)


def _read_call(call: Fields) -> ToolCall:
    if call.get("type") not in (None, "function"):
        raise refusal(call.place("type"), call.get("type"), "'function'", kind="unsupported")
    function = call.needed_inner("function")
    return ToolCall(
        id=call.needed_text("id"),
        name=function.needed_text("name"),
        arguments=function.text("arguments") or "",
    )


def _content(message: Fields) -> str | tuple[Part, ...]:
    value = message.get("content")
    if value is None or isinstance(value, str):
        return value or ""
    return content_of([_read_part(part) for part in message.objects("content")])


def _read_part(part: Fields) -> Part:
    match part.get("type"):
        case "text":
            return part.text("text") or ""
        case "refusal":
            return part.text("refusal") or ""
        case "image_url":
            image = part.needed_inner("image_url")
            return picture_of_url(image.needed_text("url"), place=image.place("url"))
        case "file":
            file = part.needed_inner("file")
            file.refuse({"file_id": "send the image itself as file_data"})
            return picture_of_url(file.needed_text("file_data"), place=file.place("file_data"))
        case kind:
            raise refusal(
                part.place("type"), kind, "'text', 'image_url' or 'file'", kind="unsupported"
            )


def _constraint(body: Fields) -> Mapping[str, object] | None:
    wanted = body.inner("response_format")
    if wanted is None:
        return None
    match wanted.get("type"):
        case "text":
            return None
        case "json_object":
            return {"json_object": True}
        case "json_schema":
            schema = wanted.needed_inner("json_schema")
            return schema_constraint(schema.get("schema"), place=schema.place("schema"))
        case kind:
            raise refusal(
                "response_format.type",
                kind,
                "'text', 'json_object' or 'json_schema'",
                kind="unsupported",
            )


def _returns_logprobs(body: Fields) -> bool:
    if body.integer("top_logprobs", at_least=0, at_most=20):
        raise refusal(
            "top_logprobs", body.get("top_logprobs"), f"0, {SAMPLED_ALONE}", kind="unsupported"
        )
    return body.flag("logprobs") or False


def _message(choice: Choice) -> dict[str, object]:
    message: dict[str, object] = {
        "role": "assistant",
        "content": choice.text or (None if choice.tool_calls else ""),
        "refusal": None,
    }
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    if choice.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in choice.tool_calls
        ]
    return message


def _logprobs(choice: Choice, request: ChatRequest) -> dict[str, object] | None:
    if not request.returns_logprobs:
        return None
    names = token_names(choice, request)
    return {
        "content": [
            {"token": name, "bytes": list(known), "logprob": logprob, "top_logprobs": []}
            for name, known, logprob in zip(names, choice.token_bytes, choice.logprobs, strict=True)
        ],
        "refusal": None,
    }


def _token_ids(choice: Choice, request: ChatRequest) -> dict[str, object]:
    return {"token_ids": choice.tokens} if request.returns_token_ids else {}
