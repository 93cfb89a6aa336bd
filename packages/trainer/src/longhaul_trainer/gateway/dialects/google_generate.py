"""Google's generateContent and streamGenerateContent."""

import re
from collections.abc import Mapping, Sequence
from typing import cast

from longhaul_core.policy import ReplyPart
from longhaul_core.types import FinishReason, Message, Part, Tool, ToolCall
from longhaul_trainer.gateway.dialects.events import event
from longhaul_trainer.gateway.dialects.fields import Fields, json_text, object_of, refusal
from longhaul_trainer.gateway.dialects.logprobs import token_names
from longhaul_trainer.gateway.dialects.openai_chat import content_of
from longhaul_trainer.gateway.dialects.pictures import picture_of_base64
from longhaul_trainer.gateway.dialects.sampling import (
    LARGEST,
    MAX_CHOICES,
    SAMPLED_ALONE,
    stop_words,
)
from longhaul_trainer.gateway.exchange import (
    ApiError,
    ChatReply,
    ChatRequest,
    Choice,
    Delta,
    ErrorKind,
    Usage,
)

__all__ = ["GoogleGenerate"]

_IGNORED = ("labels", "longhaul", "model", "safetySettings", "serviceTier", "store")
"""Read elsewhere, or of no consequence for what is sampled."""
_IGNORED_SETTINGS = ("enableEnhancedCivicAnswers", "mediaResolution")
"""Of those in `generationConfig` too."""
_REFUSED = {"cachedContent": "send the content itself"}
_REFUSED_SETTINGS = {
    "audioTranscriptionConfig": "no model here hears",
    "imageConfig": "no model here draws",
    "speechConfig": "no model here speaks",
}
_STATUSES: Mapping[ErrorKind, str] = {
    "invalid_request": "INVALID_ARGUMENT",
    "authentication": "UNAUTHENTICATED",
    "not_found": "NOT_FOUND",
    "too_large": "INVALID_ARGUMENT",
    "gone": "FAILED_PRECONDITION",
    "rate_limited": "RESOURCE_EXHAUSTED",
    "prompt_too_long": "INVALID_ARGUMENT",
    "episode_limit": "INVALID_ARGUMENT",
    "unsupported": "INVALID_ARGUMENT",
    "overloaded": "UNAVAILABLE",
    "upstream": "UNAVAILABLE",
    "internal": "INTERNAL",
}
_MAX_DEPTH = 50
_SCHEMA_LISTS = ("anyOf", "prefixItems")
_SCHEMA_NUMBERS = (
    "maxItems",
    "maxLength",
    "maxProperties",
    "minItems",
    "minLength",
    "minProperties",
)
"""64-bit integers of a schema, which protocol buffers write as text."""


