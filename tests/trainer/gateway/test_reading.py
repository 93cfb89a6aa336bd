"""What a program reads of a reply while it is written."""

from collections.abc import Sequence

from longhaul_core.policy import Completion, ReadReply, ReplyPart
from longhaul_core.types import ToolCall
from longhaul_trainer.gateway.reading import ReplyWatch


class Told:
    """Reads one part in each token."""

    def __init__(self, parts: Sequence[ReplyPart]) -> None:
        self._parts = parts

    def feed(self, tokens: Sequence[int]) -> Sequence[ReplyPart]:
        return [self._parts[token] for token in tokens]

    def end(self) -> tuple[Sequence[ReplyPart], ReadReply]:
        calls = [part for part in self._parts if part.tool_place is not None]
        return (), ReadReply(
            text="".join(part.text for part in self._parts),
            tool_calls=tuple(
                ToolCall(id=call.tool_id, name=call.tool_name, arguments=call.tool_arguments)
                for call in calls
            ),
        )


CALL = ReplyPart(tool_place=0, tool_id="call_0", tool_name="look", tool_arguments="{}")


def handed_on(*parts: ReplyPart, stop: str) -> tuple[list[ReplyPart], str]:
    """What is handed on of a reply, and its text as a whole."""
    handed: list[ReplyPart] = []
    watch = ReplyWatch(Told(parts), stop=[stop], on_part=handed.append)
    tokens = tuple(range(len(parts)))
    watch.feed(tokens)
    whole = watch.read(
        Completion(
            text="",
            action_tokens=tokens,
            behavior_logprobs=(-1.0,) * len(parts),
            policy_version=0,
        )
    )
    return handed, whole.text


def test_what_may_begin_a_stop_word_comes_before_the_tool_call_that_follows_it() -> None:
    handed, text = handed_on(ReplyPart(text="I look O"), CALL, stop="OBS")

    assert handed == [ReplyPart(text="I look "), ReplyPart(text="O"), CALL]
    assert text == "I look O"


def test_of_a_stop_word_nothing_comes_before_the_tool_call_that_follows_it() -> None:
    handed, text = handed_on(
        ReplyPart(text="I look O"), ReplyPart(text="BSERVED"), CALL, stop="OBS"
    )

    assert handed == [ReplyPart(text="I look "), CALL]
    assert text == "I look "
