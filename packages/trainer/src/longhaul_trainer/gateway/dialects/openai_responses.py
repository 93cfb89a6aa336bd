"""OpenAI's responses: a prompt of items, a reply of items, a stream of numbered events."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from longhaul_core.policy import ReplyPart
from longhaul_core.types import FinishReason, Message, Part, ToolCall
from longhaul_trainer.gateway.dialects.deferred_tools import told_of
from longhaul_trainer.gateway.dialects.events import COMMENT, event
from longhaul_trainer.gateway.dialects.fields import Fields, json_text, refusal, shown
from longhaul_trainer.gateway.dialects.openai_chat import content_of
from longhaul_trainer.gateway.dialects.openai_errors import openai_error
from longhaul_trainer.gateway.dialects.openai_forms import (
    CALLS,
    FUNCTION,
    SEARCH,
    Offer,
    ToolForm,
    offered_tools,
    read_call,
)
from longhaul_trainer.gateway.dialects.openai_tools import chosen_tools
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

__all__ = ["OpenAIResponses", "ResponseHistory", "ResponsesRequest"]

_MAX_RESPONSES = 64
"""Of how many responses a `previous_response_id` is known: each holds a whole conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What a conversation says of tools, beside what each request offers."""

    at_its_head: dict[str, Offer] = field(default_factory=dict[str, Offer])
    """Those that stand before all messages, by their names."""
    later: dict[str, Offer] = field(default_factory=dict[str, Offer])

    def copy(self) -> "_Told":
        """One that goes on apart."""
        return _Told(at_its_head=dict(self.at_its_head), later=dict(self.later))


class ResponseHistory:
    """What later requests of an episode may name: its newest responses, and every item of one."""

    def __init__(self) -> None:
        """There is none."""
        self.conversations: dict[str, tuple[tuple[Message, ...], _Told]] = {}
        """Up to and with each response, by its id, and the tools that it tells of; instructions are
        left out, as a later request gives its own."""
        self.items: dict[str, Mapping[str, object]] = {}
        """As they were written, by id."""

    def keep(
        self,
        id: str,
        conversation: tuple[Message, ...],
        told: _Told,
        items: Sequence[Mapping[str, object]],
    ) -> None:
        """Add a response."""
        self.conversations[id] = conversation, told
        if len(self.conversations) > _MAX_RESPONSES:
            del self.conversations[next(iter(self.conversations))]
        self.items |= {str(item["id"]): item for item in items}


_ECHOED = (
    "instructions",
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "reasoning",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
    "truncation",
    "user",
)
"""Fields that an answer repeats."""
_IGNORED = (
    *_ECHOED,
    "context_management",
    "longhaul",
    "max_tool_calls",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
)
"""Read elsewhere, or of no consequence for what is sampled."""
_REFUSED = {
    "background": "ask for a stream, or wait for the answer",
    "conversation": "send the items themselves, or previous_response_id",
    "prompt": "send the text itself as instructions and input",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesRequest(ChatRequest):
    """A request with what its answer repeats, and what the next one may build on."""

    echo: Mapping[str, object] = field(default_factory=dict[str, object])
    has_instructions: bool = False
    """Whether the first message is of the field `instructions`."""
    stores: bool = True
    """Whether a later request may name the answer as its `previous_response_id`."""
    forms: Mapping[str, ToolForm] = field(default_factory=dict[str, ToolForm])
    """How a call of each tool is written, by its name in `tools` and `loaded_tools`."""
    told: _Told = field(default_factory=_Told)


class OpenAIResponses:
    """`POST /v1/responses`. One object an episode, where it is to keep a history."""

    def __init__(self, history: ResponseHistory | None = None) -> None:
        """A dialect of one episode.

        Args:
            history: Filled with each answer that the client does not forbid to store, and read for
                `previous_response_id` and items of type `item_reference`. None refuses both.
        """
        self._history = history

    def read(self, body: Mapping[str, object], *, path: Mapping[str, str]) -> ChatRequest:
        """What a body asks for; see `Dialect`."""
        fields = Fields(body)
        fields.refuse(_REFUSED)
        instructions = fields.text("instructions") or ""
        earlier, told_before = self._earlier(fields)
        told = told_before.copy()
        newer = _input_messages(fields, self._item, told, is_head=not earlier)
        offers = [*offered_tools(fields.objects("tools")), *told.at_its_head.values()]
        if not any(offer.form is SEARCH for offer in offers):
            # Nobody here searches the deferred ones, so the model sees them all.
            offers = [replace(offer, is_deferred=False) for offer in offers]
        offered = {offer.tool.name: offer for offer in offers if not offer.is_deferred}
        loaded = {name: offer for name, offer in told.later.items() if name not in offered}
        callable_tools = [offer.tool for offer in (*offered.values(), *loaded.values())]
        chosen, demanded = chosen_tools(fields, callable_tools, nested=False)
        settings = openai_settings(fields, constraint=_constraint(fields))
        settings["altered"] = {**settings["altered"], **demanded}
        if settings["num_choices"] > 1:
            fields.leave_out("n")
        settings["num_choices"], settings["streams_usage"] = 1, True
        _refuse_logprobs(fields)
        stores = fields.flag("store")
        return ResponsesRequest(
            model=fields.needed_text("model"),
            messages=(
                *([Message(role="system", content=instructions)] if instructions else []),
                *earlier,
                *newer,
            ),
            tools=tuple(tool for tool in chosen if tool.name in offered),
            loaded_tools=tuple(tool for tool in chosen if tool.name in loaded),
            max_tokens=fields.integer("max_output_tokens", at_least=1, at_most=LARGEST),
            echo={name: body.get(name) for name in _ECHOED},
            has_instructions=bool(instructions),
            stores=True if stores is None else stores,
            forms={name: offer.form for name, offer in (loaded | offered).items()},
            told=told,
            left_out=(*fields.unread(_IGNORED), *fields.left_out),
            **settings,
        )

    def whole(self, reply: ChatReply, request: ChatRequest) -> dict[str, object]:
        """The body of an answer that is not streamed."""
        choice = reply.choices[0]
        output = [
            item.written("".join(item.pieces), status=_status(choice))
            for item in _items(reply.id, choice, request)
        ]
        self.keep(reply.id, choice, request, output)
        return _response(
            reply.id,
            reply.created,
            request,
            status=_status(choice),
            output=output,
            usage=reply.usage,
        )

    def stream(self, request: ChatRequest) -> "_ResponseStream":
        """Writes an answer as events."""
        return _ResponseStream(request, self)

    def error(self, error: ApiError) -> dict[str, object]:
        """The body of an error."""
        return {"error": openai_error(error)}

    def keep(
        self,
        id: str,
        choice: Choice,
        request: ChatRequest,
        items: Sequence[Mapping[str, object]],
    ) -> None:
        """Let later requests go on from a response, and name its items."""
        if self._history is None or not isinstance(request, ResponsesRequest) or not request.stores:
            return
        before = request.messages[1:] if request.has_instructions else request.messages
        said = Message(
            role="assistant",
            content=choice.text,
            tool_calls=choice.tool_calls,
            reasoning=choice.reasoning,
        )
        self._history.keep(f"resp_{id}", (*before, said), request.told, items)

    def _earlier(self, body: Fields) -> tuple[tuple[Message, ...], _Told]:
        """The conversation that goes before, and the tools that it tells of."""
        previous = body.text("previous_response_id")
        if previous is None:
            return (), _Told()
        if self._history is None:
            raise refusal(
                "previous_response_id", previous, "null: send all items", kind="unsupported"
            )
        if previous not in self._history.conversations:
            raise ApiError(
                "not_found",
                f"previous_response_id is {previous!r}: this episode has no response of that id "
                "(`store` was false, or it is another episode's). Send all items instead",
                parameter="previous_response_id",
            )
        return self._history.conversations[previous]

    def _item(self, reference: Fields) -> Fields:
        """The item that one of type `item_reference` names."""
        id, place = reference.needed_text("id"), reference.place("id")
        if self._history is None:
            raise refusal(place, id, "no id: send the items themselves", kind="unsupported")
        if id not in self._history.items:
            raise ApiError(
                "not_found",
                f"{place} is {shown(id)}: this episode has no item of that id (`store` was false, "
                "or it is another episode's). Send the item itself instead",
                parameter=place,
            )
        return Fields(self._history.items[id], place=reference.here)


@dataclass(slots=True, kw_only=True)
class _Item:
    """One item of a reply, while it is written and when it is done."""

    kind: Literal["reasoning", "message", "function_call"]
    id: str
    call_id: str = ""
    form: ToolForm = FUNCTION
    tool_place: int = 0
    pieces: list[str] = field(default_factory=list[str])

    @property
    def stem(self) -> str:
        """What the names of its pieces' events begin with."""
        return f"response.{_STEMS[self.kind]}"

    def part(self, text: str) -> dict[str, object] | None:
        """Its only part with this text; None for a call, which has none."""
        match self.kind:
            case "reasoning":
                return {"type": "reasoning_text", "text": text}
            case "message":
                return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            case "function_call":
                return None

    def written(self, text: str | None, *, status: str) -> dict[str, object]:
        """The item with this text; None before its first part."""
        head: dict[str, object] = {"id": self.id, "type": self.kind, "status": status}
        if self.kind == "function_call":
            return {**head, "call_id": self.call_id, **self.form.written(text or "")}
        content = [] if text is None else [self.part(text)]
        if self.kind == "reasoning":
            return {**head, "summary": [], "content": content}
        return {**head, "role": "assistant", "content": content}