class GoogleGenerate:
    """`POST /v1beta/models/{model}:{method}`, and from newer clients `POST /v1/models/…`.

    `path` has `model`; `method`, which is `generateContent`, `streamGenerateContent` or
    `countTokens`; and `alt`, the parameter of that name, empty where there is none.
    """

    def read(self, body: Mapping[str, object], *, path: Mapping[str, str]) -> ChatRequest:
        """What a body asks for; see `Dialect`."""
        streams = path.get("method") == "streamGenerateContent"
        if streams and path.get("alt") != "sse":
            raise refusal(
                "alt", path.get("alt", ""), "'sse', for a stream of events", kind="unsupported"
            )
        fields = Fields(body).renamed(_camel)
        fields.refuse(_REFUSED)
        config = (fields.inner("generationConfig") or Fields({})).renamed(_camel)
        config.refuse(_REFUSED_SETTINGS)
        for word in config.each("responseModalities", str, "'TEXT'"):
            if word.upper() != "TEXT":
                raise refusal("responseModalities", word, "'TEXT'", kind="unsupported")
        config.integer("seed", at_least=-(2**63), at_most=2**63 - 1)
        tools, demanded = _chosen_tools(fields, _read_tools(fields))
        thinking = (config.inner("thinkingConfig") or Fields({})).renamed(_camel)
        return ChatRequest(
            model=path.get("model") or fields.needed_text("model"),
            messages=(*_system(fields), *_contents(fields)),
            tools=tools,
            num_choices=config.integer("candidateCount", at_least=1, at_most=MAX_CHOICES) or 1,
            max_tokens=config.integer("maxOutputTokens", at_least=1, at_most=LARGEST),
            temperature=config.number("temperature", at_least=0, at_most=2),
            top_p=config.number("topP", at_least=1e-6, at_most=1),
            stop=stop_words(config, "stopSequences"),
            altered={**_altered(config), **demanded},
            stream=streams,
            streams_usage=True,
            returns_logprobs=_returns_logprobs(config),
            shows_thoughts=thinking.flag("includeThoughts") or False,
            left_out=(
                *fields.unread(_IGNORED),
                *config.unread(_IGNORED_SETTINGS),
                *fields.left_out,
            ),
        )

    def read_count(self, body: Mapping[str, object], *, path: Mapping[str, str]) -> ChatRequest:
        """A prompt whose tokens are to be counted, and that gets no reply."""
        fields = Fields(body).renamed(_camel)
        whole = fields.inner("generateContentRequest")
        if whole is not None:
            return self.read(whole.values, path={"model": path.get("model", "")})
        return self.read(body, path={"model": path.get("model", "")})

    def count(self, num_tokens: int) -> dict[str, object]:
        """The answer to such a request."""
        return {"totalTokens": num_tokens}

    def whole(self, reply: ChatReply, request: ChatRequest) -> dict[str, object]:
        """The body of an answer that is not streamed."""
        return {
            "candidates": [
                _candidate(place, _whole_parts(choice, request), choice=choice, request=request)
                for place, choice in enumerate(reply.choices)
            ],
            "usageMetadata": _usage(reply.usage),
            "modelVersion": request.model,
            "responseId": reply.id,
        }

    def stream(self, request: ChatRequest) -> "_GenerateStream":
        """Writes an answer as chunks."""
        return _GenerateStream(request)

    def error(self, error: ApiError) -> dict[str, object]:
        """The body of an error."""
        return _error(error)


class _GenerateStream:
    """Chunks of one answer. A function call comes whole, as it does from Google's server."""

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._shows_thoughts = request.shows_thoughts
        self._id = ""
        self._calls: dict[int, list[ReplyPart]] = {}

    def begin(self, *, id: str, created: int) -> bytes:
        self._id = id
        return b""

    def delta(self, delta: Delta) -> bytes:
        part, written = delta.part, b""
        if part.reasoning and self._shows_thoughts:
            written += self._chunk(delta.choice, [{"text": part.reasoning, "thought": True}])
        if part.text:
            written += self._chunk(delta.choice, [*self._call(delta.choice), {"text": part.text}])
        if part.tool_place is not None:
            call = self._calls.get(delta.choice)
            if call and call[0].tool_place != part.tool_place:
                written += self._chunk(delta.choice, self._call(delta.choice))
            self._calls.setdefault(delta.choice, []).append(part)
        return written

    def keep_alive(self) -> bytes:
        return b"\n"  # the client takes a comment for the JSON of an error

    def end(self, reply: ChatReply) -> bytes:
        written = b""
        for place, choice in enumerate(reply.choices):
            last = place == len(reply.choices) - 1
            written += self._chunk(
                place, self._call(place), choice=choice, usage=reply.usage if last else None
            )
        return written

    def error(self, error: ApiError) -> bytes:
        return event(_error(error))

    def _call(self, place: int) -> list[dict[str, object]]:
        """The function call that is complete now, if there is one."""
        parts = self._calls.pop(place, [])
        if not parts:
            return []
        arguments = "".join(part.tool_arguments for part in parts)
        return _function_call(parts[0].tool_id, parts[0].tool_name, arguments)

    def _chunk(
        self,
        place: int,
        parts: Sequence[Mapping[str, object]],
        *,
        choice: Choice | None = None,
        usage: Usage | None = None,
    ) -> bytes:
        if not parts and choice is None:
            return b""
        chunk: dict[str, object] = {
            "candidates": [_candidate(place, parts, choice=choice, request=self._request)],
            "modelVersion": self._request.model,
            "responseId": self._id,
        }
        if usage is not None:
            chunk["usageMetadata"] = _usage(usage)
        return event(chunk)


