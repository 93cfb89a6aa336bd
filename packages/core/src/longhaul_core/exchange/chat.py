"""Chat messages as OpenAI's JSON has them, to and from ours; and conversations as steps."""

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

from pydantic import BaseModel, ConfigDict, Field

from longhaul_core.store.queries import PromptMessage, StoredPicture
from longhaul_core.types import (
    Call,
    MediaType,
    Message,
    Observation,
    Picture,
    Step,
    Tool,
    ToolCall,
    pictures_of,
)

__all__ = [
    "ChatMessage",
    "ChatTool",
    "GrowingSteps",
    "Lenient",
    "ReadMedia",
    "chat_json",
    "replies_as_steps",
    "reply_json",
    "strays",
    "tool_json",
]

ReadMedia = Callable[[str], bytes]
"""The bytes of the stored picture of a hash."""


class Lenient(BaseModel):
    """A part of a file: fields that it does not name are kept aside, and reported."""

    model_config = ConfigDict(extra="allow", frozen=True)


def strays(*parts: BaseModel, prefix: str = "") -> Iterator[str]:
    """Names of fields that the models do not name, those of the models within them too."""
    for part in parts:
        yield from (f"{prefix}{name}" for name in part.model_extra or {})
        for name, value in part:
            if name not in type(part).model_fields:
                continue
            values = cast("list[object]", value) if isinstance(value, list) else [value]
            inner = [each for each in values if isinstance(each, BaseModel)]
            yield from strays(*inner, prefix=f"{prefix}{name}.")


class _Url(Lenient):
    url: str


class _ContentPart(Lenient):
    type: str
    text: str | None = None
    image_url: _Url | None = None


class _Function(Lenient):
    name: str
    arguments: str | dict[str, Any] = "{}"


class _AskedTool(Lenient):
    id: str
    type: Literal["function"] = "function"
    function: _Function

    def of_ours(self) -> ToolCall:
        arguments = self.function.arguments
        written = arguments if isinstance(arguments, str) else _json(arguments)
        return ToolCall(id=self.id, name=self.function.name, arguments=written)


class ChatMessage(Lenient):
    """A message of OpenAI's chat completions, as data sets for imitation have them too."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_ContentPart] | None = None
    tool_calls: list[_AskedTool] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None

    def of_ours(self) -> Message:
        """As we have it.

        Raises:
            ValueError: A message that cannot be, e.g. a tool's that names no call.
        """
        return Message(
            role="system" if self.role == "developer" else self.role,
            content=self._content(),
            tool_calls=tuple(call.of_ours() for call in self.tool_calls or ()),
            tool_call_id=self.tool_call_id,
            reasoning=self.reasoning_content or "",
        )

    def _content(self) -> str | tuple[str | Picture, ...]:
        if self.content is None:
            return ""
        if isinstance(self.content, str):
            return self.content
        return tuple(_part(part) for part in self.content)


def _part(part: _ContentPart) -> str | Picture:
    if part.type == "text" and part.text is not None:
        return part.text
    if part.type == "image_url" and part.image_url is not None:
        head, comma, data = part.image_url.url.partition(",")
        media_type = head.removeprefix("data:").removesuffix(";base64")
        known: dict[str, MediaType] = {each: each for each in get_args(MediaType)}
        if comma and head == f"data:{media_type};base64" and media_type in known:
            try:
                decoded = base64.b64decode(data, validate=True)
            except binascii.Error as error:
                raise ValueError(f"a picture is no base64: {error}") from error
            return Picture.of(decoded, media_type=known[media_type])
        raise ValueError(
            f"a picture must be a data: URL of {', '.join(get_args(MediaType))}; no address is "
            f"fetched, got {part.image_url.url[:60]!r}"
        )
    raise ValueError(f"a part of type {part.type!r} is neither text nor image_url")


class _OfferedFunction(Lenient):
    name: str
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)


class ChatTool(Lenient):
    """A tool that a reply could ask for."""

    type: Literal["function"] = "function"
    function: _OfferedFunction

    def of_ours(self) -> Tool:
        """As we have it."""
        return Tool(
            name=self.function.name,
            description=self.function.description,
            parameters=_json(self.function.parameters),
        )


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


def tool_json(tool: Tool) -> dict[str, Any]:
    """A tool in OpenAI's JSON."""
    try:
        parameters = json.loads(tool.parameters)
    except ValueError:
        parameters = {}
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": parameters,
    }
    return {"type": "function", "function": function}