_STEMS = {
    "reasoning": "reasoning_text",
    "message": "output_text",
    "function_call": "function_call_arguments",
}
_PREFIXES = {"reasoning": "rs", "message": "msg", "function_call": "fc"}


class _ResponseStream:
    """Events of one response; its items come one after the other."""

    def __init__(self, request: ChatRequest, dialect: OpenAIResponses) -> None:
        self._request = request
        self._dialect = dialect
        self._id = ""
        self._created = 0
        self._number = 0
        self._done: list[dict[str, object]] = []
        self._open: _Item | None = None

    def begin(self, *, id: str, created: int) -> bytes:
        self._id, self._created = id, created
        response = self._response("in_progress")
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def delta(self, delta: Delta) -> bytes:
        part, written = delta.part, b""
        if part.reasoning:
            written += self._turn_to("reasoning") + self._add(part.reasoning)
        if part.text:
            written += self._turn_to("message") + self._add(part.text)
        if part.tool_place is not None:
            written += self._turn_to("function_call", part) + self._add(part.tool_arguments)
        return written

    def keep_alive(self) -> bytes:
        return COMMENT

    def end(self, reply: ChatReply) -> bytes:
        choice, written = reply.choices[0], b""
        if not choice.text and not choice.tool_calls:
            written += self._turn_to("message")
        status = _status(choice)
        written += self._close(status)
        self._dialect.keep(self._id, choice, self._request, self._done)
        return written + self._event(
            f"response.{status}", response=self._response(status, usage=reply.usage)
        )

    def error(self, error: ApiError) -> bytes:
        code = openai_error(error)["code"]
        failed = self._response("failed")
        failed["error"] = {"code": "server_error", "message": error.message}
        return self._event(
            "error", code=code, message=error.message, param=error.parameter
        ) + self._event("response.failed", response=failed)

    def _turn_to(
        self, kind: Literal["reasoning", "message", "function_call"], part: ReplyPart | None = None
    ) -> bytes:
        """Begin an item of the kind, and of the tool call, unless it is open already."""
        item, place = self._open, 0 if part is None else part.tool_place or 0
        if item is not None and item.kind == kind and item.tool_place == place:
            return b""
        written = self._close("completed")
        item = _Item(
            kind=kind,
            id=_item_id(kind, self._id, len(self._done)),
            call_id="" if part is None else part.tool_id,
            form=FUNCTION if part is None else _form(self._request, part.tool_name),
            tool_place=place,
        )
        self._open = item
        if item.form.is_known_late:
            return written
        written += self._event(
            "response.output_item.added",
            output_index=len(self._done),
            item=item.written(None, status="in_progress"),
        )
        if (content := item.part("")) is not None:
            written += self._of_item("response.content_part.added", item, part=content)
        return written

    def _add(self, piece: str) -> bytes:
        item = self._open
        if item is None or not piece:
            return b""
        item.pieces.append(piece)
        if item.form.is_known_late:
            return b""
        return self._of_item(f"{item.stem}.delta", item, delta=piece, **_logprobs(item))

    def _close(self, status: str) -> bytes:
        item = self._open
        if item is None:
            return b""
        self._open = None
        text = "".join(item.pieces)
        content, done = item.part(text), item.written(text, status=status)
        if item.form.is_known_late:
            written = self._late_call(item, done)
        elif content is None:
            written = self._of_item(f"{item.stem}.done", item, name=item.form.name, arguments=text)
        else:
            written = self._of_item(f"{item.stem}.done", item, text=text, **_logprobs(item))
            written += self._of_item("response.content_part.done", item, part=content)
        written += self._event("response.output_item.done", output_index=len(self._done), item=done)
        self._done.append(done)
        return written

    def _late_call(self, item: _Item, done: Mapping[str, object]) -> bytes:
        """Events of a call up to its end: its arguments say which form it has."""
        text = {"custom_tool_call": "input", "function_call": "arguments"}.get(str(done["type"]))
        begun = {**done, "status": "in_progress"} | ({} if text is None else {text: ""})
        written = self._event(
            "response.output_item.added", output_index=len(self._done), item=begun
        )
        if text is not None:
            stem = f"response.{done['type']}_{text}"
            written += self._of_item(f"{stem}.delta", item, delta=done[text])
            written += self._of_item(f"{stem}.done", item, **{text: done[text]})
        return written

    def _of_item(self, kind: str, item: _Item, /, **values: object) -> bytes:
        place = {} if item.kind == "function_call" else {"content_index": 0}
        return self._event(kind, item_id=item.id, output_index=len(self._done), **place, **values)

    def _event(self, kind: str, /, **values: object) -> bytes:
        number = self._number
        self._number += 1
        return event({"type": kind, "sequence_number": number, **values}, name=kind)

    def _response(self, status: str, *, usage: Usage | None = None) -> dict[str, object]:
        return _response(
            self._id, self._created, self._request, status=status, output=self._done, usage=usage
        )