def _camel(name: str) -> str:
    """Protocol buffers take a field's name in both forms."""
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def _error(error: ApiError) -> dict[str, object]:
    said = {"code": error.status, "message": error.message, "status": _STATUSES[error.kind]}
    return {"error": said}


def _usage(usage: Usage) -> dict[str, object]:
    return {
        "promptTokenCount": usage.prompt_tokens,
        "candidatesTokenCount": usage.reply_tokens,
        "totalTokenCount": usage.prompt_tokens + usage.reply_tokens,
        "cachedContentTokenCount": usage.cached_tokens,
    }


def _candidate(
    place: int,
    parts: Sequence[Mapping[str, object]],
    *,
    choice: Choice | None,
    request: ChatRequest,
) -> dict[str, object]:
    candidate: dict[str, object] = {
        "index": place,
        # the client leaves a turn out of its history if any chunk of it has no parts
        "content": {"role": "model", "parts": list(parts) or [{"text": ""}]},
    }
    if choice is None:
        return candidate
    candidate["finishReason"] = _finish_word(choice)
    if request.returns_logprobs:
        names = token_names(choice, request)
        chosen = [
            {"token": name, "tokenId": token, "logProbability": logprob}
            for name, token, logprob in zip(names, choice.tokens, choice.logprobs, strict=True)
        ]
        candidate["logprobsResult"] = {"chosenCandidates": chosen}
    return candidate


def _finish_word(choice: Choice) -> str:
    if choice.finish_reason is FinishReason.LENGTH:
        return "MAX_TOKENS"
    if any(object_of(call.arguments) is None for call in choice.tool_calls):
        return "MALFORMED_FUNCTION_CALL"
    return "STOP"


def _whole_parts(choice: Choice, request: ChatRequest) -> list[dict[str, object]]:
    parts: list[dict[str, object]] = []
    if choice.reasoning and request.shows_thoughts:
        parts.append({"text": choice.reasoning, "thought": True})
    if choice.text:
        parts.append({"text": choice.text})
    for call in choice.tool_calls:
        parts += _function_call(call.id, call.name, call.arguments)
    return parts


def _function_call(id: str, name: str, arguments: str) -> list[dict[str, object]]:
    """The part of a call; none for malformed arguments, of which the finish reason tells."""
    found = object_of(arguments)
    if found is None:
        return []
    return [{"functionCall": {"id": id, "name": name, "args": found}}]


def _returns_logprobs(config: Fields) -> bool:
    alternatives = config.integer("logprobs", at_least=0, at_most=20)
    if alternatives:
        raise refusal(
            config.place("logprobs"),
            alternatives,
            f"0, {SAMPLED_ALONE}",
            kind="unsupported",
        )
    return config.flag("responseLogprobs") or False


def _altered(config: Fields) -> dict[str, object]:
    altered: dict[str, object] = {}
    for name, vllm in (
        ("presencePenalty", "presence_penalty"),
        ("frequencyPenalty", "frequency_penalty"),
    ):
        penalty = config.number(name, at_least=-2, at_most=2)
        if penalty:
            altered[vllm] = penalty
    top_k = config.integer("topK", at_least=0, at_most=LARGEST)
    if top_k:
        altered["top_k"] = top_k
    kind = config.choice("responseMimeType", ("text/plain", "application/json", "text/x.enum"))
    schema = config.inner("responseSchema")
    plain = config.inner("responseJsonSchema")
    if plain is not None:
        altered["structured_outputs"] = {"json": dict(plain.values)}
    elif schema is not None:
        altered["structured_outputs"] = {"json": _json_schema(schema)}
    elif kind == "application/json":
        altered["structured_outputs"] = {"json_object": True}
    return altered


