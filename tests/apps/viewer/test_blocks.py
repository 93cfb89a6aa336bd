"""HTML blocks: whatever text they are given stays text."""

from collections.abc import Callable

import pytest

from longhaul_core.store.queries import PromptMessage, StoredPicture
from longhaul_core.types import ToolCall
from longhaul_viewer.components.blocks import (
    Badge,
    Fact,
    Link,
    MemberLink,
    action_chips,
    badges,
    facts,
    label,
    members,
    messages,
    number,
    pictures,
    text_block,
    times,
    tool_calls,
    trail,
)

HOSTILE = "<script>alert('x')</script>\" onclick=\"y"


def message(text: str) -> PromptMessage:
    asked = ToolCall(id=text, name=text, arguments=text)
    return PromptMessage(role="tool", parts=(text,), tool_calls=(asked,), tool_call_id=text)


BLOCKS: dict[str, Callable[[], str]] = {
    "label": lambda: label(HOSTILE, HOSTILE),
    "badges": lambda: badges([Badge(HOSTILE)]),
    "text_block": lambda: text_block(HOSTILE),
    "messages": lambda: messages([message(HOSTILE)], {}),
    "tool_calls": lambda: tool_calls([ToolCall(id=HOSTILE, name=HOSTILE, arguments=HOSTILE)]),
    "facts": lambda: facts([Fact(HOSTILE, HOSTILE, explanation=HOSTILE)]),
    "action_chips": lambda: action_chips([HOSTILE], chosen=HOSTILE),
    "trail": lambda: trail([Link(HOSTILE), Link(HOSTILE, HOSTILE)]),
    "members": lambda: members([MemberLink(HOSTILE, HOSTILE, "plain", here=False)]),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_hostile_text_stays_text(name: str) -> None:
    block = BLOCKS[name]()
    assert "<script" not in block
    assert '" onclick=' not in block
    assert "&lt;script&gt;" in block


def test_a_picture_is_in_the_page_itself() -> None:
    picture = StoredPicture("ab" * 32, "image/png")
    shown = pictures([picture], {picture.content_hash: b"bytes"})
    assert 'src="data:image/png;base64,Ynl0ZXM="' in shown
    assert pictures([], {}) == ""


def test_numbers_have_a_true_minus_and_unknown_ones_a_dash() -> None:
    assert number(-0.5) == "−0.5"
    assert number(0.25, signed=True) == "+0.25"
    assert number(-0.0) == "0"
    assert number(None) == "–"


def test_the_bar_of_times_is_as_wide_as_the_step_took() -> None:
    bar = times(queue=1.0, generate=2.0, environment=1.0)
    assert [part in bar for part in ("25.00%", "50.00%")] == [True, True]
    assert times(queue=0.0, generate=0.0, environment=0.0) == ""