def _logprobs(item: _Item) -> dict[str, object]:
    """A field that text has alone; the client's types need it."""
    return {"logprobs": []} if item.kind == "message" else {}


def _item_id(kind: str, id: str, place: int) -> str:
    return f"{_PREFIXES[kind]}_{id}_{place}"


def _form(request: ChatRequest, name: str) -> ToolForm:
    """How a call of a tool is written; a model may name one that there is not."""
    known = request.forms.get(name) if isinstance(request, ResponsesRequest) else None
    return known or replace(FUNCTION, name=name)


def _items(id: str, choice: Choice, request: ChatRequest) -> list[_Item]:
    """The items of a whole reply: thoughts, text, calls; empty text where there is nothing else."""
    found: list[_Item] = []
    if choice.reasoning:
        found.append(_Item(kind="reasoning", id="", pieces=[choice.reasoning]))
    if choice.text or not choice.tool_calls:
        found.append(_Item(kind="message", id="", pieces=[choice.text]))
    for call in choice.tool_calls:
        found.append(
            _Item(
                kind="function_call",
                id="",
                call_id=call.id,
                form=_form(request, call.name),
                pieces=[call.arguments],
            )
        )
    for place, item in enumerate(found):
        item.id = _item_id(item.kind, id, place)
    return found