def _json_schema(schema: Fields, *, depth: int = 0) -> dict[str, object]:
    """JSON Schema of Google's own form of it, which has types in capitals."""
    if depth > _MAX_DEPTH:
        raise refusal("a schema", schema.values, f"at most {_MAX_DEPTH} levels")
    found: dict[str, object] = {}
    for name, value in schema.values.items():
        name = _camel(name)
        if value is None or name == "propertyOrdering":
            continue
        if name == "type" and isinstance(value, str):
            found["type"] = value.lower()
        elif name in ("items", "additionalProperties") and isinstance(value, dict):
            found[name] = _json_schema(
                Fields.of(cast("object", value), place=schema.place(name)), depth=depth + 1
            )
        elif name in ("properties", "defs", "$defs"):
            named = Fields.of(value, place=schema.place(name))
            found["$defs" if name == "defs" else name] = {
                key: _json_schema(named.needed_inner(key), depth=depth + 1) for key in named.values
            }
        elif name in _SCHEMA_LISTS:
            found[name] = [_json_schema(part, depth=depth + 1) for part in schema.objects(name)]
        elif name in _SCHEMA_NUMBERS and isinstance(value, str) and value.isdecimal():
            found[name] = int(value[:18])
        else:
            found["$ref" if name == "ref" else name] = value
    if found.pop("nullable", False) is True and "type" in found:
        found["type"] = [found["type"], "null"]
    return found


def _read_tools(body: Fields) -> tuple[Tool, ...]:
    found: list[Tool] = []
    for tool in body.objects("tools"):
        tool = tool.renamed(_camel)
        for name in tool.values:
            if name != "functionDeclarations":
                body.leave_out(f"tools.{name}")
        found += [
            _declared(declared.renamed(_camel)) for declared in tool.objects("functionDeclarations")
        ]
    return tuple(found)


def _declared(function: Fields) -> Tool:
    plain = function.inner("parametersJsonSchema")
    schema = function.inner("parameters")
    parameters: Mapping[str, object] = {}
    if plain is not None:
        parameters = plain.values
    elif schema is not None:
        parameters = _json_schema(schema)
    return Tool(
        name=function.needed_text("name"),
        description=function.text("description") or "",
        parameters=json_text(parameters, function.place("parameters")),
    )


def _chosen_tools(
    body: Fields, tools: tuple[Tool, ...]
) -> tuple[tuple[Tool, ...], dict[str, object]]:
    """Tools that are offered, and what is demanded beyond that; see `openai_tools`."""
    config = (body.inner("toolConfig") or Fields({})).renamed(_camel)
    calling = config.inner("functionCallingConfig")
    if calling is None:
        return tools, {}
    calling = calling.renamed(_camel)
    names = calling.each("allowedFunctionNames", str, "a tool's name")
    for name in names:
        if name not in {tool.name for tool in tools}:
            raise refusal(
                calling.place("allowedFunctionNames"), name, "the name of one of the tools"
            )
    offered = tuple(tool for tool in tools if not names or tool.name in names)
    mode = calling.choice("mode", ("AUTO", "ANY", "NONE", "VALIDATED", "MODE_UNSPECIFIED"))
    if mode == "NONE":
        return (), {}
    if mode != "ANY":
        return offered, {}
    if not offered:
        raise refusal(calling.place("mode"), mode, "'ANY' together with tools")
    return offered, {"tool_choice": "required"}


def _system(body: Fields) -> list[Message]:
    given = body.get("systemInstruction")
    if given is None:
        return []
    if isinstance(given, str):
        return [Message(role="system", content=given)]
    parts = [
        part
        for held in body.needed_inner("systemInstruction").objects("parts")
        for part in _read_part(held.renamed(_camel))
    ]
    return [Message(role="system", content=content_of(parts))]


