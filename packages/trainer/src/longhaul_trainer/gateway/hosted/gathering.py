"""A vendor's reply as it comes in, whole or in pieces."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from longhaul_core.policy import ReplyPart
from longhaul_core.types import FinishReason, ToolCall
from longhaul_trainer.gateway.exchange import ChatRequest, Choice, Delta, Usage

__all__ = ["GatheredReply", "Vendor"]


class _Gathered:
    """One choice."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: dict[int, list[ReplyPart]] = {}
        self.finish_reason = FinishReason.STOP
        self.stop_word: str | None = None

    def choice(self) -> Choice:
        return Choice(
            text="".join(self.text),
            reasoning="".join(self.reasoning),
            tool_calls=tuple(_tool_call(place, parts) for place, parts in self.calls.items()),
            finish_reason=self.finish_reason,
            stop_word=self.stop_word,
        )


class GatheredReply:
    """What has come in of a reply."""

    def __init__(self) -> None:
        """Nothing has."""
        self.usage: Usage | None = None
        self.is_complete = False
        """Whether the vendor said that nothing follows."""
        self._choices: defaultdict[int, _Gathered] = defaultdict(_Gathered)

    def add(self, choice: int, *parts: ReplyPart) -> list[Delta]:
        """Keep pieces of a choice; returns them for whoever reads a stream."""
        gathered = self._choices[choice]
        for part in parts:
            gathered.text.append(part.text)
            gathered.reasoning.append(part.reasoning)
            if part.tool_place is not None:
                gathered.calls.setdefault(part.tool_place, []).append(part)
        return [Delta(choice=choice, part=part) for part in parts]

    def finish(self, choice: int, reason: FinishReason, *, stop_word: str | None = None) -> None:
        """Keep why a choice ended."""
        self._choices[choice].finish_reason = reason
        self._choices[choice].stop_word = stop_word

    def choices(self) -> tuple[Choice, ...]:
        """The choices so far, in their order."""
        return tuple(self._choices[place].choice() for place in sorted(self._choices))


class Vendor(Protocol):
    """One vendor's JSON, as its clients send and read it."""

    path: str
    """Below the endpoint's address."""

    def headers(self, key: str | None) -> dict[str, str]:
        """Headers of a request."""
        ...

    def body(
        self, request: ChatRequest, *, model: str, stream: bool, max_reply_tokens: int
    ) -> dict[str, object]:
        """The body of a request.

        Raises:
            ApiError: `unsupported`: it asks for what the vendor's API has no word for.
        """
        ...

    def whole(self, data: bytes, reply: GatheredReply) -> list[Delta]:
        """Read an answer that is not streamed.

        Raises:
            msgspec.DecodeError: It is not of the vendor's form.
            ApiError: It is an error.
        """
        ...

    def event(self, data: bytes, reply: GatheredReply) -> list[Delta]:
        """Read the data of one server-sent event.

        Raises:
            msgspec.DecodeError: It is not of the vendor's form.
            ApiError: The vendor reports an error in mid-stream.
        """
        ...


def _tool_call(place: int, parts: Sequence[ReplyPart]) -> ToolCall:
    return ToolCall(
        id=next((part.tool_id for part in parts if part.tool_id), f"call_{place}"),
        name=next((part.tool_name for part in parts if part.tool_name), ""),
        arguments="".join(part.tool_arguments for part in parts),
    )