def _status(choice: Choice) -> str:
    return "incomplete" if choice.finish_reason is FinishReason.LENGTH else "completed"


def _response(
    id: str,
    created: int,
    request: ChatRequest,
    *,
    status: str,
    output: Sequence[Mapping[str, object]],
    usage: Usage | None,
) -> dict[str, object]:
    echo: Mapping[str, object] = request.echo if isinstance(request, ResponsesRequest) else {}
    cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
    return {
        **echo,
        "id": f"resp_{id}",
        "object": "response",
        "created_at": created,
        "status": status,
        "error": None,
        "incomplete_details": cut,
        "model": request.model,
        "output": list(output),
        "parallel_tool_calls": echo.get("parallel_tool_calls") is not False,
        "tool_choice": echo.get("tool_choice") or "auto",
        "tools": echo.get("tools") or [],
        "usage": None if usage is None else _usage(usage),
    }


def _usage(usage: Usage) -> dict[str, object]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.reply_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},  # not counted apart; clients need one
        "total_tokens": usage.prompt_tokens + usage.reply_tokens,
    }


def _refuse_logprobs(body: Fields) -> None:
    if body.integer("top_logprobs", at_least=0, at_most=20):
        raise refusal(
            "top_logprobs", body.get("top_logprobs"), f"0, {SAMPLED_ALONE}", kind="unsupported"
        )
    for place, word in enumerate(body.each("include", str, "a string")):
        if word == "message.output_text.logprobs":
            raise refusal(
                f"include[{place}]",
                word,
                "other things: ask chat completions for logprobs",
                kind="unsupported",
            )