class _Calls:
    """Function calls without an answer so far: those who answer may name the function alone."""

    def __init__(self) -> None:
        self._open: list[ToolCall] = []
        self._count = 0

    def asked(self, call: Fields) -> ToolCall:
        """The call that a part holds, with an id if it has none."""
        self._count += 1
        arguments = call.inner("args") or Fields({})
        found = ToolCall(
            id=call.text("id") or f"call_{self._count}",
            name=call.needed_text("name"),
            arguments=json_text(arguments.values, arguments.here),
        )
        self._open.append(found)
        return found

    def answered(self, response: Fields) -> str:
        """Id of the call that a part answers: the one it names, or the oldest of the function."""
        id, name = response.text("id"), response.needed_text("name")
        for call in self._open:
            if call.id == id if id else call.name == name:
                self._open.remove(call)
                return call.id
        raise refusal(
            response.here,
            id or name,
            "an answer to a functionCall that comes before it, by its id or its name",
        )


def _contents(body: Fields) -> list[Message]:
    """Messages of the contents; those of the model that follow each other are one.

    Google's client keeps each chunk of a stream as a content of its own.
    """
    found: list[Message] = []
    calls = _Calls()
    given = body.items("contents")
    of_model: list[Fields] = []
    for content in body.objects("contents"):
        role = content.choice("role", ("user", "model", "function"))
        parts = [part.renamed(_camel) for part in content.objects("parts")]
        if role == "model":
            of_model += parts
            continue
        if of_model:
            found.append(_of_model(of_model, calls))
            of_model = []
        found += _of_user(parts, calls)
    if of_model:
        found.append(_of_model(of_model, calls))
    if not found:
        raise refusal("contents", given, "a list of at least one content with parts")
    if found[-1].role == "assistant":
        raise ApiError(
            "unsupported",
            f"contents[{len(given) - 1}] is the model's: the gateway does not go on with a reply "
            "that the client began. End with a user's content",
            parameter="contents",
        )
    return found


def _of_model(parts: Sequence[Fields], calls: _Calls) -> Message:
    thoughts: list[str] = []
    read: list[Part] = []
    asked: list[ToolCall] = []
    for part in parts:
        call = part.inner("functionCall")
        if call is not None:
            asked.append(calls.asked(call))
        elif part.flag("thought"):
            thoughts.append(part.text("text") or "")
        else:
            read += _read_part(part)
    if all(isinstance(part, str) for part in read):  # chunks of one text
        read = ["".join(part for part in read if isinstance(part, str))]
    return Message(
        role="assistant",
        content=content_of(read),
        tool_calls=tuple(asked),
        reasoning="".join(thoughts),
    )


def _of_user(parts: Sequence[Fields], calls: _Calls) -> list[Message]:
    """A user's message, with each function's answer as a message of its own."""
    found: list[Message] = []
    read: list[Part] = []
    for part in parts:
        response = part.inner("functionResponse")
        if response is None:
            read += _read_part(part)
            continue
        if read:
            found.append(Message(role="user", content=content_of(read)))
            read = []
        said = response.inner("response") or Fields({})
        pictures = [
            picture
            for held in response.objects("parts")
            for picture in _read_part(held.renamed(_camel))
        ]
        found.append(
            Message(
                role="tool",
                content=content_of([json_text(said.values, said.here), *pictures]),
                tool_call_id=calls.answered(response),
            )
        )
    if read:
        found.append(Message(role="user", content=content_of(read)))
    return found


def _read_part(part: Fields) -> list[Part]:
    text = part.text("text")
    if text is not None:
        return [text]
    held = part.inner("inlineData")
    if held is not None:
        held = held.renamed(_camel)
        return [picture_of_base64(held.needed_text("data"), place=held.place("data"))]
    if not part.values.keys() - {"thoughtSignature", "thought", "partMetadata"}:
        return []
    raise refusal(
        part.here,
        part.values,
        "text, inlineData with an image, functionCall or functionResponse: the gateway fetches "
        "nothing and runs no code",
        kind="unsupported",
    )