def chat_json(message: PromptMessage, *, media: ReadMedia) -> dict[str, Any]:
    """A stored message in OpenAI's JSON; pictures as data URLs."""
    made: dict[str, Any] = {"role": message.role, "content": _content_json(message.parts, media)}
    if message.reasoning:
        made["reasoning_content"] = message.reasoning
    if message.tool_calls:
        made["tool_calls"] = [_tool_call_json(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        made["tool_call_id"] = message.tool_call_id
    return made


def reply_json(reply: str, tool_calls: Sequence[ToolCall]) -> dict[str, Any]:
    """A reply as the assistant's message that ends a conversation."""
    made: dict[str, Any] = {"role": "assistant", "content": reply}
    if tool_calls:
        made["tool_calls"] = [_tool_call_json(call) for call in tool_calls]
    return made


def _tool_call_json(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _content_json(
    parts: Sequence[str | StoredPicture], media: ReadMedia
) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    return [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {
            "type": "image_url",
            "image_url": {
                "url": f"data:{part.media_type};base64,"
                + base64.b64encode(media(part.content_hash)).decode("ascii")
            },
        }
        for part in parts
    ]


@dataclass(slots=True)
class GrowingSteps:
    """The steps of an episode whose file tells of calls, one after the other."""

    made: list[Step] = field(default_factory=list[Step])
    _latest: int | None = None

    def add(
        self,
        calls: tuple[Call, ...],
        *,
        step_index: int | None,
        observation: str | Observation,
        action: str,
        action_valid: bool,
        reward: float,
    ) -> None:
        """A step; or, where the file gives it the number of the one before, more of that one.

        Args:
            calls: Further ones.
            step_index: The file's; None where it has none.
            observation: Of the step, as all that follows; a step that is there has its own.
            action: What the environment was given.
            action_valid: Whether it was an action.
            reward: Is added to what the step was paid so far.
        """
        if self.made and step_index is not None and step_index == self._latest:
            last = self.made.pop()
            step = replace(last, calls=(*last.calls, *calls), reward=last.reward + reward)
        else:
            seen = Observation(text=observation) if isinstance(observation, str) else observation
            step = Step(
                index=len(self.made),
                observation=seen,
                calls=calls,
                action=action,
                action_valid=action_valid,
                reward=reward,
            )
        self.made.append(step)
        self._latest = step_index


def replies_as_steps(
    messages: Sequence[Message], *, is_step: Callable[[int], bool], tools: tuple[Tool, ...] = ()
) -> tuple[tuple[Step, ...], str]:
    """A whole conversation as steps: one for each reply, on what was said since the one before.

    Args:
        messages: In order.
        is_step: Whether the assistant's message at a place is a reply of the model's own.
        tools: That each reply could ask for.

    Returns:
        The steps, without rewards, and what was said after the last reply.
    """
    steps = GrowingSteps()
    said: list[Message] = []
    for place, message in enumerate(messages):
        if message.role in ("user", "tool"):
            said.append(message)
        if message.role == "assistant" and not is_step(place):
            said = []  # an opening that is written for the model: instructions, and "OK."
        if message.role != "assistant" or not is_step(place):
            continue
        reply = _with_thoughts(message)
        call = Call(
            messages=tuple(messages[:place]),
            reply=reply,
            sampled=None,
            trained=False,
            tools=tools,
            tool_calls=message.tool_calls,
        )
        steps.add(
            (call,),
            step_index=None,
            observation=_observed(said),
            action=reply,
            action_valid=True,
            reward=0.0,
        )
        said = []
    return tuple(steps.made), _observed(said).text


def _observed(said: Sequence[Message]) -> Observation:
    return Observation(
        text="\n".join(message.text for message in said),
        pictures=pictures_of(said),
    )


def _with_thoughts(message: Message) -> str:
    return (
        f"<think>{message.reasoning}</think>{message.text}" if message.reasoning else message.text
    )