def _constraint(body: Fields) -> Mapping[str, object] | None:
    text = body.inner("text")
    wanted = None if text is None else text.inner("format")
    if wanted is None:
        return None
    match wanted.get("type"):
        case "text":
            return None
        case "json_object":
            return {"json_object": True}
        case "json_schema":
            return schema_constraint(wanted.get("schema"), place=wanted.place("schema"))
        case kind:
            raise refusal(
                wanted.place("type"),
                kind,
                "'text', 'json_object' or 'json_schema'",
                kind="unsupported",
            )


class _Turn:
    """Items of one reply, gathered into the message that they were."""

    def __init__(self) -> None:
        self.reasoning: list[str] = []
        self.parts: list[Part] | None = None
        self.calls: list[ToolCall] = []

    @property
    def is_begun(self) -> bool:
        """Whether there was an item."""
        return bool(self.reasoning or self.calls) or self.parts is not None

    def taken(self) -> list[Message]:
        """The message, and an empty turn from here on; nothing where there was none."""
        if not self.is_begun:
            return []
        message = Message(
            role="assistant",
            content=content_of(self.parts or []),
            tool_calls=tuple(self.calls),
            reasoning="\n".join(self.reasoning),
        )
        self.reasoning, self.parts, self.calls = [], None, []
        return [message]


def _input_messages(
    body: Fields, named: Callable[[Fields], Fields], told: _Told, *, is_head: bool
) -> list[Message]:
    """Messages of the field `input`: items of one reply become one message.

    Args:
        body: The request.
        named: The item that an `item_reference` stands for.
        told: Gets the tools that the items tell of.
        is_head: Whether the conversation begins here.
    """
    given = body.get("input")
    if isinstance(given, str) and given:
        return [Message(role="user", content=given)]
    items = [] if isinstance(given, str) else body.objects("input")
    if not items:
        raise refusal("input", given, "text or a list of items, not empty")
    messages, turn = list[Message](), _Turn()
    for given_item in items:
        is_name = given_item.get("type") == "item_reference"
        item = named(given_item) if is_name else given_item
        kind = item.get("type") or "message"
        role = item.get("role")
        if kind == "additional_tools" and is_head and not messages and not turn.is_begun:
            told.at_its_head.update(_offers_by_name(item))
        elif kind == "reasoning":
            if turn.parts is not None or turn.calls:
                messages += turn.taken()
            turn.reasoning += _thoughts(item)
        elif (call := read_call(item)) is not None:
            turn.calls.append(call)
        elif kind == "message" and role == "assistant":
            if turn.parts is not None or turn.calls:
                messages += turn.taken()
            turn.parts = _parts(item, "content")
        else:
            messages += turn.taken()
            messages.append(_other_message(item, kind, told))
    return messages + turn.taken()


def _other_message(item: Fields, kind: object, told: _Told) -> Message:
    if kind == "additional_tools":
        return Message(role="system", content=_told_tools(item, told))
    if kind == "tool_search_output" and item.get("execution") != "server":
        return Message(
            role="tool",
            content=_told_tools(item, told),
            tool_call_id=item.needed_text("call_id"),
        )
    if isinstance(kind, str) and kind.removesuffix("_output") in CALLS:
        return _result(item)
    if kind != "message":
        raise refusal(
            item.place("type"),
            kind,
            "'message', 'reasoning', 'item_reference', 'additional_tools', "
            f"{', '.join(CALLS)}, one of these calls with _output, or a client's tool_search_call "
            "or tool_search_output",
            kind="unsupported",
        )
    role = item.choice("role", ("user", "assistant", "system", "developer"))
    if role is None:
        raise refusal(item.place("role"), None, "'user', 'assistant', 'system' or 'developer'")
    return Message(
        role="user" if role == "user" else "system", content=content_of(_parts(item, "content"))
    )


def _told_tools(item: Fields, told: _Told) -> str:
    """Tools that can be called from here on, as the model reads them."""
    found = _offers_by_name(item)
    told.later.update(found)
    return told_of((offer.tool for offer in found.values()), place=item.place("tools"))


def _offers_by_name(item: Fields) -> dict[str, Offer]:
    return {offer.tool.name: offer for offer in offered_tools(item.objects("tools"))}


def _result(item: Fields) -> Message:
    """What a call has brought: text and pictures, or what the tool's own form has."""
    output, status = item.get("output"), item.text("status")
    if item.get("type") == "shell_call_output":
        parts: list[Part] = [json_text(output, item.place("output"))]
    elif item.get("type") == "apply_patch_call_output":
        parts = ["\n".join(filter(None, (status, item.text("output"))))]
    else:
        parts = _parts(item, "output")
    # a local shell's result names its call as `id`
    id = item.text("call_id") or (item.text("id") if "local_shell" in str(item.get("type")) else "")
    return Message(
        role="tool", content=content_of(parts), tool_call_id=id or item.needed_text("call_id")
    )


def _thoughts(item: Fields) -> list[str]:
    """What a reasoning item holds: its content, or where that was left out, its summary."""
    return [part.text("text") or "" for part in item.objects("content") or item.objects("summary")]


def _parts(item: Fields, name: str) -> list[Part]:
    value = item.get(name)
    if isinstance(value, str):
        return [value]
    return [_read_part(part) for part in item.objects(name)]


def _read_part(part: Fields) -> Part:
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return part.text("text") or ""
        case "refusal":
            return part.text("refusal") or ""
        case "input_image":
            part.refuse({"file_id": "send the image itself as a data URL"})
            return picture_of_url(part.needed_text("image_url"), place=part.place("image_url"))
        case "input_file":
            part.refuse({"file_id": "send the image itself as file_data", "file_url": "likewise"})
            return picture_of_url(part.needed_text("file_data"), place=part.place("file_data"))
        case kind:
            raise refusal(
                part.place("type"),
                kind,
                "'input_text', 'output_text', 'input_image' or 'input_file'",
                kind="unsupported",
            )
